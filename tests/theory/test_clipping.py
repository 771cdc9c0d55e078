"""Clipping and whole numbers, against exact rationals: no bound may be missed by 2⁻⁵²."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.theory import clipping
from mixveil.theory.clipping import (
    check_units,
    directions,
    exact_product,
    factors,
    gradients,
    grid_bits,
    scores,
    units_total,
    whole,
)

NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-10, 10),
    st.sampled_from([0.0, 5e-324, -2.3e-308, 1e-162, 1e-154, -1e-140, 1e153, -1e154, 1.7e308]),
)
ROWS = st.lists(NUMBERS, min_size=1, max_size=6).map(lambda row: torch.tensor([row], dtype=torch.float64))
CLIPS = st.floats(1e-30, 1e30)


def square(row: Tensor, factor: Fraction | int = 1) -> Fraction:
    """The exact squared norm: every float64 is a whole number of 2⁻¹⁰⁷⁴."""
    ratios = (value.as_integer_ratio() for value in row.flatten().tolist())
    return (
        Fraction(sum((top * ((1 << 1074) // bottom)) ** 2 for top, bottom in ratios), 1 << 2148) * Fraction(factor) ** 2
    )


def holds(x: Tensor, clip: float, spare: Fraction = 1 - Fraction(1, 1 << 41)) -> bool:
    """Whether rows times their factors are within the clip norm and its spare, rounded or not."""
    by = factors(torch.linalg.vector_norm(x, dim=1), x.shape[1], clip)
    most = (Fraction(clip) * spare) ** 2
    return all(
        square(row, Fraction(float(factor))) <= most and square(row * factor) <= most
        for row, factor in zip(x, by, strict=True)
    )


@given(ROWS, CLIPS)
@settings(max_examples=200, deadline=None)
def test_no_row_is_longer_than_its_clip_norm(x: Tensor, clip: float) -> None:
    if bool(torch.linalg.vector_norm(x, dim=1).isfinite()):
        assert holds(x, clip)


@pytest.mark.parametrize("values", [1, 2, 784, 9000])
def test_no_long_row_is_longer_than_its_clip_norm(values: int) -> None:
    """Of equal values, whose errors add up; of mixed sizes; and of just about the clip norm."""
    stream = SeededStream(values)
    plain = stream.normal(4, values)
    x = torch.cat([plain, plain * torch.logspace(-9, 9, values).double(), torch.full((1, values), 0.1).double()])
    for clip in (1e-3, 1.0, 0.1 * math.sqrt(values), float(torch.linalg.vector_norm(plain[0]))):
        assert holds(x, clip)


def test_a_factor_without_the_margin_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    x, exact = 3 * SeededStream(1).normal(50, 784), Fraction(1)
    assert holds(x, 1.0, exact)
    monkeypatch.setattr(clipping, "MARGIN", -784 * 2.0**-52)
    assert not holds(x, 1.0, exact)


def test_factors_shorten_no_more_than_they_must() -> None:
    norm = torch.tensor([0.0, 0.5, 1.0, 4.0, 1e300, math.inf, math.nan]).double()
    found = factors(norm, 10, 1.0)
    assert found.tolist() == pytest.approx([1.0, 1.0, 1.0, 0.25, 1e-300, 0.0, 0.0], rel=1e-11)
    assert float(found[1]) == 1.0 and float(found[2]) < 1.0
    assert factors(norm, 10, -1.0).tolist() == [0.0] * 7  # nothing is left where rounding takes all


@given(ROWS, st.sampled_from([0.0, 1.0, 2.0, 2.0**12, 2.0**30, 2.0**32 + 0.5]), st.floats(1e-9, 1e9))
@settings(max_examples=150, deadline=None)
def test_whole_rows_are_whole_and_no_longer_than_their_radius(x: Tensor, radius: float, scale: float) -> None:
    for found in (whole(x, radius, scale), directions(x, radius)[0]):
        assert torch.equal(found, found.round()) and bool(found.isfinite().all())
        assert square(found) <= Fraction(radius) ** 2


def test_whole_rows_are_the_rows_in_steps() -> None:
    x = SeededStream(2).normal(200, 30)
    short, long = whole(x, 2.0**30, 1000.0), whole(x, 1000.0, 1e9)
    assert bool(((short - 1000 * x).abs() <= 0.5).all())
    unit = torch.nn.functional.normalize(x, dim=1)
    assert torch.allclose(long, 1000 * unit, atol=3.0) and float(long.norm(dim=1).min()) > 990
    rows, sizes = directions(x, 2.0**20)
    assert torch.allclose(rows * sizes[:, None], x, atol=1e-5)
    wild = torch.tensor([[math.nan, 1.0], [math.inf, 0.0], [1e200, 1e200], [3.0, 4.0]]).double()
    assert whole(wild, 100.0).tolist() == [[0, 0], [0, 0], [0, 0], [3, 4]]


UNITS = st.lists(st.lists(st.integers(-(1 << 40), 1 << 40), min_size=6, max_size=6), min_size=2, max_size=2)


@given(UNITS, st.sampled_from([1.0, 16.0, 2.0**20, math.sqrt(2) * 2**32]), st.booleans())
@settings(max_examples=150, deadline=None)
def test_units_stay_as_near_as_before_they_were_rounded(values: list[list[int]], radius: float, alike: bool) -> None:
    """Units of no negative product stay within √2 radii, all others within two."""
    joint = torch.tensor(values)
    joint = joint.abs() if alike else joint
    one, other = (units_total(unit[None], radius).tolist() for unit in joint)
    assert units_total(joint, radius).tolist() == [a + b for a, b in zip(one, other, strict=True)]
    most = (2 if alike else 4) * Fraction(radius) ** 2
    assert sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) <= most
    assert all(sum(v * v for v in unit) <= Fraction(radius) ** 2 for unit in (one, other))


@given(st.integers(0, 32), st.floats(1e-6, 1e3), st.floats(1e-3, 1e3), st.sampled_from([None, 39]))
@settings(max_examples=60, deadline=None)
def test_no_gradient_is_longer_than_its_clip_norm(bits: int, clip: float, scale: float, most: int | None) -> None:
    stream = SeededStream(bits)
    wrong, z = scale * stream.normal(9, 4), torch.cat([stream.normal(9, 20), torch.ones(9, 1).double()], 1)
    left, right = gradients(wrong, z, clip, bits, most)
    assert all(
        square(a) * square(b) <= 1 << 2 * (bits if most is None else most) for a, b in zip(left, right, strict=True)
    )


def test_gradients_are_those_that_were_asked_for() -> None:
    stream = SeededStream(3)
    wrong, z = 0.01 * stream.normal(50, 4), torch.cat([stream.normal(50, 20), torch.ones(50, 1).double()], 1)
    exact = torch.einsum("mp,mq->mpq", wrong, z)
    exact *= (0.03 / exact.flatten(1).norm(dim=1)).clamp(max=1)[:, None, None]
    left, right = gradients(wrong, z, 0.03, 28)
    assert torch.allclose(torch.einsum("mp,mq->mpq", left, right) * 0.03 * 2.0**-28, exact, atol=0.03 * 2e-3)
    assert float((exact.flatten(1).norm(dim=1) > 0.0299).double().mean()) > 0.3  # some were longer, some were not


@pytest.mark.parametrize("bits", [32, 49])
def test_products_are_added_up_without_any_rounding(bits: int) -> None:
    """As Python's integers do it; the largest contributions there are, of both signs, in several parts."""
    most, stream = 1 << bits // 2, SeededStream(bits)
    left = torch.full((40, 1), float(most)).double() * stream.signs(40, 1)
    right = whole(stream.normal(40, 3), float(most), 1e9)
    expected = [sum(int(a) * int(b) for a, b in zip(left[:, 0], column, strict=True)) for column in right.T]
    assert exact_product(left, right, bits).flatten().tolist() == expected
    assert exact_product(left[:0], right[:0], bits).tolist() == [[0, 0, 0]]


def test_scores_are_those_of_a_row_alone() -> None:
    stream = SeededStream(4)
    x, weight = stream.normal(700, 65), 10 * stream.normal(65, 7)
    found = scores(x, weight)
    assert torch.allclose(found, x @ weight, atol=1e-4)
    order = stream.permutation(700)
    assert torch.equal(scores(x[order], weight), found[order])
    assert all(torch.equal(scores(x[i : i + 1], weight)[0], found[i]) for i in range(0, 700, 50))
    assert torch.equal(torch.cat([scores(part, weight) for part in torch.split(x, 13)]), found)
    assert not bool(scores(0 * x, weight).any()) and not bool(scores(x, 0 * weight).any())


def test_torch_computes_norm_and_softmax_of_a_row_by_itself() -> None:
    """What is assumed of torch: wherever a row stands, and however many there are."""
    for values in (1, 7, 1000, 100_001):
        x = SeededStream(values).normal(5, values)
        for of in (lambda x: torch.linalg.vector_norm(x, dim=1), lambda x: torch.softmax(x, dim=1)):
            found = of(x)
            assert torch.equal(torch.cat([of(x[i : i + 1]) for i in range(5)]), found)
            assert torch.equal(of(x.flip(0)), found.flip(0)) and torch.equal(of(x[1:3]), found[1:3])


def test_the_grid_is_fine_and_its_noise_is_less_than_two_to_the_32_steps() -> None:
    for clip, sigma in ((1.0, 1e-9), (3.0, 3.0), (0.1, 7.0), (1.0, 1e6), (2.0, 1e9)):
        bits = grid_bits(clip, sigma)
        assert 0 <= bits <= 32 and sigma < clip * 2.0 ** (32 - bits)
        assert bits == 32 or sigma >= clip * 2.0 ** (31 - bits)
    assert grid_bits(1.0, 1e15) == 0


def test_too_many_units_are_refused_by_their_public_number() -> None:
    """So many stay below 2⁶³ with their noise."""
    assert check_units((1 << 29) - 1) * math.sqrt(2) * 2**32 + 2**45 < 2**63
    with pytest.raises(ArgumentError, match="fewer than 536,870,912 units, got 536,870,912: sum them in parts"):
        check_units(1 << 29)
