"""Rounded, noisy mixtures of rows in one pass on a GPU, exact in every value: `encoding` says how."""
