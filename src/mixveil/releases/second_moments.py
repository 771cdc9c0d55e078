"""Noisy second moments: with the class sums, all that a linear discriminant asks of the records.

    S = Σ z zᵀ + E,   ‖z‖ ≤ C,   E symmetric, N(0, σ²) on the diagonal and N(0, σ²/2) off it

Formal guarantee
- Replacing a record, its label with it, moves S by zzᵀ − z'z'ᵀ, whose Frobenius norm is at most √2 C². In the
  coordinates (diagonal, √2 times what is above it) that norm is Euclidean and E is N(0, σ²I): every record is μ-GDP,
  μ = √2 C²/σ, whatever else is known.
- The sum of a unit's records is clipped to norm C². Two such sums A and B have tr AB ≥ 0, so ‖A − B‖ ≤ √2 C² again: the
  same μ holds for a unit of any number of records.
- Squares, sums and noise are in whole steps of a grid, and clipped so that norms hold in exact arithmetic
  (`releases/contributions.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.randomness import Stream
from mixveil.features.projection import Projected, Projection
from mixveil.releases.contributions import square_total, unit_count
from mixveil.theory import clipping, gdp

_EDGE = 0.3  # of the public variance: how much noise may look like a direction's own variance
_ROOM = 1.25  # times the median public norm


@dataclass(frozen=True)
class Scatter:
    """second: (k, k) noisy sum of z zᵀ over so many rows, or units; variance: of the noise of an entry off the
    diagonal."""

    second: Tensor = field(repr=False)
    rows: int
    variance: float


def noisy(rows: Projected, k: int, mu: float, *, stream: Stream) -> Scatter:
    """The second moments of all rows in their first k directions, at μ for a record or for all records of a unit. Rows
    are clipped there once more, beyond the length of most public rows: so the means of the sums are still theirs."""
    clip = _ROOM * float(rows.projection.norms[k - 1])
    units, sigma = clipping.check_units(unit_count(rows)), gdp.sigma_of(math.sqrt(2) * clip**2, mu)
    bits = clipping.grid_bits(clip**2, sigma) & ~1
    step = math.ldexp(clip**2, -bits)
    second = square_total(rows, k, clip, bits) + _noise(k, sigma / step, stream)
    return Scatter(second.double() * step, units, sigma**2 / 2)


def _noise(k: int, sigma: float, stream: Stream) -> Tensor:
    """(k, k) int64, symmetric; sigma: of the diagonal, in steps."""
    upper = torch.zeros(k, k, dtype=torch.int64)
    upper[tuple(torch.triu_indices(k, k, 1))] = stream.rounded_normals(k * (k - 1) // 2, scale=sigma / math.sqrt(2))
    return upper + upper.T + stream.rounded_normals(k, scale=sigma).diag()


def directions(projection: Projection, *, parties: int, rows: int, mu: float) -> int:
    """The number of directions in which second moments can be told from their noise, which has eigenvalues up to twice
    the root of k times an entry's variance: from public figures alone."""
    k = torch.arange(1, projection.dimension + 1)
    entry = (_ROOM * projection.norms.double()).square() / checks.finite_positive("mu", mu) * math.sqrt(parties) / rows
    fits = (2 * k.sqrt() * entry <= _EDGE).nonzero()
    return int(fits[-1]) + 1 if len(fits) else 0
