"""Frozen public networks in plain torch, under the key names of their files."""
