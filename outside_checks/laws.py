"""The laws of integers that noise is drawn from, with 60 digits, and tests of draws against them. Nothing here is from
the package that is checked."""

from __future__ import annotations

import math
from collections.abc import Sequence

import mpmath
import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_DIGITS = 60
_LEAST = 20.0  # draws that a cell must expect


def rounded_gaussian(scale: float, largest: int) -> list[mpmath.mpf]:
    """P(round(scale · N) = i) for i = −largest … largest: exact cells of a rounded normal."""
    with mpmath.workdps(_DIGITS):
        root = mpmath.mpf(scale) * mpmath.sqrt(2)
        tails = [mpmath.erfc((mpmath.mpf(i) - 0.5) / root) / 2 for i in range(largest + 2)]
        positive = [tails[i] - tails[i + 1] for i in range(1, largest + 1)]
        return [*reversed(positive), 1 - 2 * tails[1], *positive]


def discrete_gaussian(scale: float, largest: int) -> list[mpmath.mpf]:
    """P(i) ∝ exp(−i²/(2 scale²)) for i = −largest … largest: the law of Canonne, Kamath and Steinke, which is another
    one. largest must leave nothing that counts beyond it."""
    with mpmath.workdps(_DIGITS):
        half = 1 / (2 * mpmath.mpf(scale) ** 2)
        positive = [mpmath.exp(-half * i * i) for i in range(1, largest + 1)]
        total = 1 + 2 * mpmath.fsum(positive)
        positive = [value / total for value in positive]
        return [*reversed(positive), 1 / total, *positive]


def total_variation(one: Sequence[mpmath.mpf], other: Sequence[mpmath.mpf]) -> float:
    """Half the sum of all differences."""
    with mpmath.workdps(_DIGITS):
        return float(mpmath.fsum(abs(a - b) for a, b in zip(one, other, strict=True)) / 2)


def cells(law: Sequence[mpmath.mpf], n: int) -> tuple[Integers, Floats]:
    """Neighbouring integers, put together until n draws are expected to fall into each cell at least 20 times: the
    first integer of each cell but the first, and each cell's probability. The outermost cells have the tails."""
    largest = len(law) // 2
    starts: list[int] = []
    sizes: list[float] = []
    held = 0.0
    for place, probability in enumerate(law):
        held += float(probability)
        if held * n >= _LEAST:
            sizes.append(held)
            starts.append(place + 1 - largest)
            held = 0.0
    sizes[-1] = 1 - math.fsum(sizes[:-1])
    return np.array(starts[:-1], np.int64), np.array(sizes)


def counted(draws: Integers, starts: Integers) -> Integers:
    """How many draws fall into each cell."""
    return np.bincount(np.searchsorted(starts, draws, side="right"), minlength=len(starts) + 1)


def chi_square(seen: Integers, probabilities: Floats) -> float:
    """Pearson's p-value: of a statistic as large as this, where the draws follow the probabilities."""
    expected = probabilities * seen.sum()
    return float(chi2.sf(((seen - expected) ** 2 / expected).sum(), len(seen) - 1))


def residues(law: Sequence[mpmath.mpf], modulus: int) -> Floats:
    """The probability of each remainder: what low bits must look like."""
    largest = len(law) // 2
    with mpmath.workdps(_DIGITS):
        sums = [mpmath.mpf(0)] * modulus
        for place, probability in enumerate(law):
            sums[(place - largest) % modulus] += probability
        return np.array([float(value) for value in sums])


def second_moment(draws: Integers, law: Sequence[mpmath.mpf]) -> tuple[float, float]:
    """The mean square of the draws over that of the law, which should be 1, and its standard error."""
    largest = len(law) // 2
    with mpmath.workdps(_DIGITS):
        square, fourth = (
            mpmath.fsum(probability * (place - largest) ** power for place, probability in enumerate(law))
            for power in (2, 4)
        )
        error = float(mpmath.sqrt((fourth - square**2) / len(draws)) / square)
    return float((draws.astype(np.float64) ** 2).mean() / float(square)), error
