from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixveil.keys import SeededStream
from mixveil.theory.bayes import single_row_risk, whole_release_risk
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
