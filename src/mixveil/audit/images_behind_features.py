"""The images behind features: what an attacker who turns features back into pictures is measured against."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import interpolate

from mixveil.core.types import Batch, Dataset
from mixveil.data.row_views import RowsView

LARGEST = 64
"""Pixels a side: larger images are shown, guessed and measured at this size."""


@dataclass(frozen=True)
class SmallImages(RowsView):
    """Images in [0, 1], no larger than `LARGEST`."""

    rows: Dataset

    def take(self, index: Tensor) -> Batch:
        x, y = self.rows.take(index)
        x = (x - self.rows.low) / (self.rows.high - self.rows.low)
        side = max(x.shape[2:])
        if side > LARGEST:
            size = [max(1, round(length * LARGEST / side)) for length in x.shape[2:]]
            x = interpolate(x, size=size, mode="bilinear", antialias=True).clamp(0, 1)
        return Batch(x, y)
