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
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import Batch, Encoder, Fact, Facts, Guarantee, NoiseLaw, PublicUse, Rows, Target, Trace
from mixveil.encoders.linear import Linear, unmixed
from mixveil.encoders.plain import NoPromise


@dataclass(frozen=True)
class Laplace:
    """alpha: the share of the images that would be mixed in, in (0, 1)."""

    name: ClassVar[str] = "laplace"
    targets: ClassVar[tuple[type[Target], ...]] = ()
    needs_facts: ClassVar[bool] = True
    public_use: ClassVar[PublicUse | None] = "facts"
    alpha: float = 0.5

    def __post_init__(self) -> None:
        checks.probability("alpha", self.alpha)

    @classmethod
    def ready(cls) -> type[Encoder]:
        return CalibratedLaplace

    @classmethod
    def example(cls) -> CalibratedLaplace:
        known = {"dimension": 16.0, "centre": 0.5, "size": 0.25}
        return cls().calibrate(None, Facts({name: Fact(value, "public") for name, value in known.items()}))[0]

    def calibrate(self, target: Target | None, facts: Facts) -> tuple[CalibratedLaplace, tuple[Guarantee, ...]]:
        """Facts: centre, and size, the records' mean absolute value once it is subtracted."""
        if target is not None:
            raise ArgumentError("the encoder laplace promises nothing: neither mu nor tau can be asked of it")
        scale = checks.finite_positive("scale", self.alpha / (1 - self.alpha) * facts["size"])
        return CalibratedLaplace(alpha=self.alpha, centre=facts["centre"], scale=scale), ()


@dataclass(frozen=True, kw_only=True)
class CalibratedLaplace(NoPromise, Linear):
    """`Laplace` with its noise. scale: b/(1 − α), the mean size of the noise in one released value."""

    law: ClassVar[NoiseLaw] = "laplace"
    sources: ClassVar[int] = 1
    covers: ClassVar[int] = 0
    unpromised: ClassVar[tuple[str, ...]] = ("noise-for-comparison",)
    alpha: float
    centre: float
    scale: float

    def __post_init__(self) -> None:
        checks.probability("alpha", self.alpha)
        checks.size("scale", checks.finite_positive("scale", self.scale))
        checks.place("centre", self.centre)

    @property
    def name(self) -> str:
        return Laplace.name

    @property
    def scheme(self) -> Laplace:
        return Laplace(self.alpha)

    @property
    def sigma(self) -> float:
        return math.sqrt(2) * self.scale

    def prepare(self, x: Tensor) -> Tensor:
        return x.flatten(1).double() - self.centre

    def restore(self, z: Tensor) -> Tensor:
        return z + self.centre

    def deviation(self, weight: Tensor) -> Tensor:
        return torch.full((len(weight),), self.sigma, dtype=torch.float64)

    def plan(self, n: int, *, stream: Stream, units: Tensor | None = None) -> Trace:
        return unmixed(n)

    def encode(self, rows: Rows, index: Tensor, trace: Trace, *, stream: Stream) -> Batch:
        own = rows.take(index)
        noise = stream.laplace(len(index), own.x[0].numel()).mul_(self.scale)
        return Batch(noise.add_(self.prepare(own.x)).float().view(own.x.shape), own.y)
