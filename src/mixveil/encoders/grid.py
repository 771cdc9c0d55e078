"""The public grid on which noisy values are released: whole multiples of σ·2⁻¹⁰, stored as integers."""

from __future__ import annotations

import torch

GRID = 2.0**-10


def stored_dtype(index_bound: int | None) -> torch.dtype:
    """The dtype of a release whose integers are at most `index_bound` in size; None: floats are released."""
    if index_bound is None:
        return torch.float32
    return torch.int16 if index_bound < 1 << 15 else torch.int32
