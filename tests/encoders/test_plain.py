from __future__ import annotations

import pytest
import torch

from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Mu
from mixveil.encoders.identity import Identity
from mixveil.encoders.mixup import Mixup
from tests.made import encoded, images, range_facts


def test_identity_releases_the_data() -> None:
    data = images(6)
    release, _ = encoded(Identity(), data, SeededStream(0))
    got, want = release.payload.take(torch.arange(6)), data.take(torch.arange(6))
    assert torch.equal(got.x, want.x) and torch.equal(got.y, want.y)


@pytest.mark.parametrize("k", [2, 4])
def test_mixup_adds_k_weighed_images(k: int) -> None:
    data = images(12)
    release, trace = encoded(Mixup(k), data, SeededStream(0))
    everything = data.take(torch.arange(12))
    got = release.payload.take(torch.arange(12))
    assert trace.weight.shape == (12, k)
    for i in range(12):
        sources = [i, *trace.partner[i].tolist()]
        x = sum(w * everything.x[j] for w, j in zip(trace.weight[i].tolist(), sources, strict=True))
        y = sum(w * everything.y[j] for w, j in zip(trace.weight[i].tolist(), sources, strict=True))
        assert torch.allclose(got.x[i], torch.as_tensor(x), atol=1e-6)
        assert torch.allclose(got.y[i], torch.as_tensor(y), atol=1e-6)


def test_nothing_can_be_asked_of_an_encoder_without_noise() -> None:
    with pytest.raises(ArgumentError, match="adds no noise"):
        Mixup().calibrate(Mu(1.0), range_facts(images()))
    assert Identity().claims() == {}


def test_mixing_one_image_is_no_mixup() -> None:
    with pytest.raises(ArgumentError, match="k must be at least 2, got 1"):
        Mixup(1)
