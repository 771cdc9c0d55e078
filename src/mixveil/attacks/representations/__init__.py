"""Attacks on what a split network's first part sends: from representations back to images."""
