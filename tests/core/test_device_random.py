"""Signs, bounded weights and Laplace noise for loops: the laws of the streams that releases draw from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream

UNLIKELY = 1e-7


def draws(seed: int = 1) -> DeviceStream:
    return DeviceStream(SeededStream(seed))


def test_signs_are_fair_and_independent() -> None:
    found = draws().signs(torch.empty(500, 321))
    assert (
        found.shape == (500, 321) and found.dtype == torch.float32 and torch.equal(found.abs(), torch.ones_like(found))
    )
    n = found.numel()
    flat = found.flatten().double()
    assert abs(float(flat.mean())) < 6 / n**0.5
    for lag in (1, 2, 7, 8, 32, 63, 64, 128):
        assert abs(float((flat[lag:] * flat[:-lag]).mean())) < 6 / n**0.5, lag
    places = flat[: n // 64 * 64].view(-1, 64).mean(0)  # every bit of a word, its sign bit too
    assert float(places.abs().max()) < 6 / (n // 64) ** 0.5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_signs_have_the_type_and_shape_asked_for(dtype: torch.dtype) -> None:
    stream = draws()
    for shape in ((3,), (2, 3, 5), (64,), (0,)):
        found = stream.signs(torch.empty(shape, dtype=dtype))
        assert found.shape == shape and found.dtype == dtype
    first = stream.signs(torch.empty(1000))
    assert not torch.equal(first, stream.signs(torch.empty(1000)))


@pytest.mark.parametrize(("k", "most", "first", "least"), [(2, 0.65, 2, 0.0), (4, 0.65, 4, 0.0), (6, 0.65, 2, 0.3)])
def test_bounded_weights_follow_the_law_of_releases(k: int, most: float, first: int, least: float) -> None:
    fast = draws().bounded_weights(20_000, k, most, first, least)
    slow = SeededStream(2).bounded_weights(20_000, k, most, first, least)
    assert fast.shape == (20_000, k) and fast.dtype == torch.float32
    assert torch.allclose(fast.sum(1), torch.ones(20_000), atol=1e-6)
    assert float(fast.max()) <= most and float(fast[:, :first].sum(1).min()) >= least - 1e-6
    for j in range(k):
        assert stats.ks_2samp(fast[:, j].numpy(), slow[:, j].numpy()).pvalue > UNLIKELY
    assert stats.ks_2samp(fast.amax(1).numpy(), slow.amax(1).numpy()).pvalue > UNLIKELY


def test_one_image_has_all_the_weight_and_impossible_weights_are_refused() -> None:
    assert torch.equal(draws().bounded_weights(3, 1, 0.65, 1, 0.0), torch.ones(3, 1))
    with pytest.raises(ArgumentError, match="hardly occur"):
        draws().bounded_weights(2, 3, 0.2, 3, 0.0)


def test_laplace_noise_has_mean_size_one() -> None:
    found = draws().laplace(torch.empty(200, 500)).flatten()
    assert stats.kstest(found.double().numpy(), "laplace").pvalue > UNLIKELY
    assert float(found.abs().mean()) == pytest.approx(1, rel=0.02)


def test_whole_numbers_below_are_uniform() -> None:
    found = draws().below(7, 70_000).bincount()
    assert len(found) == 7 and stats.chisquare(found.numpy()).pvalue > UNLIKELY


@pytest.mark.parametrize("alpha", [0.05, 0.5, 1.0, 4.0, 300.0])
@pytest.mark.parametrize("k", [2, 3, 7])
def test_dirichlet_weights_follow_their_law(alpha: float, k: int) -> None:
    found = draws().dirichlet(20_000, k, alpha)
    assert found.shape == (20_000, k) and found.dtype == torch.float32
    assert torch.allclose(found.sum(1), torch.ones(20_000), atol=1e-6)
    law = stats.beta(alpha, (k - 1) * alpha)
    low, high = law.cdf(1e-6), law.cdf(1 - 1e-6)  # at its ends float32 has atoms
    for j in range(k):
        mine = found[:, j].double().numpy()
        mine = mine[(mine > 1e-6) & (mine < 1 - 1e-6)]
        assert len(mine) / 20_000 == pytest.approx(high - low, abs=6 * 0.5 / 20_000**0.5)
        assert stats.kstest(mine, lambda x: (law.cdf(x) - low) / (high - low)).pvalue > UNLIKELY
    apart = np.cov(found.double().numpy().T)
    expected = (np.eye(k) / k - 1 / k**2) / (k * alpha + 1)
    assert np.abs(apart - expected).max() < 6 * expected.max() * (1 + 1 / alpha) ** 0.5 / 20_000**0.5


@pytest.mark.parametrize(("alpha", "largest"), [(1e-99, 1.0), (1e-6, 1.0), (1e99, 1 / 3)])
def test_dirichlet_weights_of_any_size_are_weights(alpha: float, largest: float) -> None:
    found = draws().dirichlet(2000, 3, alpha)
    assert bool(found.isfinite().all()) and torch.allclose(found.sum(1), torch.ones(2000), atol=1e-6)
    assert float(found.amax(1).mean()) == pytest.approx(largest, abs=1e-3)
    assert torch.allclose(found.mean(0), torch.full((3,), 1 / 3), atol=0.07)


def test_dirichlet_weights_repeat_by_their_number_and_have_a_domain() -> None:
    stream = draws()
    stream.restart(3)
    first = stream.dirichlet(5, 2, 0.7)
    assert not torch.equal(stream.dirichlet(5, 2, 0.7), first)
    stream.restart(3)
    assert torch.equal(stream.dirichlet(5, 2, 0.7), first)
    with pytest.raises(ArgumentError, match="alpha"):
        stream.dirichlet(5, 2, 0.0)
