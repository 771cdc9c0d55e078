"""Laws of integers against slow twins, and tests of samples that must notice what is false."""

from __future__ import annotations

from itertools import pairwise

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from outside_checks import laws


def drawn(n: int, scale: float, seed: int = 1) -> NDArray[np.int64]:
    return np.rint(np.random.default_rng(seed).standard_normal(n) * scale).astype(np.int64)


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.5])
def test_cells_of_a_rounded_gaussian_are_integrals_of_its_density(scale: float) -> None:
    law = laws.rounded_gaussian(scale, 100)
    for i in (-9, -1, 0, 1, 4):
        with mpmath.workdps(30):
            there = [mpmath.mpf(i) - 0.5, mpmath.mpf(i), mpmath.mpf(i) + 0.5]
            twin = mpmath.quad(lambda x: mpmath.npdf(x, 0, scale), there)
        assert float(abs(law[i + 100] - twin)) < 1e-20
    assert float(abs(mpmath.fsum(law) - 1)) < 1e-15


def test_the_discrete_gaussian_is_normalised_and_has_its_ratios() -> None:
    law = laws.discrete_gaussian(2.0, 60)
    assert float(abs(mpmath.fsum(law) - 1)) < 1e-15
    assert float(law[61] / law[60]) == pytest.approx(np.exp(-1 / 8))
    assert [float(value) for value in law] == pytest.approx([float(value) for value in reversed(law)])


def test_both_laws_come_together_as_the_scale_grows() -> None:
    apart = [
        laws.total_variation(laws.rounded_gaussian(s, round(14 * s)), laws.discrete_gaussian(s, round(14 * s)))
        for s in (0.5, 1.0, 8.0)
    ]
    at_zero = float(laws.discrete_gaussian(0.5, 7)[7])  # at scale ½ it is the only integer that has too much
    assert apart[0] == pytest.approx(at_zero - (norm.cdf(1) - norm.cdf(-1)), abs=1e-9)
    assert apart[0] > 5 * apart[1] > 100 * apart[2] > 0


def test_total_variation_of_two_coins() -> None:
    one, other = ([mpmath.mpf(p), 1 - mpmath.mpf(p)] for p in (0.25, 0.75))
    assert laws.total_variation(one, other) == 0.5
    assert laws.total_variation(one, one) == 0


def test_cells_hold_every_integer_once() -> None:
    law = laws.rounded_gaussian(5.0, 80)
    starts, probabilities = laws.cells(law, 10_000)
    assert (probabilities * 10_000 >= laws._LEAST - 1e-9).all()
    assert probabilities.sum() == pytest.approx(1, abs=1e-12)
    edges = [-np.inf, *(starts - 0.5), np.inf]
    twin = np.diff(norm.cdf(np.array(edges) / 5.0))
    assert probabilities == pytest.approx(twin, abs=1e-12)
    draws = drawn(10_000, 5.0)
    counts = [int(((draws > low) & (draws < high)).sum()) for low, high in pairwise(edges)]
    assert laws.counted(draws, starts).tolist() == counts


def test_residues_are_sums_of_cells() -> None:
    law = laws.rounded_gaussian(1.0, 20)
    twin = [sum(float(p) for i, p in enumerate(law, -20) if i % 3 == r) for r in range(3)]
    assert laws.residues(law, 3) == pytest.approx(twin)


def test_chi_square_keeps_what_is_true_and_refuses_what_is_false() -> None:
    law = laws.rounded_gaussian(4.0, 60)
    starts, probabilities = laws.cells(law, 200_000)

    def p(draws: NDArray[np.int64]) -> float:
        return laws.chi_square(laws.counted(draws, starts), probabilities)

    true = [p(drawn(200_000, 4.0, seed)) for seed in range(20)]
    assert min(true) > 1e-4
    assert max(true) > 0.5
    assert p(drawn(200_000, 3.9)) < 1e-7
    assert p(drawn(200_000, 4.0) // 2 * 2) < 1e-7


def test_the_mean_square_and_its_error() -> None:
    law = laws.rounded_gaussian(3.0, 50)
    samples = [laws.second_moment(drawn(20_000, 3.0, seed), law) for seed in range(40)]
    squares = np.array([square for square, _ in samples])
    assert abs(squares.mean() - 1) < 5 * samples[0][1] / np.sqrt(40)
    assert squares.std() == pytest.approx(samples[0][1], rel=0.4)
    square, error = laws.second_moment(drawn(200_000, 2.9), law)
    assert square < 1 - 5 * error
