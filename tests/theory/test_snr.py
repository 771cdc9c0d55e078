from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.theory import snr


def test_the_three_calibrations_as_printed() -> None:
    d, energy, lambda_max, alpha, tau = 50, 7.0, 2.0, 0.7, 0.1
    factor = alpha**2 / (tau * (1 - alpha) ** 2) - 1
    for name, r_squared in (
        ("theorem", d * energy * factor),
        ("spectral", d * lambda_max * factor),
        ("energy", energy * factor),
    ):
        signal = snr.signal_bound(name, dimension=d, energy=energy, lambda_max=lambda_max)  # type: ignore[arg-type]
        assert d * snr.noise_variance(tau, alpha, signal) == pytest.approx(r_squared)


@given(tau=st.floats(1e-6, 1), alpha=st.floats(0.51, 0.99), lambda_max=st.floats(1e-3, 1e3), spread=st.floats(1, 100))
def test_theorem_and_spectral_keep_their_promise_and_spectral_exactly(
    tau: float, alpha: float, lambda_max: float, spread: float
) -> None:
    sigma = math.sqrt(snr.noise_variance(tau, alpha, lambda_max))
    assert snr.directional_snr(lambda_max, sigma, alpha) == pytest.approx(tau, rel=1e-9)
    more = math.sqrt(snr.noise_variance(tau, alpha, lambda_max * spread))  # V ≥ λ_max
    assert snr.directional_snr(lambda_max, more, alpha) <= tau * (1 + 1e-9)


def test_energy_does_not_keep_it() -> None:
    sigma = math.sqrt(snr.noise_variance(0.1, 0.7, 10.0 / 100))  # V = 10 over 100 dimensions, λ_max = 5
    assert snr.directional_snr(5.0, sigma, 0.7) > 1


def test_no_direction_exceeds_the_supremum() -> None:
    """Monte Carlo twin, on skewed records, at own weight α."""
    stream = SeededStream(1)
    scales = torch.tensor([2.0, 1.0, 0.2], dtype=torch.float64)
    own, partner = stream.normal(2, 100_000, 3) * scales
    rows_noise = 0.3 * (partner + 1.5 * stream.normal(100_000, 3))
    bound = snr.directional_snr(4.0, 1.5, 0.7)
    for direction in [torch.eye(3, dtype=torch.float64)[0], *torch.nn.functional.normalize(stream.normal(20, 3))]:
        measured = (0.7 * own @ direction).square().mean() / (rows_noise @ direction).square().mean()
        assert float(measured) < bound * 1.03
    best = (0.7 * own[:, 0]).square().mean() / rows_noise[:, 0].square().mean()
    assert float(best) == pytest.approx(bound, rel=0.03)


def test_the_average_row() -> None:
    weight = torch.tensor([[0.6, 0.4], [0.5, 0.5]])
    assert snr.mean_directional_snr(2.0, 1.0, weight) == pytest.approx((0.61 / 0.41) * 2 / 3)
    assert snr.mean_directional_snr(0.0, 1.0, weight) == snr.directional_snr(0.0, 1.0, 0.6) == 0.0


@pytest.mark.parametrize("tau", [0.0, -1.0, 3.0, math.nan])
def test_bad_tau_is_named(tau: float) -> None:
    with pytest.raises(ArgumentError, match=r"tau must be in \(0, 1\], got"):
        snr.noise_variance(tau, 0.7, 1.0)


def test_what_needs_no_noise_or_has_no_signal_is_said() -> None:
    with pytest.raises(ArgumentError, match="without any noise"):
        snr.noise_variance(1.0, 0.5, 1.0)
    with pytest.raises(ArgumentError, match="do not vary"):
        snr.noise_variance(0.1, 0.7, 0.0)
    with pytest.raises(ArgumentError, match="displacement bounds no variance"):
        snr.signal_bound("displacement", dimension=1, energy=1, lambda_max=1)
    with pytest.raises(ArgumentError, match="calibration must be"):
        snr.signal_bound("wish", dimension=1, energy=1, lambda_max=1)  # type: ignore[arg-type]
