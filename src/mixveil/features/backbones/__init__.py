"""Frozen public networks in plain torch, under their files' key names."""
