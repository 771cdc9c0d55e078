"""Every released integer is the one of the slow twin, which follows the definition value by value."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mixveil.core.keystreams import Generator
from mixveil.encoders.fused import budget
from mixveil.encoders.fused.encoding import encoded, uses_single
from mixveil.encoders.fused.mixture import Keystream, Mixture
from tests.encoders.fused.twin import slow

pytestmark = pytest.mark.gpu
KEY = bytes(range(1, 33))


def mixture(m: int, d: int, device: torch.device, *, paired: bool = True, bound: int = 9000) -> Mixture:
    g = torch.Generator().manual_seed(m * d)
    x = torch.rand(m, d, generator=g).to(device)
    partner = torch.randperm(m, generator=g).to(device)
    factors = (torch.rand(m, 2 if paired else 1, generator=g, dtype=torch.float64) * 900).to(device)
    scale = (torch.rand(m, generator=g, dtype=torch.float64) * 50 + 500).to(device)
    return Mixture(x, x if paired else None, partner if paired else None, factors, scale, 0.5, 550.0, 2700.0, bound)


def agree(made: Mixture, keystream: Keystream, got: Tensor, first_row: int = 0) -> bool:
    return bool((got.cpu().long() == slow(made, keystream, first_row)[0]).all())


@pytest.mark.parametrize(
    ("generator", "m", "d", "paired"),
    [("chacha20", 2, 1100, True), ("chacha12", 2, 1024, False), ("philox", 3, 70, True)],
)
def test_values_are_those_of_the_definition(
    device: torch.device, generator: Generator, m: int, d: int, paired: bool
) -> None:
    made, keystream = mixture(m, d, device, paired=paired), Keystream(KEY, generator)
    assert uses_single(made)
    got = encoded(made, keystream, first_row=5)
    assert got.dtype == torch.int16
    assert agree(made, keystream, got, first_row=5)


def test_wide_integers_are_decided_in_float64(device: torch.device) -> None:
    made, keystream = mixture(2, 300, device, bound=1 << 20), Keystream(KEY, "philox")
    assert not uses_single(made)
    got = encoded(made, keystream)
    assert got.dtype == torch.int32
    assert agree(made, keystream, got)


def test_values_of_unknown_size_are_decided_in_float64(device: torch.device) -> None:
    known, keystream = mixture(2, 300, device), Keystream(KEY, "philox")
    made = replace(known, reach=None)
    assert not uses_single(made)
    assert known.reach is not None
    assert made.reached() <= known.reach
    assert (encoded(made, keystream) == encoded(known, keystream)).all()


def test_a_list_that_is_too_short_grows(device: torch.device) -> None:
    made, keystream = mixture(2, 1500, device), Keystream(KEY, "philox")
    assert (encoded(made, keystream, room=1) == encoded(made, keystream)).all()


def test_values_end_at_the_bound(device: torch.device) -> None:
    made, keystream = mixture(2, 500, device, bound=400), Keystream(KEY, "philox")
    got = encoded(made, keystream)
    assert int(got.abs().max()) == 400
    assert agree(made, keystream, got)


def test_rows_have_the_noise_of_their_number(device: torch.device) -> None:
    made, keystream = mixture(3, 100, device), Keystream(KEY, "philox")
    assert (encoded(made.rows(slice(2, 3)), keystream, first_row=2) == encoded(made, keystream)[2:]).all()


def test_values_that_float64_leaves_open_are_decided(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    made, keystream = mixture(2, 500, device), Keystream(KEY, "philox")
    want = encoded(made, keystream)
    monkeypatch.setattr(budget, "double", lambda *_: 2e-3)
    assert (encoded(made, keystream) == want).all()


def near_halves(scale: float, device: torch.device) -> Mixture:
    """Rows whose values are half-integers, but for noise of that scale."""
    x = torch.arange(200.0, device=device).view(2, 100)
    ones = torch.ones(2, 1, dtype=torch.float64, device=device)
    return Mixture(x, None, None, ones, ones[:, 0] * scale, 0.5, scale, 200.5, 9000)


def test_planted_half_integers_go_with_the_sign_of_their_noise(device: torch.device) -> None:
    made, keystream = near_halves(1e-15, device), Keystream(KEY, "philox")
    got = encoded(made, keystream)
    want, decided = slow(made, keystream)
    assert decided == 200
    assert (got.cpu().long() == want).all()
    assert 60 < int((got.cpu() == made.own.cpu()).sum()) < 140  # x − ½ goes up to x where the noise is positive


def test_float32_alone_would_be_wrong_near_half_integers(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    made, keystream = near_halves(1e-5, device), Keystream(KEY, "philox")
    assert agree(made, keystream, encoded(made, keystream))
    monkeypatch.setattr(budget, "single", lambda *_: 0.0)
    assert not agree(made, keystream, encoded(made, keystream))
