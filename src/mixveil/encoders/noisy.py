"""What the encoders with Gaussian noise share: their settings, how records enter, and the conditions of μ."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError, PixelError
from mixveil.core.randomness import Stream
from mixveil.core.rounded_normals import Mean
from mixveil.core.types import Encoder, Fact, Facts, Guarantee, Mu
from mixveil.encoders.fused import encoding as fused
from mixveil.encoders.fused.mixture import Keystream, Mixture
from mixveil.encoders.grid import GRID, stored_dtype
from mixveil.encoders.linear import Linear
from mixveil.theory import clipping

_SLACK = 1e-6  # a public bound leaves room for the rounding of what it bounds
_ROUNDED = 2.0**-45  # covered by the margin of σ
_LEAST = 2.0**-100
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
    return {"neighbours": neighbours, "attacker": "knows-all-else", "noise": "gaussian-exact"}


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

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def step(self) -> float | None: ...

    @property
    @abstractmethod
    def index_bound(self) -> int | None: ...

    def prepare(self, x: Tensor) -> Tensor:
        return prepare(x, self.centre, self.clip)

    def restore(self, z: Tensor) -> Tensor:
        return z + self.centre

    def inside(self, x: Tensor) -> Tensor:
        """(m,) which rows lie in the range that the public facts state."""
        least, most = self.centre - self.amplitude, self.centre + self.amplitude
        low, high = x.aminmax()
        if least <= float(low) and float(high) <= most:  # as a rule; row by row takes longer
            return torch.ones(len(x), dtype=torch.bool, device=x.device)
        return (least <= x.amin(1).double()) & (x.amax(1).double() <= most)

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


def on_gpu(device: torch.device) -> bool:
    """Whether the noise of rows that lie there is drawn there."""
    return device.type == "cuda" and fused.available(device)


def on_grid(
    encoder: Noisy, sources: Sequence[Tensor], shares: Sequence[Tensor], scale: Tensor, most: float, stream: Stream
) -> Tensor:
    """(m, …) integers: exactly those nearest to Σ share · clipped source + σ · scale · N in steps of the grid, for
    exactly normal N. In memory; noise is drawn where the sources lie, if that can be.

    Args:
        sources: (m, …) float32 each.
        shares: (m,) float64 each; those of a row sum to one.
        scale: (m,) float64, `most` at most.
    """
    step, bound = encoder.step, encoder.index_bound
    if step is None or bound is None:
        raise ArgumentError(f"the noise of {encoder.name} has no grid")
    x = [source.flatten(1).float().contiguous() for source in sources]
    if not on_gpu(x[0].device):
        x = [z.cpu() for z in x]
    inside = [encoder.inside(z) for z in x]
    never = encoder.amplitude * math.sqrt(x[0].shape[1]) <= encoder.clip * (1 + _ROUNDED)  # is a record clipped
    weights = [share.to(x[0].device) / step for share in shares]
    all_inside = all(bool(rows.all()) for rows in inside)
    if not (all_inside and never):  # by rows: no record changes what becomes of another
        for w, z, kept in zip(weights, x, inside, strict=True):
            w *= torch.where(kept & never, 1.0, factors(z, encoder.centre, encoder.clip))
    # No value of a clipped record is larger than the record: there the range does not matter.
    bounded = (all_inside or encoder.amplitude >= encoder.clip) and all(map(_fits, weights))
    largest = (encoder.amplitude + 2 * abs(encoder.centre)) / step * (1 + _SLACK)
    terms = _Terms(x, weights, scale / GRID, encoder.centre, most / GRID, largest if bounded else None, bound)
    out = _rounded_on_gpu(terms, stream) if on_gpu(x[0].device) else _rounded(terms, stream)
    return out.view(sources[0].shape)


class _Terms(NamedTuple):
    """The values to round, in steps of the grid. most, reach: public bounds of the noise and of the means, as
    `Mean.largest`; bound: of what is released."""

    x: list[Tensor]
    weights: list[Tensor]
    scale: Tensor
    centre: float
    most: float
    reach: float | None
    bound: int


def _rounded(terms: _Terms, stream: Stream) -> Tensor:
    x, weights = (tuple(part.numpy() for part in parts) for parts in (terms.x, terms.weights))
    out = torch.empty(terms.x[0].shape, dtype=stored_dtype(terms.bound))
    mean = Mean(x, weights, terms.centre, terms.reach)
    stream.round_noisy(out, terms.scale.numpy(), mean, most=terms.most, bound=terms.bound)
    return out


def _rounded_on_gpu(terms: _Terms, stream: Stream) -> Tensor:
    """Under a key of its own, with a cipher that a GPU is fast at."""
    own, *others = terms.x
    if len(others) > 1:
        raise ArgumentError(f"a GPU mixes at most 2 sources, got {len(terms.x)}")
    mixture = Mixture(
        own=own,
        other=others[0] if others else None,
        partner=torch.arange(len(own), device=own.device) if others else None,
        factors=torch.stack(terms.weights, dim=1),
        scale=terms.scale.to(own.device),
        centre=terms.centre,
        most=terms.most,
        reach=terms.reach,
        bound=terms.bound,
    )
    keystream = Keystream(stream.key("noise"), "philox" if stream.reproducible else "chacha20")
    return fused.encoded(mixture, keystream).cpu()


def _fits(weight: Tensor) -> bool:
    """Whether float32 holds them with all of its digits."""
    low, high = weight.aminmax()
    return float(low) > _LEAST and float(high) < 1 / _LEAST


def check_noise(sigma: float) -> float:
    """Refuse more noise than float32 can hold."""
    if sigma > 1e30:
        raise ArgumentError(f"sigma = {sigma:g} is more noise than a release can hold")
    return sigma


def prepare(x: Tensor, centre: float, clip: float) -> Tensor:
    """(m, d) float64: centred, and scaled down so that no row is longer than `clip`, in exact arithmetic."""
    return (x.flatten(1).to(torch.float64, copy=True) - centre).mul_(factors(x.flatten(1), centre, clip)[:, None])


def factors(x: Tensor, centre: float, clip: float) -> Tensor:
    """(m,) float64: by what to multiply centred records so that none is longer than `clip`, in exact arithmetic:
    `theory.clipping.factors`."""
    norm: Tensor = torch.linalg.vector_norm(x.to(torch.float64, copy=True).sub_(centre), dim=1)
    if not bool(norm.isfinite().all()):  # it would come out without any noise
        raise PixelError(f"record {int(norm.isfinite().logical_not().nonzero()[0])} of a block is not finite")
    return clipping.factors(norm, x.shape[1], clip)
