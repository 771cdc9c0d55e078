"""Labels under randomised response: each is said as it is, or moved to another class, before anything is mixed."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from mixveil.core.randomness import Stream
from mixveil.core.types import Batch
from mixveil.data.row_views import RowsView
from mixveil.theory.response import keep_probability


def moves(n: int, classes: int, epsilon: float, stream: Stream) -> Tensor:
    """(n,) by how much each label moves on, around the classes: 0 with the probability of keeping it, else anything.
    Drawn without looking at any label."""
    kept = stream.uniform(n) < keep_probability(epsilon, classes)
    away = 1 + (stream.uniform(n) * (classes - 1)).floor().long().clamp(max=classes - 2)
    return torch.where(kept, 0, away)


@dataclass(frozen=True)
class Randomised(RowsView):
    """A data set whose labels have moved."""

    moves: Tensor = field(repr=False)

    def take(self, index: Tensor) -> Batch:
        x, y = self.rows.take(index)
        said = (y.argmax(1) + self.moves[index]) % y.shape[1]
        return Batch(x, torch.zeros_like(y).scatter_(1, said[:, None], 1.0))
