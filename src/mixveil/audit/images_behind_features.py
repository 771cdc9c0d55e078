"""The images behind features: what an attacker who turns features back into pictures is measured against."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from mixveil.audit.figures import Row, finite
from mixveil.core.types import Batch, Dataset
from mixveil.data import similarity
from mixveil.data.row_views import RowsView

LARGEST = 64
"""Pixels a side: larger images are shown, guessed and measured at this size."""


@dataclass(frozen=True)
class Portraits(RowsView):
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


def compared(name: str, truth: Tensor, guess: Tensor, nothing: Tensor) -> list[Row]:
    """Figures of guessed pictures, (n, c, h, w) in [0, 1] as the true ones are, beside those of guessing `nothing`."""
    centre = truth.mean(0)
    rows = []
    for metric, measure, best in (
        ("picture mse", similarity.mse, torch.amin),
        ("picture snr_db", lambda a, b: similarity.snr_db(a - centre, b - centre), torch.amax),
        ("picture ssim", similarity.ssim, torch.amax),
    ):
        values, blank = measure(truth, guess), measure(truth, nothing.expand_as(truth))
        worst = finite(best(values, 0))
        mean, std = finite(values.mean()), finite(values.std())
        rows.append(Row(name, metric, mean, std, worst, finite(blank.mean()), None))
    return rows
