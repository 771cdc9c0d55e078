"""No defence at all: the data as they are. Every attack must succeed here, or the attack is broken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.randomness import Stream
from mixveil.core.types import Batch, Rows, Trace
from mixveil.encoders.plain import Plain, mix, within_simplex


@dataclass(frozen=True)
class Identity(Plain):
    name: ClassVar[str] = "identity"

    @classmethod
    def example(cls) -> Self:
        return cls()

    def possible_labels(self, y: Tensor) -> Tensor:
        return within_simplex(y, 1)

    def plan(self, n: int, *, stream: Stream, units: Tensor | None = None) -> Trace:
        checks.enough_rows(n)
        return Trace(partner=torch.empty(n, 0, dtype=torch.int64), weight=torch.ones(n, 1))

    def encode(self, rows: Rows, index: Tensor, trace: Trace, *, stream: Stream) -> Batch:
        return mix(rows, index, trace)
