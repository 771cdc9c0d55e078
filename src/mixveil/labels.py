"""Labels under randomised response: each is said as it is, or moved to another class, before anything is mixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mixveil.keys import Stream
from mixveil.theory.response import keep_probability
from mixveil.types import Batch, Dataset


def moves(n: int, classes: int, epsilon: float, stream: Stream) -> Tensor:
    """(n,) by how much each label moves on, around the classes: 0 with the probability of keeping it, else anything.
    Drawn without looking at any label."""
    kept = stream.uniform(n) < keep_probability(epsilon, classes)
    away = 1 + (stream.uniform(n) * (classes - 1)).floor().long().clamp(max=classes - 2)
    return torch.where(kept, 0, away)


@dataclass(frozen=True)
class Randomised:
    """A data set whose labels have moved."""

    rows: Dataset
    moves: Tensor = field(repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rows.shape

    @property
    def classes(self) -> tuple[str, ...]:
        return self.rows.classes

    @property
    def low(self) -> float:
        return self.rows.low

    @property
    def high(self) -> float:
        return self.rows.high

    @property
    def declared(self) -> bool:
        return self.rows.declared

    @property
    def units(self) -> tuple[str, ...] | None:
        return self.rows.units

    def originals(self, index: Tensor) -> Sequence[Tensor]:
        return self.rows.originals(index)

    def take(self, index: Tensor) -> Batch:
        x, y = self.rows.take(index)
        said = (y.argmax(1) + self.moves[index]) % y.shape[1]
        return Batch(x, torch.zeros_like(y).scatter_(1, said[:, None], 1.0))
