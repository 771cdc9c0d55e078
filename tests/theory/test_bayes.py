from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mixveil.core.randomness import SeededStream
from mixveil.theory.bayes import certified_risk, known_risk, precisions, single_row_risk, whole_release_risk
from mixveil.theory.gdp import compose, sigma_for
from tests.made import mixing_matrix


@settings(deadline=None, max_examples=50)
@given(n=st.integers(1, 30), seed=st.integers(0, 10**6), log_sigma=st.floats(-2, 2))
def test_whole_release_risk_is_the_dense_posterior(n: int, seed: int, log_sigma: float) -> None:
    stream = SeededStream(seed)
    partner, weight, sigma = stream.permutation(n), stream.capped_weights(n, 0.8), 10**log_sigma
    eigenvalues = torch.tensor([3.0, 0.5, 0.0], dtype=torch.float64)
    risk = whole_release_risk(eigenvalues, partner, weight, sigma)
    matrix = mixing_matrix(partner, weight)
    precision = matrix.T @ torch.diag(1 / (weight[:, 1].double() * sigma) ** 2) @ matrix
    for column, value in enumerate((3.0, 0.5)):
        posterior = torch.linalg.inv(precision + torch.eye(n) / value).diagonal()
        assert torch.allclose(risk[:, column], posterior, rtol=1e-6)
    assert bool((risk[:, 2] == 0).all())


def test_single_row_risk_is_what_the_best_gain_leaves() -> None:
    """Monte Carlo twin: regress the record on its row."""
    stream = SeededStream(2)
    own, partner, noise = stream.normal(3, 400_000)
    variance, sigma, weight = 2.0, 0.7, torch.tensor([[0.6, 0.4]])
    record = own * variance**0.5
    row = 0.6 * record + 0.4 * (partner * variance**0.5 + sigma * noise)
    gain = (record @ row) / (row @ row)
    measured = float((record - gain * row).square().mean())
    risk = float(single_row_risk(torch.tensor([variance]), weight, sigma))
    assert abs(measured - risk) < 0.02


def test_more_rows_never_tell_less() -> None:
    stream = SeededStream(4)
    partner, weight = stream.derangement(50), stream.capped_weights(50, 0.7)
    eigenvalues = torch.tensor([5.0, 0.3])
    single = single_row_risk(eigenvalues, weight, 0.5)
    whole = whole_release_risk(eigenvalues, partner, weight, 0.5)
    assert bool((whole < single).all())
    assert bool((single < eigenvalues).all())


def test_without_variance_and_without_noise() -> None:
    weight = torch.tensor([[0.5, 0.5]])
    assert float(single_row_risk(torch.tensor([0.0]), weight, 0.0)) == 0.0


@settings(deadline=None, max_examples=30)
@given(n=st.integers(1, 12), seed=st.integers(0, 10**6), log_sigma=st.floats(-2, 2), releases=st.integers(1, 3))
def test_known_risk_is_the_dense_posterior_given_all_other_records(
    n: int, seed: int, log_sigma: float, releases: int
) -> None:
    """Fixed points among them. The conditional variance of one of many Gaussians is one over its diagonal precision."""
    stream, sigma = SeededStream(seed), 10**log_sigma
    plans = [(stream.permutation(n), stream.capped_weights(n, 0.8)) for _ in range(releases)]
    shown = torch.stack([precisions(partner, weight, sigma) for partner, weight in plans]).sum(0)
    risk = known_risk(torch.tensor([3.0, 0.0]), shown)
    total = torch.eye(n, dtype=torch.float64) / 3
    for partner, weight in plans:
        matrix = mixing_matrix(partner, weight)
        total += matrix.T @ torch.diag(1 / (weight[:, 1].double() * sigma) ** 2) @ matrix
    assert torch.allclose(risk[:, 0], 1 / total.diagonal(), rtol=1e-6)
    assert bool((risk[:, 1] == 0).all())
    assert bool((risk[:, 0] <= torch.linalg.inv(total).diagonal() * (1 + 1e-9)).all())  # a bound for who knows less


def test_the_certified_risk_is_reached_by_the_largest_weight_and_by_nothing_less() -> None:
    mu, clip, alpha = 0.8, 3.0, 0.55
    sigma, spectrum = sigma_for(mu, clip, alpha), torch.tensor([9.0, 0.4, 0.0])
    partner = torch.tensor([1, 0])
    worst = known_risk(spectrum, precisions(partner, torch.tensor([[alpha, 1 - alpha]] * 2), sigma))
    assert torch.allclose(certified_risk(spectrum, mu, clip), worst[:1], rtol=1e-6)
    milder = known_risk(spectrum, precisions(partner, torch.tensor([[0.5, 0.5]] * 2), sigma))
    assert bool((milder[0, :2] > worst[0, :2]).all())
    shown = sum(
        precisions(partner, torch.tensor([[alpha, 1 - alpha]] * 2), sigma_for(m, clip, alpha)) for m in (mu, 0.3)
    )
    assert isinstance(shown, Tensor)
    together = certified_risk(spectrum, compose([mu, 0.3]), clip)
    assert torch.allclose(known_risk(spectrum, shown)[:1], together, rtol=1e-6)
