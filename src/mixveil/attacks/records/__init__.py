"""Attacks on released rows."""
