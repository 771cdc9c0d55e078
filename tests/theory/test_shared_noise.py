from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf, ncdf, npdf

from mixveil.core.errors import ArgumentError
from mixveil.theory import shared_noise
from mixveil.theory.gdp import compose

MU = st.floats(0.01, 10)


@given(MU, st.integers(2, 1000), st.integers(1, 1000), st.floats(0.1, 10))
def test_both_figures_follow_from_the_variances(mu: float, honest: int, j: int, distance: float) -> None:
    """Slowly: add up the variances of the honest parties, and divide the distance by the deviation."""
    sigma = distance / mu
    variance = math.fsum(shared_noise.share(sigma, honest) ** 2 for _ in range(j))
    assert shared_noise.with_honest(mu, honest, j) == pytest.approx(distance / math.sqrt(variance))
    assert shared_noise.alone(mu, honest) == pytest.approx(compose([mu] * honest))
    assert shared_noise.with_honest(mu, honest, honest) == pytest.approx(mu)


@given(MU, st.integers(2, 20), st.integers(1, 20), st.integers(0, 20), st.floats(0.1, 10))
def test_a_record_at_several_parties(mu: float, honest: int, m: int, others: int, distance: float) -> None:
    """Slowly: add up what each party's part moves by, and the variances of the honest ones."""
    sigma = distance / mu
    moved = math.fsum(distance for _ in range(m))
    variance = math.fsum(shared_noise.share(sigma, honest) ** 2 for _ in range(m + others))
    found = shared_noise.at_several(mu, honest, m, m + others)
    assert found == pytest.approx(moved / math.sqrt(variance))
    bound = compose([shared_noise.alone(mu, honest)] * m)  # whatever the parties without it do
    assert found <= bound * (1 + 1e-12) and (others or found == pytest.approx(bound))
    assert m + others < honest or found <= m * mu * (1 + 1e-12)


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=1, max_size=9))
def test_the_same_for_parties_with_different_noise(parts: list[tuple[float, float]]) -> None:
    """Each part moves by its distance, under its own noise: their sum never costs more than all of them apart."""
    moved, noise = (math.fsum(column) for column in ([d for d, _ in parts], [s**2 for _, s in parts]))
    assert moved / math.sqrt(noise) <= compose(d / s for d, s in parts) * (1 + 1e-12)


def test_what_is_no_number_of_parties_is_refused() -> None:
    for honest, j in ((1, 1), (0, 1), (2, 0)):
        with pytest.raises(ArgumentError, match="must be at least"):
            shared_noise.with_honest(1.0, honest, j)
    with pytest.raises(ArgumentError, match="honest must be at least 2, got 1"):
        shared_noise.share(1.0, 1)
    with pytest.raises(ArgumentError, match="m must be at least 1, got 0"):
        shared_noise.at_several(1.0, 2, 0, 2)
    with pytest.raises(ArgumentError, match="j must be at least 3, got 2"):
        shared_noise.at_several(1.0, 2, 3, 2)
    with pytest.raises(ArgumentError, match="mu must be positive"):
        shared_noise.alone(0.0, 2)


def test_a_step_is_at_most_a_quarter_of_a_partys_noise() -> None:
    shared_noise.check_rounding(8.0, 4, 1.0)
    with pytest.raises(ArgumentError, match=r"step must be at most 1, a quarter .* \(8/√4\), got 1.01"):
        shared_noise.check_rounding(8.0, 4, 1.01)


def test_sums_stay_below_two_to_the_sixty_third() -> None:
    shared_noise.check_total(4, 2.0**60, 1.0)
    shared_noise.check_total(2, 2.0**61, 1.0)
    for parties, largest, step in ((2, 2.0**62, 1.0), (1 << 20, 2.0**43, 1.0), (3, 1.0, 2.0**-62)):
        with pytest.raises(ArgumentError, match="below 2\\^63"):
            shared_noise.check_total(parties, largest, step)


def rounded(sigma: float, shift: float, reach: int) -> list[mpf]:
    """The probabilities of a Gaussian around `shift`, rounded to whole numbers from −reach to reach."""
    edges = [ncdf((mpf(k) - mpf("0.5") - mpf(shift)) / mpf(sigma)) for k in range(-reach, reach + 2)]
    return [high - low for low, high in itertools.pairwise(edges)]


def rounded_at_random(x: mpf, sigma: mpf) -> mpf:
    """The same of a Gaussian of deviation σ to which two uniform errors were added, at 0: the second difference of the
    second integral of its density."""

    def twice(z: mpf) -> mpf:
        return z * ncdf(z / sigma) + sigma * npdf(z / sigma)

    return twice(x + 1) - 2 * twice(x) + twice(x - 1)


def worst_factor(sigma: float, shifts: tuple[float, float]) -> float:
    """How far the sum of two rounded Gaussians is from their sum rounded at random: a factor, up to 8 deviations."""
    reach = int(24 * sigma)
    first, second = (rounded(sigma, shift, reach) for shift in shifts)
    spread, worst = mpf(sigma) * mp.sqrt(2), mpf(0)
    for k in range(-int(8 * sigma), int(8 * sigma) + 1, 5):
        places = range(max(-reach, k - reach), min(reach, k + reach) + 1)
        exact = mp.fsum(first[a + reach] * second[k - a + reach] for a in places)
        worst = max(worst, abs(exact / rounded_at_random(mpf(k) - mpf(shifts[0]) - mpf(shifts[1]), spread) - 1))
    return float(worst)


@pytest.mark.parametrize("shifts", [(0.0, 0.0), (0.25, 0.375)])
def test_rounding_before_the_sum_is_almost_rounding_after_it(shifts: tuple[float, float]) -> None:
    with mp.workdps(180):
        assert worst_factor(shared_noise.LEAST_STEPS, shifts) < 1e-67
        assert worst_factor(1.0, shifts) > 1e-6  # with little noise it is not
