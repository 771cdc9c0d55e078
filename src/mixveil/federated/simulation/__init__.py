"""Methods of learning together, side by side on one machine."""
