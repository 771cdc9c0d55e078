"""Plain Gaussian records: each record by itself, clipped and covered by noise. No pairing.

    x̃_i = z_i + e_i,   ỹ_i = y_i,   z = clip(x − centre),   e ~ N(0, σ²I)

Formal guarantees
- Asked for μ: every unit of m rows is μ-GDP, μ = (2C/σ)√m, against whoever knows everything else, labels excluded.
- Labels are released as they are.

It is here to be compared with: pairing buys nothing in GDP, and this is what it buys nothing over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import NORMAL_BOUND, Stream
from mixveil.core.types import Batch, Cost, Fact, Facts, Guarantee, Mu, Rows, Target, Trace
from mixveil.encoders.grid import GRID, stored_dtype
from mixveil.encoders.noisy import (
    NO_TARGET,
    calibrated,
    check_noise,
    check_settings,
    check_units,
    gdp_conditions,
    prepare,
)


@dataclass(frozen=True)
class Gaussian:
    """All fields are set by `calibrate`: centre is subtracted from every value, clip bounds a record's norm, amplitude
    its single values, sigma is the noise of one value, unit_rows the most rows that one unit has."""

    name: ClassVar[str] = "gaussian"
    centre: float = 0.0
    clip: float | None = None
    amplitude: float | None = None
    sigma: float | None = None
    unit_rows: int = 1

    def __post_init__(self) -> None:
        check_settings(self)

    @classmethod
    def example(cls) -> Self:
        known = {"dimension": 16.0, "centre": 0.5, "amplitude": 0.5, "clip": 2.0}
        return cls().calibrate(Mu(1.0), Facts({name: Fact(value, "range") for name, value in known.items()}))[0]

    def calibrate(self, target: Target | None, facts: Facts) -> tuple[Self, tuple[Guarantee, ...]]:
        if target is None:
            raise ArgumentError(NO_TARGET)
        if not isinstance(target, Mu):
            raise ArgumentError("the encoder gaussian mixes nothing: tau speaks of mixtures; ask for a mu")
        for name in ("dimension", "centre", "amplitude", "clip"):
            facts.certified(name)
        clip = facts["clip"]
        sigma = check_noise(2 * clip / target.value * math.sqrt(facts.unit_rows))
        encoder = replace(
            self,
            centre=facts["centre"],
            clip=clip,
            amplitude=min(facts["amplitude"], clip),
            sigma=sigma,
            unit_rows=facts.unit_rows,
        )
        if (encoder.index_bound or 0) >= 1 << 31:
            raise ArgumentError(f"mu = {target.value:g} is too little noise to be released on its grid")
        origins = {name: facts.origin(name) for name in ("centre", "clip", "amplitude")}
        claim = encoder.claims()["gdp"]
        return encoder, (replace(claim, nominal=target.value, assumes={**claim.assumes, **origins}),)

    def claims(self) -> Mapping[str, Guarantee]:
        mu = self.cost().of(self.unit_rows)
        return {"gdp": Guarantee("gdp", mu, mu, gdp_conditions(self.unit_rows))}

    def cost(self) -> Cost:
        """Every row has noise of its own: m rows cost √m times as much, whoever has them."""
        mu = 2 * calibrated(self, "clip") / calibrated(self, "sigma")
        return Cost(mu, mu, 0.5)

    @property
    def step(self) -> float | None:
        return calibrated(self, "sigma") * GRID

    @property
    def index_bound(self) -> int | None:
        amplitude, sigma = calibrated(self, "amplitude"), calibrated(self, "sigma")
        return math.ceil((amplitude / sigma + NORMAL_BOUND) / GRID) + 1

    def prepare(self, x: Tensor) -> Tensor:
        return prepare(x, self.centre, calibrated(self, "clip"))

    def restore(self, z: Tensor) -> Tensor:
        return z + self.centre

    def deviation(self, weight: Tensor) -> Tensor:
        return torch.full((len(weight),), calibrated(self, "sigma"), dtype=torch.float64)

    def possible_labels(self, y: Tensor) -> Tensor:
        return (y > 0).sum(1) == 1

    def plan(self, n: int, *, stream: Stream, units: Tensor | None = None) -> Trace:
        checks.enough_rows(n)
        check_units(self, n, units)
        return Trace(torch.empty(n, 0, dtype=torch.int64), torch.ones(n, 1))

    def encode(self, rows: Rows, index: Tensor, trace: Trace, *, stream: Stream) -> Batch:
        own = rows.take(index)
        sigma, bound = calibrated(self, "sigma"), self.index_bound or 0
        x = stream.normal(len(index), own.x[0].numel()).mul_(sigma).add_(self.prepare(own.x))
        x = x.div_(sigma * GRID).round_().clamp_(-bound, bound).to(stored_dtype(bound))
        return Batch(x.view(own.x.shape), own.y)
