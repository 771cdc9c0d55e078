from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mixveil.core.randomness import SeededStream
from mixveil.data.partition import dirichlet
from mixveil.theory.shrinkage import _likeliest, ridge_means, shrunk_means


def made(spread: float, noise: float, seed: int, n: int = 400, classes: int = 6, k: int = 40) -> tuple[Tensor, ...]:
    """True means, soft labels and rows, with uneven classes."""
    stream = SeededStream(seed)
    means = 3 + stream.normal(classes, k) * spread**0.5
    shares = dirichlet(stream, n, classes, 0.3)
    return means, shares, shares @ means + noise**0.5 * stream.normal(n, k)


def test_ridge_means_are_the_dense_posterior() -> None:
    """One tall system: rows with unit noise, and every mean as a row around a common mean that is free."""
    _, shares, rows = made(0.5, 1.0, 0)
    spread, classes = 0.3, shares.shape[1]
    tall = torch.cat(
        [
            torch.cat([shares, shares.sum(1, keepdim=True)], 1),
            torch.cat([torch.eye(classes), torch.zeros(classes, 1)], 1).double() / spread**0.5,
        ]
    )
    solved = torch.linalg.lstsq(tall, torch.cat([rows, torch.zeros(classes, rows.shape[1]).double()])).solution
    expected = solved[:-1] + solved[-1]
    assert torch.allclose(ridge_means(shares.T @ shares, shares.T @ rows, spread), expected, atol=1e-8)


@pytest.mark.parametrize("spread", [0.05, 0.5, 5.0])
def test_how_much_means_vary_is_found(spread: float) -> None:
    found = [
        _likeliest(shares.T @ shares, shares.T @ rows) for _, shares, rows in (made(spread, 1.0, s) for s in range(5))
    ]
    assert sum(found) / 5 == pytest.approx(spread, rel=0.3)


def test_shrunk_means_are_nearer_than_least_squares_where_little_is_known() -> None:
    for seed in range(5):
        means, shares, rows = made(0.02, 1.0, seed, n=60)
        labels, cross = shares.T @ shares, shares.T @ rows
        plain = torch.linalg.solve(labels, cross)
        shrunk = shrunk_means(lambda _, a=labels, b=cross: (a, b))  # type: ignore[misc]
        assert float((shrunk - means).norm()) < 0.8 * float((plain - means).norm())


def test_noise_that_grows_with_what_varies_is_counted_in() -> None:
    """Equations scaled to a noise of 1 + τ²: the τ² that comes out agrees with the noise that it makes."""
    means, shares, rows = made(0.5, 1.5, 3, n=2000)
    labels, cross = shares.T @ shares, shares.T @ rows
    found = shrunk_means(lambda spread: (labels / (1 + spread), cross / (1 + spread)))
    assert torch.allclose(found, ridge_means(labels / 1.5, cross / 1.5, 0.5), atol=0.05)
    assert float((found - means).norm() / means.norm()) < 0.2
