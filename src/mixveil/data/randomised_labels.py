"""Randomised response: each label is kept, or moved to another class, before the records are mixed."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from mixveil.core.randomness import Stream
from mixveil.core.types import Batch
from mixveil.data.row_views import RowsView
from mixveil.theory.response import keep_probability


def label_shifts(n: int, classes: int, epsilon: float, stream: Stream) -> Tensor:
    """(n,) by how many classes each label moves on: 0 with the probability of keeping it, else any other shift alike.
    Drawn without looking at the labels."""
    kept = stream.uniform(n) < keep_probability(epsilon, classes)
    away = 1 + (stream.uniform(n) * (classes - 1)).floor().long().clamp(max=classes - 2)
    return torch.where(kept, 0, away)


@dataclass(frozen=True)
class Randomised(RowsView):
    """A data set with randomised labels. shifts: (n,) by how many classes each label moves on."""

    shifts: Tensor = field(repr=False)

    def take(self, index: Tensor) -> Batch:
        x, y = self.rows.take(index)
        label = (y.argmax(1) + self.shifts[index]) % y.shape[1]
        return Batch(x, torch.zeros_like(y).scatter_(1, label[:, None], 1.0))
