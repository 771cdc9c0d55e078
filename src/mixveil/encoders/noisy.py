"""What the encoders with noise share: the records' way in, the conditions of μ, and settings that must be set first."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError, NotCalibratedError, PixelError

NO_TARGET = "say what to ask for: --mu (certified) or --tau (Theorem 2), one of the two"


def gdp_conditions(unit_rows: int) -> dict[str, str]:
    """What μ rests on, for a unit of at most so many rows; in codes (`core/wording/releases.py`)."""
    neighbours = "replace-record" if unit_rows == 1 else "replace-unit"
    return {"neighbours": neighbours, "attacker": "knows-all-else", "noise": "gaussian-secure"}


def check_settings(encoder: Any) -> None:
    """The figures that `calibrate` sets: sizes that can be counted with, and where the records lie."""
    for name in ("clip", "amplitude", "sigma"):
        if (value := getattr(encoder, name)) is not None:
            checks.size(name, checks.positive(name, value))
    checks.at_least("unit_rows", encoder.unit_rows, 1)
    checks.place("centre", encoder.centre)


def check_noise(sigma: float) -> float:
    """Refuse more noise than float32 can hold."""
    if sigma > 1e30:
        raise ArgumentError(f"sigma = {sigma:g} is more noise than a release can hold")
    return sigma


def calibrated(encoder: Any, name: str) -> float:
    """A figure that must have been set."""
    value: float | None = getattr(encoder, name)
    if value is None:
        raise NotCalibratedError(f"{encoder.name} has no {name} yet: calibrate it first")
    return value


def check_units(encoder: Any, n: int, units: Tensor | None) -> None:
    """Refuse rows of which more belong to one unit than the noise was calibrated for."""
    if units is None:
        return
    if len(units) != n:
        raise ArgumentError(f"{len(units)} units are given for {n} rows")
    largest = int(units.bincount().max())
    if largest > encoder.unit_rows:
        raise ArgumentError(f"a unit has {largest} rows, and the noise is for units of up to {encoder.unit_rows}")


def prepare(x: Tensor, centre: float, clip: float) -> Tensor:
    """(m, d) float64: centred, and scaled down to norm `clip` where it is longer."""
    z, factor = centred(x, centre, clip)
    return z.mul_(factor)


def centred(x: Tensor, centre: float, clip: float) -> tuple[Tensor, Tensor]:
    """(m, d) float64 centred records, and (m, 1) by what to multiply each so that none is longer than `clip`."""
    z = x.flatten(1).to(torch.float64, copy=True).sub_(centre)
    norm = torch.linalg.vector_norm(z, dim=1, keepdim=True)
    if not bool(norm.isfinite().all()):  # it would come out without any noise
        raise PixelError(f"record {int(norm.isfinite().logical_not().nonzero()[0, 0])} of a block is not finite")
    return z, (clip / norm).clamp_(max=1)
