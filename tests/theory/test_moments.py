from __future__ import annotations

import math

import pytest
import torch

from mixveil.core.errors import TooFewRowsError
from mixveil.core.randomness import SeededStream
from mixveil.data.images import from_tensors
from mixveil.theory import moments as module
from mixveil.theory.moments import Moments, moments
from tests.made import images


def test_dense_moments_equal_the_obvious_ones() -> None:
    data = images(300, (2, 3, 5))
    found = moments(data, stream=SeededStream(0))
    x = data.take(torch.arange(300)).x.flatten(1).double()
    covariance = torch.cov(x.T, correction=0)
    assert torch.allclose(found.mean, x.mean(0))
    assert found.energy == pytest.approx(float(covariance.trace()))
    assert torch.allclose(found.eigenvalues, torch.linalg.eigvalsh(covariance).flip(0), atol=1e-12)
    assert found.lambda_max == pytest.approx(float(found.eigenvalues[0]))
    assert found.covariance is not None and torch.allclose(found.covariance, covariance)


def test_the_mean_distance() -> None:
    data = images(200, (1, 4, 4))
    x = data.take(torch.arange(200)).x.flatten(1).double()
    everywhere = torch.cdist(x, x).sum() / (200 * 199)
    assert moments(data, stream=SeededStream(0)).distance == pytest.approx(float(everywhere), rel=0.05)


def low_rank(n: int, d: int, *, noise: float) -> torch.Tensor:
    """Rows with a few strong directions, in [0, 1]."""
    stream = SeededStream(9)
    strong = stream.normal(n, 5) @ (stream.normal(5, d) * torch.tensor([[8.0], [4], [2], [1], [1]]))
    x = strong + noise * stream.normal(n, d)
    return ((x - x.min()) / (x.max() - x.min())).float()


@pytest.mark.parametrize("noise", [0.1, 5.0])
def test_large_dimensions_bound_the_largest_eigenvalue_from_above(
    monkeypatch: pytest.MonkeyPatch, noise: float
) -> None:
    x = low_rank(400, 300, noise=noise)
    data = from_tensors(x, torch.zeros(400, dtype=torch.int64))
    exact = moments(data, stream=SeededStream(0))
    monkeypatch.setattr(module, "DENSE_LIMIT", 100)
    found: Moments = moments(data, stream=SeededStream(0))
    assert found.covariance is None
    assert found.energy == pytest.approx(exact.energy)
    assert exact.lambda_max * (1 - 1e-12) <= found.lambda_max <= exact.lambda_max * 1.01
    assert torch.allclose(found.eigenvalues[:5], exact.eigenvalues[:5], rtol=0.01)
    counted = float((found.eigenvalues * found.multiplicities).sum())
    assert counted == pytest.approx(exact.energy)


def test_a_flat_spectrum_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no direction stands out the iteration does not converge; the bound must hold all the same."""
    monkeypatch.setattr(module, "DENSE_LIMIT", 100)
    monkeypatch.setattr(module, "_POWER_PASSES", 0)
    x = SeededStream(2).uniform(500, 256).float()
    data = from_tensors(x, torch.zeros(500, dtype=torch.int64))
    truth = float(torch.linalg.eigvalsh(torch.cov(x.double().T, correction=0))[-1])
    assert moments(data, stream=SeededStream(0)).lambda_max >= truth


def test_what_the_iteration_has_not_resolved_is_counted() -> None:
    """The top direction lies half in the basis: T alone shows half its variance, the coupling shows the rest."""
    direction = torch.zeros(200, dtype=torch.float64)
    direction[0] = direction[199] = math.sqrt(0.5)
    covariance = 9 * torch.outer(direction, direction) + 0.001 * torch.eye(200, dtype=torch.float64)

    class HalfBlind(SeededStream):
        """A basis that spans the first 64 coordinates, and probes that see nothing of the others."""

        def normal(self, *shape: int) -> torch.Tensor:
            return torch.eye(*shape, dtype=torch.float64) if shape[1] == 64 else torch.zeros(shape, dtype=torch.float64)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_POWER_PASSES", 0)
        _, bound = module._leading_eigenvalues(lambda q: covariance @ q, 200, 9.2, HalfBlind(0))
    assert bound > 7.2  # T alone shows 4.5


def test_moments_read_every_row_as_often_as_they_say() -> None:
    data = images(37)
    read: list[int] = []
    moments(data, stream=SeededStream(0), progress=read.append)
    assert sum(read) == module.passes(16) * 37


def test_one_row_has_no_moments() -> None:
    with pytest.raises(TooFewRowsError):
        moments(images(1), stream=SeededStream(0))
