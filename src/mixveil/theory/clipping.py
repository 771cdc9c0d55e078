"""Clipping that holds in exact arithmetic, and contributions to sums in whole numbers.

Formal guarantees, for float64 rows of d < 2⁴⁰ values. A norm is that of the stored values, computed without rounding;
docs/exactness.md has the proofs.

- `factors`: a row times its factor is at most clip·(1 − 2⁻⁴¹) long, whether the products are rounded to float64 or not.
- `whole`: rows of whole numbers, none longer than `radius`: rounding k values moves a row by √k/2 at most, and rows are
  scaled to that much less before.
- `units_total`: the sum of what units contribute. If any two of them, scaled to norm r at most, are κ·r apart at most,
  κ ≥ √2, then replacing one by another moves the total by κ·radius at most.
- `gradients`: outer products of whole numbers, none longer than a power of two.
- `exact_product`, `scores`: products of matrices without rounding on the way. So a row's scores and what it adds to a
  sum follow from that row alone, whatever other rows there are and wherever it stands among them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError

MARGIN = 2.0**-40
"""Of a clip norm: what rounding may cost."""

MOST_BITS = 32
"""A clip norm is at most 2³² steps of the grid."""

MOST_UNITS = 1 << 29
"""Fewer units are summed: 2²⁹ · √2 · 2³² and the noise stay below 2⁶³."""

_SMALLEST = 1e-140  # of the norms that are told apart: the square of a smaller one may underflow
_EXACT = 1 << 53  # float64 has all whole numbers up to here
_FINE = 2.0**25  # the product of two rows of this length is below it


def factors(norm: Tensor, values: int, clip: float, largest: float = 1.0) -> Tensor:
    """By what to multiply rows so that none is longer than `clip`: at most `largest`, and 0 where a norm is not finite.

    norm: of float64 rows of so many values, as torch computes it.
    """
    most = max(0.0, clip) * (1 - MARGIN - values * 2.0**-52)
    return torch.where(norm.isfinite(), (most / norm.clamp(min=_SMALLEST)).clamp_(max=largest), 0.0)


def whole(x: Tensor, radius: float, scale: float = 1.0) -> Tensor:
    """(m, k) float64 rows of whole numbers: x times `scale`, rounded, and no row longer than `radius`. A row that is
    not finite is 0."""
    return _whole(x, torch.linalg.vector_norm(x, dim=1), radius, scale)


def _whole(x: Tensor, norm: Tensor, radius: float, scale: float) -> Tensor:
    by = factors(norm, x.shape[1], radius - _moved(x.shape[1]), scale)
    if not bool(norm.isfinite().all()):
        x = x.nan_to_num(0.0, 0.0, 0.0)
    return (x * by[:, None]).round_()


def _moved(values: int) -> float:
    """√k/2 or a little more: how far rounding moves a row."""
    return (math.isqrt(values) + 1) / 2


def units_total(joint: Tensor, radius: float) -> Tensor:
    """(…) int64: the sum of what units contribute, (units, …) int64, each no longer than `radius`.

    Each is 3·√k/2 shorter before it is rounded: rounding moves two of them apart by √k at most, and κ·3·√k/2 is more.
    """
    flat = joint.flatten(1).double()
    rounded = whole(flat, radius - 2 * _moved(flat.shape[1]))
    total = torch.zeros(flat.shape[1], dtype=torch.int64)
    for some in torch.split(rounded, _EXACT >> MOST_BITS + 2):  # so many add up exactly
        total += some.sum(0).long()
    return total.view(joint.shape[1:])


def directions(x: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """(m, k) whole numbers, each row about as long as `radius` and no longer, and (m,) sizes: x is about their product.
    A row of zeros, and one that is not finite, stays 0."""
    norm = torch.linalg.vector_norm(x, dim=1)
    return _whole(x, norm, radius, math.inf), norm / (radius - _moved(x.shape[1]))


def scores(x: Tensor, weight: Tensor) -> Tensor:
    """(m, p) x weight to about 24 bits, for x (m, k) and weight (k, p) of float64. Each row follows from that row of x
    alone."""
    (rows, sizes), (columns, lengths) = directions(x, _FINE), directions(weight.T, _FINE)
    return (rows @ columns.T) * (sizes[:, None] * lengths)


def gradients(wrong: Tensor, z: Tensor, clip: float, bits: int, most: int | None = None) -> tuple[Tensor, Tensor]:
    """Whole numbers (m, p) and (m, q) whose outer products are those of `wrong` and z in steps of clip·2⁻ᵇⁱᵗˢ, none
    longer than 2ᵐᵒˢᵗ (None: the clip norm, 2ᵇⁱᵗˢ): the norm of an outer product is the product of both norms."""
    most = bits if most is None else most
    right, sizes = directions(z, 2.0 ** (bits // 2))
    return whole(wrong * sizes[:, None], 2.0 ** (most - bits // 2), 2.0**bits / clip), right


def exact_product(left: Tensor, right: Tensor, bits: int) -> Tensor:
    """(p, q) int64, leftᵀ right without rounding. left, right: (m, p) and (m, q) whole numbers, where no outer product
    of two rows is longer than 2ᵇⁱᵗˢ; so every sum on the way is a whole number below 2⁵³, which float64 has."""
    total = torch.zeros(left.shape[1], right.shape[1], dtype=torch.int64)
    rows = max(1, _EXACT >> (bits + 1))
    for one, other in zip(torch.split(left, rows), torch.split(right, rows), strict=True):
        total += (one.T @ other).long()
    return total


def grid_bits(clip: float, sigma: float) -> int:
    """s: contributions, noise and sums are in steps of clip·2⁻ˢ. From public figures alone: 32, or fewer where the
    noise is larger than the clip norm, so that it is less than 2³² steps.

    >>> grid_bits(1.0, 0.5), grid_bits(1.0, 2.0), grid_bits(3.0, 3e12)
    (32, 30, 0)
    """
    return max(0, MOST_BITS - max(0, math.frexp(sigma / clip)[1]))


def check_units(units: int) -> int:
    """Refuse more units than sums in 64 bits have room for. Their number is public."""
    if units >= MOST_UNITS:
        raise ArgumentError(f"sums are over fewer than {MOST_UNITS:,} units, got {units:,}: sum them in parts")
    return units
