"""What a release can hold: one file a kind of payload."""
