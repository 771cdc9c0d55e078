"""Correlations behind hidden signs: against integrals by Monte Carlo, and against double loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from mixveil.attacks.shared.gaussian.folded_gram import correlations, folded_correlation, squared_correlations, unfolded
from mixveil.core.randomness import SeededStream


def pair(rho: float, rows: int, values: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    u, rest = SeededStream(seed).normal(2, rows, values)
    return u, rho * u + math.sqrt(1 - rho**2) * rest


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.7, 0.95, 1.0])
def test_the_folded_correlation_is_that_of_sizes(rho: float) -> None:
    u, v = (x.flatten() for x in pair(rho, 1, 400_000))
    product = 2 / math.pi * (math.sqrt(1 - rho**2) + rho * math.asin(rho))
    assert abs(float((u * v).abs().mean()) - product) < 0.008
    told = float(torch.corrcoef(torch.stack([u.abs(), v.abs()]))[0, 1])
    assert abs(told - float(folded_correlation(torch.tensor(rho, dtype=torch.float64)))) < 0.008


def test_unfolding_is_its_inverse() -> None:
    rho = torch.cat([torch.linspace(0, 1, 501, dtype=torch.float64), torch.tensor([1e-6, 1 - 1e-9])])
    assert torch.allclose(unfolded(folded_correlation(rho)), rho, atol=1e-7)
    assert unfolded(torch.tensor([-0.2, 0.0, 1.5])).tolist() == [0, 0, 1]


def test_correlations_are_those_of_a_double_loop() -> None:
    x = SeededStream(1).normal(5, 40) + torch.arange(5)[:, None]
    told = correlations(x)
    for i in range(5):
        for j in range(5):
            a, b = (row - row.mean() for row in (x[i], x[j]))
            assert abs(float(told[i, j]) - float((a * b).sum() / (a.norm() * b.norm()))) < 1e-12


@pytest.mark.parametrize("rho", [0.0, 0.1, 0.25, 0.4, 0.6, 0.9])
def test_estimates_are_of_the_square_and_scatter_as_stated(rho: float) -> None:
    values, rows = 2000, 60
    u, v = pair(rho, rows, values)
    told = squared_correlations(torch.cat([u, v]).abs())[:rows, rows:].diagonal()
    deviation = float((told - rho**2).std()) * math.sqrt(values)
    assert abs(float(told.mean()) - rho**2) < 4 * 1.25 / math.sqrt(values * rows)
    assert deviation < 1.25 * 1.3  # of 60 draws
    squares = correlations(torch.cat([u, v]).square())[:rows, rows:].diagonal()
    assert deviation < 1.05 * float((squares - rho**2).std()) * math.sqrt(values)


def test_signs_and_scales_of_rows_do_not_count() -> None:
    x = SeededStream(1).normal(6, 500)
    signs, scale = SeededStream(2).signs(6, 500), torch.linspace(0.1, 9, 6)[:, None]
    assert torch.allclose(squared_correlations(x.abs()), squared_correlations((x * signs * scale).abs()))
