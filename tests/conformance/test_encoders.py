"""What every encoder must do, known and unknown: the registry is walked."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import pytest
import torch

from mixveil.core.errors import ArgumentError, TooFewRowsError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Encoder
from mixveil.encoders.catalogue import encoders
from mixveil.encoders.grid import stored_dtype
from tests.made import images


@pytest.fixture(params=sorted(encoders()))
def encoder(request: pytest.FixtureRequest) -> Encoder:
    return encoders()[request.param].example()


def encode(encoder: Encoder, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    data, stream = images(10), SeededStream(seed)
    trace = encoder.plan(10, stream=stream.fork("plan"))
    return encoder.encode(data, torch.arange(10), trace, stream=stream.fork("noise"))


def test_the_same_seed_gives_the_same_release(encoder: Encoder) -> None:
    assert all(torch.equal(a, b) for a, b in zip(encode(encoder, 1), encode(encoder, 1), strict=True))


def test_what_is_released_is_of_the_stated_kind(encoder: Encoder) -> None:
    x, y = encode(encoder, 1)
    assert x.shape == (10, 1, 4, 4) and x.dtype == stored_dtype(encoder.index_bound)
    assert y.shape == (10, 4) and torch.allclose(y.sum(1), torch.ones(10)) and bool((y >= 0).all())
    if encoder.index_bound is not None:
        assert int(x.abs().max()) <= encoder.index_bound


def test_inputs_are_not_changed(encoder: Encoder) -> None:
    data = images(10)
    before = data.take(torch.arange(10))
    trace = encoder.plan(10, stream=SeededStream(0))
    partner, weight = trace.partner.clone(), trace.weight.clone()
    index = torch.arange(10)
    encoder.encode(data, index, trace, stream=SeededStream(0))
    assert torch.equal(data.take(torch.arange(10)).x, before.x)
    assert torch.equal(trace.partner, partner) and torch.equal(trace.weight, weight)
    assert torch.equal(index, torch.arange(10))


def test_settings_are_frozen_and_plain(encoder: Encoder) -> None:
    settings = dataclasses.asdict(cast("Any", encoder))
    assert all(isinstance(value, str | int | float | bool | None) for value in settings.values())
    assert type(encoder)(**settings) == encoder
    for name in settings:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(encoder, name, None)


def test_no_record_enters_longer_than_the_clip_norm(encoder: Encoder) -> None:
    clip = getattr(encoder, "clip", None)
    if clip is not None:
        long = 0.5 + 100 * SeededStream(0).normal(5, 1, 4, 4)
        assert float(encoder.prepare(long).norm(dim=1).max()) <= clip * (1 + 1e-12)


def test_one_row_is_refused(encoder: Encoder) -> None:
    with pytest.raises(TooFewRowsError):
        encoder.plan(1, stream=SeededStream(0))


def test_an_unknown_encoder_is_named() -> None:
    from mixveil.encoders.catalogue import encoder as find

    with pytest.raises(ArgumentError, match="'magic'"):
        find("magic")
