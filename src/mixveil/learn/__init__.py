"""From releases to a model: heads, training, models on disk, the two-step protocol."""
