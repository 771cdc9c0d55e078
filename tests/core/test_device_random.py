"""Signs, bounded weights and Laplace noise for loops: the laws of the streams that releases draw from."""

from __future__ import annotations

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
