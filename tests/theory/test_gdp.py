from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.theory import gdp


@settings(deadline=None)
@given(mu=st.floats(0.05, 8), eps=st.floats(0, 20))
def test_delta_is_the_hockey_stick_of_two_gaussians(mu: float, eps: float) -> None:
    """Slow twin: ∫ max(0, p − e^ε q) for p = N(μ, 1), q = N(0, 1); the integrand is positive beyond ε/μ + μ/2."""
    start = eps / mu + mu / 2
    value, _ = integrate.quad(
        lambda t: stats.norm.pdf(t, mu) - math.exp(eps + stats.norm.logpdf(t)), start, max(start, mu) + 12
    )
    assert gdp.delta(mu, eps) == pytest.approx(value, rel=1e-5, abs=1e-12)


@settings(deadline=None)
@given(mu=st.floats(0.01, 50), log_delta=st.floats(-12, -1))
def test_epsilon_inverts_delta(mu: float, log_delta: float) -> None:
    eps = gdp.epsilon(mu, 10**log_delta)
    assert gdp.delta(mu, eps) <= 10**log_delta * (1 + 1e-9)
    if eps > 1e-6:
        assert gdp.delta(mu, eps * (1 - 1e-6)) > 10**log_delta * (1 - 1e-6)


def test_tails_and_extremes() -> None:
    """Against 60-digit arithmetic."""
    assert gdp.delta(1.0, 8.874) == pytest.approx(2.903163359662483e-18, rel=1e-9)
    assert gdp.delta(1.0, 15.0) == pytest.approx(3.875123041693272e-49, rel=1e-9)
    assert gdp.member_tpr(0.5, 1e-20) == pytest.approx(9.5619e-19, rel=1e-4)
    assert gdp.epsilon(1e12) > 1e23


def test_the_figures_that_the_field_knows() -> None:
    assert [round(gdp.epsilon(mu), 1) for mu in (0.5, 1, 2)] == [2.0, 4.4, 10.0]


def test_membership_bound_is_that_of_the_likelihood_ratio() -> None:
    assert gdp.member_tpr(0.0, 0.3) == pytest.approx(0.3)
    for fpr in (1e-4, 0.01, 0.5):
        assert gdp.member_tpr(1.3, fpr) == pytest.approx(stats.norm.sf(stats.norm.isf(fpr) - 1.3))


@settings(deadline=None)
@given(mu=st.floats(0.01, 20), clip=st.floats(0.01, 100), alpha=st.floats(0.5, 0.99))
def test_sigma_for_inverts_mu_worst(mu: float, clip: float, alpha: float) -> None:
    assert gdp.mu_worst(clip, gdp.sigma_for(mu, clip, alpha), alpha) == pytest.approx(mu, rel=1e-12)


def test_no_record_exceeds_the_worst_case() -> None:
    weight = SeededStream(0).capped_weights(10_000, 0.7)
    records = gdp.mu_records(1.0, 2.0, weight)
    worst = gdp.mu_worst(1.0, 2.0, 0.7)
    assert float(records.max()) <= worst * (1 + 1e-7)
    assert float(records.max()) > 0.99 * worst
    slow = [2 * 1.0 / 2.0 * math.sqrt((w / v) ** 2 + 1) for w, v in weight[:10].tolist()]
    assert torch.allclose(records[:10], torch.tensor(slow, dtype=torch.float64))


@settings(deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.floats(0.5, 0.999))
def test_stated_figures_are_never_too_small(mu: float, clip: float, alpha: float) -> None:
    """Squared, in exact rationals."""
    factor = 1 + (Fraction(alpha) / (1 - Fraction(alpha))) ** 2
    sigma = gdp.sigma_for(mu, clip, alpha)
    exact = (2 * Fraction(clip) / Fraction(sigma)) ** 2 * factor
    assert exact <= Fraction(mu) ** 2
    assert exact <= Fraction(gdp.mu_worst(clip, sigma, alpha)) ** 2 <= exact * (1 + Fraction(1, 1 << 38))
    assert Fraction(2 * clip) <= Fraction(gdp.sigma_of(2 * clip, mu)) * Fraction(mu)
    assert Fraction(2 * clip) <= Fraction(gdp.mu_of(2 * clip, sigma)) * Fraction(sigma)
    weight = SeededStream(0).capped_weights(20, alpha)
    for found, (own, partner) in zip(gdp.mu_records(clip, sigma, weight).tolist(), weight.tolist(), strict=True):
        of_weights = 1 + (Fraction(own) / Fraction(partner)) ** 2
        assert (2 * Fraction(clip) / Fraction(sigma)) ** 2 * of_weights <= min(Fraction(found), Fraction(mu)) ** 2


def test_composition() -> None:
    assert gdp.compose([3.0, 4.0]) == 5.0
    assert gdp.compose([]) == 0.0


@pytest.mark.parametrize("mu", [-1.0, 0.0, math.nan, math.inf])
def test_bad_mu_is_named(mu: float) -> None:
    with pytest.raises(ArgumentError, match="mu must be"):
        gdp.sigma_for(mu, 1.0, 0.55)


@settings(deadline=None)
@given(mu=st.floats(0.05, 8), share=st.floats(0, 1), rounds=st.integers(1, 20))
def test_a_record_taken_out_of_sums(mu: float, share: float, rounds: int) -> None:
    """Slow twin: the noise of every message, and the farthest that zeroing one record moves it."""
    clip, first = 3.0, mu * math.sqrt(share)
    each, gradient = mu * math.sqrt((1 - share) / rounds), 0.2
    moved = [math.hypot(clip, clip) / (2 * clip / first)] if first else []  # the row, and its count
    moved += [gradient / (2 * gradient / each)] * rounds if each else []
    assert gdp.taken_out(mu, share) == pytest.approx(gdp.compose(moved), rel=1e-9)
    assert mu / 2 * (1 - 1e-9) <= gdp.taken_out(mu, share) <= mu / math.sqrt(2) * (1 + 1e-9)


def test_taken_out_as_it_is_run() -> None:
    assert gdp.taken_out(1.0, 0.2) == pytest.approx(math.sqrt(0.3))
    assert gdp.epsilon(gdp.taken_out(1.0, 0.2)) == pytest.approx(2.2, abs=0.05)
    for wrong in ((0.0, 0.2), (-1.0, 0.2), (math.inf, 0.2), (1.0, -0.1), (1.0, 1.1), (1.0, math.nan)):
        with pytest.raises(ArgumentError, match="must be"):
            gdp.taken_out(*wrong)


@settings(deadline=None)
@given(mu=st.floats(0.1, 2), log_delta=st.floats(-10, -2))
def test_a_record_replaced_is_one_out_and_one_in(mu: float, log_delta: float) -> None:
    """Two neighbours at μ are a pair at 2μ at most: the bound must hold for it, and be no better than one step."""
    delta = 10**log_delta
    epsilon = gdp.epsilon(mu, delta)
    twice, larger = gdp.replaced(epsilon, delta)
    assert gdp.delta(2 * mu, twice) <= larger * (1 + 1e-9)
    assert twice == 2 * epsilon and larger == pytest.approx(min(1.0, delta + math.exp(epsilon) * delta))


def test_what_promises_nothing_when_replaced() -> None:
    assert gdp.replaced(1e4, 1e-5) == (2e4, 1.0)
    for wrong in ((-1.0, 1e-5), (math.nan, 1e-5), (1.0, 0.0), (1.0, 1.5)):
        with pytest.raises(ArgumentError, match="must"):
            gdp.replaced(*wrong)
