"""Plain Gaussian records: each record by itself, clipped and covered by noise. No pairing.

    x̃_i = z_i + e_i,   ỹ_i = y_i,   z = clip(x − centre),   e ~ N(0, σ²I)

Formal guarantees
- Asked for μ: every unit of m rows is μ-GDP, μ = (2C/σ)√m, against an attacker who knows all else, labels excluded.
- Labels are released as they are.

It is here for comparison: in GDP, pairing buys nothing over this encoder.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import NORMAL_BOUND, Stream
from mixveil.core.types import Batch, Cost, Encoder, Facts, Guarantee, Mu, NoiseLaw, PublicUse, Rows, Target, Trace
from mixveil.encoders.grid import GRID
from mixveil.encoders.linear import unmixed
from mixveil.encoders.noisy import EXAMPLE, NO_TARGET, Noisy, certified, check_noise, gdp_conditions, on_grid


@dataclass(frozen=True)
class Gaussian:
    name: ClassVar[str] = "gaussian"
    targets: ClassVar[tuple[type[Target], ...]] = (Mu,)
    needs_facts: ClassVar[bool] = True
    public_use: ClassVar[PublicUse | None] = "facts"

    @classmethod
    def ready(cls) -> type[Encoder]:
        return CalibratedGaussian

    @classmethod
    def example(cls) -> CalibratedGaussian:
        return cls().calibrate(Mu(1.0), EXAMPLE)[0]

    def calibrate(self, target: Target | None, facts: Facts) -> tuple[CalibratedGaussian, tuple[Guarantee, ...]]:
        if target is None:
            raise ArgumentError(NO_TARGET)
        if not isinstance(target, Mu):
            raise ArgumentError("the encoder gaussian mixes nothing: tau speaks of mixtures; ask for a mu")
        clip = facts["clip"]
        encoder = CalibratedGaussian(
            centre=facts["centre"],
            clip=clip,
            amplitude=min(facts["amplitude"], clip),
            sigma=check_noise(2 * clip / target.value * math.sqrt(facts.unit_rows)),
            unit_rows=facts.unit_rows,
        )
        if encoder.index_bound >= 1 << 31:
            raise ArgumentError(f"mu = {target.value:g} is too little noise to be released on its grid")
        return encoder, certified(encoder, target, facts)


@dataclass(frozen=True, kw_only=True)
class CalibratedGaussian(Noisy):
    """`Gaussian` with its noise."""

    law: ClassVar[NoiseLaw] = "gaussian"
    sources: ClassVar[int] = 1
    tau_conditions: ClassVar[Mapping[str, str]] = {}

    @property
    def name(self) -> str:
        return Gaussian.name

    @property
    def scheme(self) -> Gaussian:
        return Gaussian()

    def claims(self) -> Mapping[str, Guarantee]:
        mu = self.cost().of(self.unit_rows)
        return {"gdp": Guarantee("gdp", mu, mu, gdp_conditions(self.unit_rows))}

    def cost(self) -> Cost:
        """Every row has noise of its own: m rows of a unit cost √m times as much."""
        mu = 2 * self.clip / self.sigma
        return Cost(mu, mu, 0.5)

    def directional_snr(self, lambda_max: float) -> float | None:
        return None

    @property
    def step(self) -> float:
        return self.sigma * GRID

    @property
    def index_bound(self) -> int:
        return math.ceil((self.amplitude / self.sigma + NORMAL_BOUND) / GRID) + 1

    def deviation(self, weight: Tensor) -> Tensor:
        return torch.full((len(weight),), self.sigma, dtype=torch.float64)

    def possible_labels(self, y: Tensor) -> Tensor:
        return (y > 0).sum(1) == 1

    def plan(self, n: int, *, stream: Stream, units: Tensor | None = None) -> Trace:
        trace = unmixed(n)
        self.check_units(n, units)
        return trace

    def encode(self, rows: Rows, index: Tensor, trace: Trace, *, stream: Stream) -> Batch:
        own = rows.take(index)
        one = torch.ones(len(index), dtype=torch.float64)
        return Batch(on_grid(self, [own.x], [one], one, 1.0, stream), own.y)
