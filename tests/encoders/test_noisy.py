"""How records enter an encoder: no longer than their clip norm, and with all the noise that μ asks for, exactly."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mixveil.core.errors import PixelError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Fact, Facts, Mu
from mixveil.encoders.gaussian import Gaussian
from mixveil.encoders.noisy import factors, prepare
from mixveil.encoders.singular import Singular

PIXELS = st.lists(st.floats(-(2.0**66), 2.0**66, width=32), min_size=4, max_size=4)


def square(row: Tensor) -> Fraction:
    return sum((Fraction(value) ** 2 for value in row.tolist()), Fraction(0))


def facts(clip: float, unit_rows: int = 1) -> Facts:
    known = {"dimension": 4.0, "centre": 0.5, "amplitude": clip, "clip": clip, "unit_rows": float(unit_rows)}
    return Facts({name: Fact(value, "public") for name, value in known.items()})


@given(PIXELS, st.floats(-10, 10), st.floats(1e-3, 1e3))
@settings(max_examples=150, deadline=None)
def test_no_record_enters_longer_than_its_clip_norm(pixels: list[float], centre: float, clip: float) -> None:
    x = torch.tensor([pixels]).view(1, 1, 2, 2)
    factor = Fraction(float(factors(x.flatten(1), centre, clip)))
    entered = [(Fraction(value) - Fraction(centre)) * factor for value in x.flatten().tolist()]
    assert sum(value**2 for value in entered) <= Fraction(clip) ** 2
    assert square(prepare(x, centre, clip)[0]) <= Fraction(clip) ** 2


def test_records_at_the_corners_of_their_range_are_not_visibly_shorter() -> None:
    """The default clip norm is that of these: each is just as long."""
    x = SeededStream(0).signs(20, 1, 28, 28).double() * 0.5 + 0.5
    entered = prepare(x, 0.5, 14.0)
    assert all(square(row) <= 14**2 for row in entered)
    assert torch.allclose(entered, x.flatten(1) - 0.5, rtol=1e-11)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e200])
def test_a_record_that_is_not_finite_is_refused(value: float) -> None:
    x = torch.zeros(3, 1, 2, 2).double()
    x[1, 0, 0, 0] = value
    with pytest.raises(PixelError, match="record 1 of a block is not finite"):
        prepare(x, 0.5, 2.0)


@given(st.floats(1e-3, 100), st.floats(1e-3, 1e3), st.floats(0.5, 0.999), st.integers(1, 50))
@settings(max_examples=150, deadline=None)
def test_noise_is_never_less_than_mu_asks_for(mu: float, clip: float, alpha: float, rows: int) -> None:
    """σ² ≥ (2C/μ)²·m, times 1 + (α/(1 − α))² where records are mixed: in exact rationals."""
    known, plain = facts(clip, rows), (2 * Fraction(clip) / Fraction(mu)) ** 2 * rows
    mixing = 1 + (Fraction(alpha) / (1 - Fraction(alpha))) ** 2
    for scheme, least in ((Gaussian(), plain), (Singular(alpha=alpha), plain * mixing)):
        encoder, guarantees = scheme.calibrate(Mu(mu), known)
        sigma = Fraction(encoder.sigma)
        assert least <= sigma**2 <= least * (1 + Fraction(1, 1 << 38))
        claim = guarantees[0].realised
        assert claim is not None and Fraction(claim) ** 2 * sigma**2 >= least * Fraction(mu) ** 2
        assert claim == pytest.approx(mu, rel=1e-11)
