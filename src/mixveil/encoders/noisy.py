"""What the encoders with Gaussian noise share: their settings, how records enter, and the conditions of μ."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError, PixelError
from mixveil.core.types import Encoder, Fact, Facts, Guarantee, Mu
from mixveil.encoders.grid import stored_dtype
from mixveil.encoders.linear import Linear
from mixveil.theory import clipping

NO_TARGET = "say what to ask for: --mu (certified) or --tau (Theorem 2), one of the two"
EXAMPLE = Facts(
    {
        name: Fact(value, "range")
        for name, value in {"dimension": 16.0, "centre": 0.5, "amplitude": 0.5, "clip": 2.0}.items()
    }
)
"""Of rows of 16 values in [0, 1]."""


def gdp_conditions(unit_rows: int) -> dict[str, str]:
    """What μ rests on, for a unit of at most so many rows; in codes (`core/wording/releases.py`)."""
    neighbours = "replace-record" if unit_rows == 1 else "replace-unit"
    return {"neighbours": neighbours, "attacker": "knows-all-else", "noise": "gaussian-secure"}


@dataclass(frozen=True, kw_only=True)
class Noisy(Linear):
    """An encoder that clips records and covers them by calibrated noise. clip bounds a record's norm once the centre is
    subtracted, amplitude its single values; sigma is the noise of a value, unit_rows the most rows that a unit has."""

    centre: float
    clip: float
    amplitude: float
    sigma: float
    unit_rows: int = 1
    unpromised: ClassVar[tuple[str, ...]] = ()
    covers: ClassVar[int] = 0

    def __post_init__(self) -> None:
        for name, value in (("clip", self.clip), ("amplitude", self.amplitude), ("sigma", self.sigma)):
            checks.size(name, checks.finite_positive(name, value))
        checks.at_least("unit_rows", self.unit_rows, 1)
        checks.place("centre", self.centre)

    def prepare(self, x: Tensor) -> Tensor:
        return prepare(x, self.centre, self.clip)

    def restore(self, z: Tensor) -> Tensor:
        return z + self.centre

    def check_units(self, n: int, units: Tensor | None) -> None:
        """Refuse units of more rows than the noise was calibrated for."""
        if units is None:
            return
        if len(units) != n:
            raise ArgumentError(f"{len(units)} units are given for {n} rows")
        largest = int(units.bincount().max())
        if largest > self.unit_rows:
            raise ArgumentError(f"a unit has {largest} rows, and the noise is for units of up to {self.unit_rows}")


def certified(encoder: Encoder, target: Mu, facts: Facts) -> tuple[Guarantee, ...]:
    """The claims of an encoder that was calibrated for μ, with where the facts came from; none may be private."""
    for name in ("dimension", "centre", "amplitude", "clip"):
        facts.certified(name)
    origins = {name: facts.origin(name) for name in ("centre", "clip", "amplitude")}
    return tuple(
        replace(c, nominal=target.value if c.name == "gdp" else c.nominal, assumes={**c.assumes, **origins})
        for c in encoder.claims().values()
    )


def on_grid(x: Tensor, bound: int) -> Tensor:
    """Values in steps of the grid as the integers that are stored; x is overwritten."""
    return x.round_().clamp_(-bound, bound).to(stored_dtype(bound))


def check_noise(sigma: float) -> float:
    """Refuse more noise than float32 can hold."""
    if sigma > 1e30:
        raise ArgumentError(f"sigma = {sigma:g} is more noise than a release can hold")
    return sigma


def prepare(x: Tensor, centre: float, clip: float) -> Tensor:
    """(m, d) float64: centred, and scaled down so that no row is longer than `clip`, in exact arithmetic."""
    z, factor = centred(x, centre, clip)
    return z.mul_(factor)


def centred(x: Tensor, centre: float, clip: float) -> tuple[Tensor, Tensor]:
    """(m, d) float64 centred records, and (m, 1) by what to multiply each so that none is longer than `clip`, in exact
    arithmetic: `theory.clipping.factors`."""
    z = x.flatten(1).to(torch.float64, copy=True).sub_(centre)
    norm = torch.linalg.vector_norm(z, dim=1)
    if not bool(norm.isfinite().all()):  # it would come out without any noise
        raise PixelError(f"record {int(norm.isfinite().logical_not().nonzero()[0, 0])} of a block is not finite")
    return z, clipping.factors(norm, z.shape[1], clip)[:, None]
