"""Laplace noise instead of other images: the baseline that InstaHide's paper compares mixing with (§5.2).

    (1 − α)z_i + e_i,   E‖e‖₁ = α E‖z‖₁,   z = x − centre

as much noise as the mixed-in images would have been. Released in the records' own scale, over 1 − α:

    x̃_i = z_i + e_i/(1 − α),   ỹ_i = y_i

Formal guarantees
- None. The noise follows the records' own average size (or the public ones'), and is far too little for any bound that
  means something: with values in an interval of length r, ε = r d (1 − α)/b, some multiple of the dimension d.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError, NotCalibratedError
from mixveil.core.randomness import Stream
from mixveil.core.types import Batch, Fact, Facts, Guarantee, Rows, Target, Trace
from mixveil.encoders.plain import Plain, within_simplex


@dataclass(frozen=True)
class Laplace(Plain):
    """alpha: the share of the images that would be mixed in, in (0, 1). Set by `calibrate`: centre is subtracted from
    every value, scale is b/(1 − α), the mean size of the noise in one released value."""

    name: ClassVar[str] = "laplace"
    not_promised: ClassVar[tuple[str, ...]] = ("noise-for-comparison",)
    alpha: float = 0.5
    centre: float = 0.0
    scale: float | None = None

    def __post_init__(self) -> None:
        checks.probability("alpha", self.alpha)
        if self.scale is not None:
            checks.size("scale", checks.positive("scale", self.scale))
        checks.place("centre", self.centre)

    @classmethod
    def example(cls) -> Self:
        known = {"dimension": 16.0, "centre": 0.5, "size": 0.25}
        return cls().calibrate(None, Facts({name: Fact(value, "public") for name, value in known.items()}))[0]

    def calibrate(self, target: Target | None, facts: Facts) -> tuple[Self, tuple[Guarantee, ...]]:
        """Facts: centre, and size, the records' mean absolute value once it is subtracted."""
        if target is not None:
            raise ArgumentError("the encoder laplace promises nothing: neither mu nor tau can be asked of it")
        scale = self.alpha / (1 - self.alpha) * facts["size"]
        return replace(self, centre=facts["centre"], scale=checks.positive("scale", scale)), ()

    @property
    def sigma(self) -> float | None:
        return None if self.scale is None else math.sqrt(2) * self.scale

    def prepare(self, x: Tensor) -> Tensor:
        return x.flatten(1).double() - self.centre

    def restore(self, z: Tensor) -> Tensor:
        return z + self.centre

    def deviation(self, weight: Tensor) -> Tensor:
        return torch.full((len(weight),), math.sqrt(2) * self._scale, dtype=torch.float64)

    def possible_labels(self, y: Tensor) -> Tensor:
        return within_simplex(y, 1)

    def plan(self, n: int, *, stream: Stream, units: Tensor | None = None) -> Trace:
        checks.enough_rows(n)
        return Trace(torch.empty(n, 0, dtype=torch.int64), torch.ones(n, 1))

    def encode(self, rows: Rows, index: Tensor, trace: Trace, *, stream: Stream) -> Batch:
        own = rows.take(index)
        noise = stream.laplace(len(index), own.x[0].numel()).mul_(self._scale)
        return Batch(noise.add_(self.prepare(own.x)).float().view(own.x.shape), own.y)

    @property
    def _scale(self) -> float:
        if self.scale is None:
            raise NotCalibratedError("laplace has no scale yet: calibrate it first")
        return self.scale
