"""The divergence between views against a loop over torch's own distributions, and λ in phases."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, kl_divergence

from mixveil.core.randomness import SeededStream
from mixveil.theory.consistency import jensen_shannon, phased


def slow(scores: Tensor) -> Tensor:
    """Eq. 6, image by image: the mean over views of KL(p_view ‖ q)."""
    found = []
    for image in range(scores.shape[1]):
        each = [view[image].softmax(-1) for view in scores]
        mean = torch.stack(each).sum(0) / len(each)
        parts = [kl_divergence(Categorical(probs=one), Categorical(probs=mean)) for one in each]
        found.append(torch.stack(parts).sum() / len(each))
    return torch.stack(found)


@pytest.mark.parametrize("views", [1, 2, 3, 5])
@pytest.mark.parametrize("size", [0.1, 1.0, 8.0])
def test_the_divergence_is_a_loop_over_kl(views: int, size: float) -> None:
    scores = size * SeededStream(views).normal(views, 7, 4)
    found = jensen_shannon(scores)
    assert found.shape == (7,) and torch.allclose(found, slow(scores), rtol=1e-5, atol=1e-12)
    assert torch.allclose(jensen_shannon(scores.flip(0)), found, rtol=1e-9, atol=1e-12)
    assert bool((found > 0).all()) or views == 1


def test_clients_are_apart_from_each_other() -> None:
    scores = SeededStream(1).normal(3, 2, 5, 4)
    found = jensen_shannon(scores)
    assert found.shape == (2, 5)
    for client in range(2):
        assert torch.allclose(found[client], slow(scores[:, client]), rtol=1e-5)


def test_its_gradient_is_the_loops() -> None:
    scores = SeededStream(2).normal(3, 4, 5).requires_grad_()
    (ours,) = torch.autograd.grad(jensen_shannon(scores).sum(), scores)
    (theirs,) = torch.autograd.grad(slow(scores).sum(), scores)
    assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-13), (torch.float32, 1e-5)])
def test_views_that_agree_are_not_apart(dtype: torch.dtype, close: float) -> None:
    scores = (5 * SeededStream(3).normal(6, 10)).to(dtype).expand(4, 6, 10)
    assert float(jensen_shannon(scores).abs().max()) < close
    moved = scores + torch.arange(4, dtype=dtype)[:, None, None]  # the same probabilities
    assert float(jensen_shannon(moved).abs().max()) < close


@pytest.mark.parametrize("views", [2, 3, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sure_views_that_disagree_are_log_v_apart(views: int, dtype: torch.dtype) -> None:
    scores = torch.full((views, 1, 8), -1e4, dtype=dtype)
    for view in range(views):
        scores[view, 0, view] = 1e4
    scores.requires_grad_()
    found = jensen_shannon(scores)
    assert found.item() == pytest.approx(math.log(views), rel=1e-6)
    (slope,) = torch.autograd.grad(found.sum(), scores)
    assert bool(slope.isfinite().all())
    wild = (1e4 * SeededStream(views).normal(views, 50, 8)).to(dtype)
    apart = jensen_shannon(wild)
    assert bool((apart > -1e-6).all()) and bool((apart < math.log(views) + 1e-6).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_weight_is_large_while_views_hardly_differ(dtype: torch.dtype) -> None:
    named = torch.tensor([2.0, 2.0, 2.0, 0.0, 1.0], dtype=dtype, requires_grad=True)
    apart = torch.tensor([1e-6, 5e-5, 1.0, 0.0, 0.0], dtype=dtype, requires_grad=True)
    found = phased(named, apart, base=0.1, scale=5e4, large=5000.3)
    expected = [
        5000.3 if float(c) > 5e4 * float(j) else 0.1 for c, j in zip(named.tolist(), apart.tolist(), strict=True)
    ]
    assert expected == [5000.3, 0.1, 0.1, 0.1, 5000.3]
    assert torch.equal(found, torch.tensor(expected, dtype=dtype)) and not found.requires_grad
    assert torch.equal(phased(named, apart, base=50.0, scale=0.0, large=50.0), torch.full((5,), 50.0, dtype=dtype))
