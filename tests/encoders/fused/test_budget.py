"""The bounds are those of their terms, added up one by one at many radii, and not much larger."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mixveil.encoders.fused import budget

SINGLE, DOUBLE = 2.0**-24, 2.0**-53
SIZES = [(512.0, 300.0), (1e-3, 200.0), (40.0, 0.0), (600.0, 20_000.0)]


def off(logarithm: float, error: float) -> float:
    """By how much √(2·logarithm) may be off, if the logarithm is off by `error`."""
    radius = math.sqrt(2 * logarithm)
    return max(abs(math.sqrt(2 * max(0.0, logarithm + sign * error)) - radius) for sign in (1, -1))


def single_at(word: int, scale: float, reach: float) -> float:
    """What the float32 kernel may be off by, at a word of the radius: the steps of `kernels`, in their order."""
    u = (word + 0.5) / 2**32
    logarithm = -math.log(u)
    error = 2 * SINGLE + 2.0**-33 / u  # u itself, and the bits that follow
    error += 2.0**-22 * (math.log(2) if u > 0.5 else logarithm) + 2 * SINGLE * logarithm
    radius = math.sqrt(2 * logarithm)
    radius_off = off(logarithm, error) + 2.0**-23 * radius
    angle_off = 3 * SINGLE * math.pi + 2 * math.pi * 2.0**-32 + 2.0**-20.5
    noise = (radius + radius_off) * (1 + angle_off) * (1 + SINGLE) ** 4 - radius
    return float(scale * noise + 6 * SINGLE * reach + SINGLE)


@pytest.mark.parametrize(("scale", "reach"), SIZES)
def test_the_bound_of_float32_covers_its_terms_at_every_radius(scale: float, reach: float) -> None:
    words = np.unique(np.geomspace(budget.LOW, budget.HIGH - 1, 4000).astype(np.int64)).tolist()
    words += [budget.HIGH - 1 - round(gap) for gap in np.geomspace(1, 1 << 31, 2000)]
    words += [(1 << 31) - 1, 1 << 31]
    most = max(single_at(word, scale, reach) for word in words)
    assert most <= budget.single(scale, reach) <= 1.05 * most


def double_at(u: float, scale: float, reach: float) -> float:
    logarithm = -math.log(u) if u < 0.5 else -math.log1p(u - 1)
    radius = math.sqrt(2 * logarithm)
    known = 64 if 2.0**-16 <= u <= 1 - 2.0**-16 else 96
    bits = 2.0**-known / u / radius  # those that follow
    return scale * (bits + (16 / 2 + 32 + 4 + 2) * DOUBLE * radius) + 10 * DOUBLE * reach + DOUBLE


@pytest.mark.parametrize(("scale", "reach"), SIZES)
def test_the_bound_of_float64_covers_its_terms_at_every_radius(scale: float, reach: float) -> None:
    ends = np.geomspace(2.0**-44, 0.5, 4000).tolist()
    most = max(double_at(u, scale, reach) for u in (*ends, *(1 - np.array(ends)).tolist()))
    assert most <= budget.double(scale, reach)


def test_words_that_float32_uses_have_the_radii_of_the_proof() -> None:
    shortest, longest = (
        math.sqrt(-2 * math.log((k + end) / 2**32)) for k, end in ((budget.HIGH - 1, 1), (budget.LOW, 0))
    )
    assert shortest > 0.044 and longest < 4.08
