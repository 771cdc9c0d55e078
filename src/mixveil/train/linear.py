"""What a head is in the end: one linear layer on features."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from mixveil.features import Features
from mixveil.projection import Projection
from mixveil.train.discriminant import Discriminant
from mixveil.types import Progress

_ROWS = 4096


@dataclass(frozen=True)
class Linear:
    """Scores are features · weight + bias: (d, classes) and (classes,) float32. −∞: a class that nobody had."""

    weight: Tensor = field(repr=False)
    bias: Tensor = field(repr=False)

    @classmethod
    def of(cls, head: Discriminant, projection: Projection | None) -> Linear:
        """A head, with the projection before it."""
        if projection is None:
            return cls(head.weight.float(), head.bias.float())
        weight = projection.matrix.double() @ head.weight
        return cls(weight.float(), (head.bias - projection.mean.double() @ weight).float())

    def named(self, features: Features, progress: Progress = lambda _: None) -> Tensor:
        """(n,) the likeliest class of each row."""
        parts = []
        for index in torch.split(torch.arange(len(features)), _ROWS):
            parts.append((features.take(index).x @ self.weight + self.bias).argmax(1))
            progress(len(index))
        return torch.cat(parts)
