from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.special import ndtr
from scipy.stats import chi2, kstest

from mixveil.core import function_check, rounded_normals
from mixveil.core.errors import ArgumentError, StreamError
from mixveil.core.function_check import check_functions
from mixveil.core.randomness import SecureStream, SeededStream
from mixveil.core.rounded_normals import (
    DOUBLE,
    DOUBLE_NORMAL,
    EXTREME,
    HIGH,
    LOW,
    NOTHING,
    SINGLE,
    SINGLE_NORMAL,
    Bounds,
    Further,
    Indices,
    Mean,
    Words,
    decide,
    doubles,
    rounded,
)
from tests.slow_normals import Kept, nearest, slow_value


def mixture(m: int, d: int, *, largest: float | None = 70.0, seed: int = 0) -> Mean:
    draw = np.random.default_rng(seed)
    own, other = (draw.random((m, d)).astype(np.float32) for _ in range(2))
    share = draw.random(m) * 0.1 + 0.45
    return Mean((own, other), (40 * share, 40 * (1 - share)), 0.5, largest)


def filled(shape: tuple[int, int], scale: float, mean: Mean = NOTHING, seed: int = 0) -> tuple[Any, Kept, Any]:
    out, scales = np.empty(shape, np.int64), np.full(shape[0], scale)
    kept = Kept(SeededStream(seed).pairs(-(-shape[0] * shape[1] // 2)))
    rounded(out, scales, mean, kept, most=scale)
    return out, kept, scales


# What is released is exactly the rounded value of real arithmetic.


@pytest.mark.parametrize("largest", [70.0, None])
def test_every_integer_is_that_of_200_bits(largest: float | None) -> None:
    """With float32 first, and with float64 alone."""
    shape = (9, 201)
    mean = mixture(*shape, largest=largest)
    out, kept, scales = filled(shape, 563.0, mean)
    for index in range(out.size):
        assert out.reshape(-1)[index] == nearest(slow_value(index, shape, scales, mean, kept))


def test_values_next_to_a_half_are_decided_rightly() -> None:
    """Records are chosen so that value + noise lies within 10⁻¹¹ of the middle of two integers, on either side."""
    n, scale = 120, 563.0
    still, kept, scales = filled((n, 1), scale, seed=3)
    weights = np.empty(n)
    for index in range(n):
        value = slow_value(index, (n, 1), scales, NOTHING, kept)
        weights[index] = float(still[index, 0] + mpmath.mpf(0.5) - value)
        for _ in range(index % 3):
            weights[index] = np.nextafter(weights[index], np.inf if index % 2 else -np.inf)
    planted = Mean((np.ones((n, 1), np.float32),), (weights,), 0.0, 2.0)
    out, kept, _ = filled((n, 1), scale, planted, seed=3)
    values = [slow_value(index, (n, 1), scales, planted, kept) for index in range(n)]
    assert max(abs(value - mpmath.floor(value) - 0.5) for value in values) < 1e-11
    assert [int(value) for value in out[:, 0]] == [nearest(value) for value in values]
    assert 20 < sum(int(up) > before for up, before in zip(out[:, 0], still[:, 0], strict=True)) < 100


def test_a_half_that_96_bits_leave_open_is_decided_with_more() -> None:
    """float64 and 96 bits cannot tell on which side of a half these values lie."""
    asked: list[int] = []
    scale, words = Fraction(563), [0x12345678_9ABCDEF0_11111111_0F1E2D3C_77777777_55555555, 0x0FEDCBA9_87654321 << 128]

    def bits(count: int) -> tuple[int, int]:
        asked.append(count)
        return tuple((word << 808) >> (1000 - count) for word in words)  # type: ignore[return-value]

    with mpmath.workprec(1000):
        u, turn = (mpmath.mpf(2 * (word << 808) + 1) / mpmath.mpf(2) ** 1001 for word in words)
        value = 563 * mpmath.sqrt(-2 * mpmath.log(u)) * mpmath.sin(2 * mpmath.pi * turn)
        short = Fraction(int(mpmath.floor(value * mpmath.mpf(2) ** 200))) / 2**200  # within 2⁻²⁰⁰ below
    for side in (-1, 1):
        asked.clear()
        offset = Fraction(1, 2) - short + side * Fraction(1, 2**199)
        assert decide(offset, scale, bits, second=True) == (side + 1) // 2
        assert asked == [128, 256]


@dataclass
class Fixed:
    """Pairs with chosen first words."""

    words: Words
    more: Callable[[Indices, int], Further]

    def first(self, out: Words) -> None:
        out[:] = self.words

    def further(self, pair: Indices, chunk: int) -> Further:
        return self.more(pair, chunk)


def test_tails_go_on_beyond_what_a_63_bit_uniform_reaches() -> None:
    """Given U < 2⁻⁶³, which is 9.35σ and more, −ln U − 63 ln 2 is exponential, and values are those of 200 bits."""
    n, scale = 600, 1024.0
    stream = SeededStream(5)
    words = np.zeros((2, n), np.uint32)
    words[1] = stream.words(-(-n // 2)).numpy().view(np.uint32)[:n]

    def more(pair: Indices, chunk: int) -> Further:
        bits = stream.further(pair, chunk).copy()
        bits[:, 0] >>= np.uint64(31 if chunk == 0 else 0)
        return bits

    pairs = Kept(Fixed(words, more))
    out = np.empty((2, n), np.int64)
    rounded(out, np.full(2, scale), NOTHING, pairs, most=scale)
    for index in range(0, 2 * n, 12):
        assert out.reshape(-1)[index] == nearest(slow_value(index, (2, n), np.full(2, scale), NOTHING, pairs))
    beyond = (out.astype(float) ** 2).sum(0) / scale**2 / 2 - 63 * math.log(2)
    assert kstest(beyond, "expon").pvalue > 1e-4 and beyond.max() > 4


def test_counts_of_cells_are_those_of_a_rounded_normal() -> None:
    drawn = SeededStream(1).rounded_normals(400_000, scale=1.5).numpy()
    cells = np.arange(-5, 6)
    seen = np.array([(drawn == cell).sum() for cell in cells])
    expected = len(drawn) * (ndtr((cells + 0.5) / 1.5) - ndtr((cells - 0.5) / 1.5))
    assert ((seen - expected) ** 2 / expected).sum() < chi2.ppf(1 - 1e-5, len(cells))


# The bounds hold, and what they rest on is checked.


def radius_words(count: int) -> Words:
    """Random words and those at the ends of what float32 decides."""
    ends = [np.arange(LOW, LOW + 500), np.arange(HIGH - 500, HIGH)]
    drawn = SeededStream(2).words(count // 2).numpy().view(np.uint32)
    drawn = drawn[((drawn >> np.uint32(1)) >= LOW) & ((drawn >> np.uint32(1)) < HIGH)]
    return np.concatenate([drawn, *[2 * np.concatenate(ends).astype(np.uint32) + part for part in (0, 1)]])


def test_float32_normals_are_as_near_as_their_bound_says() -> None:
    k = radius_words(1_000_000)
    turn = SeededStream(3).words(len(k)).numpy().view(np.uint32)[: len(k)]
    value, doubtful = np.empty((2, len(k)), np.float32), np.empty(len(k), np.bool_)
    rounded_normals._singles(np.stack([k, turn]), value[0], value[1], doubtful)
    assert not doubtful.any()
    for more in (0, (1 << 64) - 1):
        further = np.full(len(k), more, np.uint64)
        for second in (False, True):
            exact, _ = doubles(k, further, turn, further, np.full(len(k), second))
            assert np.abs(value[int(second)] - exact).max() < SINGLE_NORMAL


def test_what_float32_cannot_decide_is_doubtful() -> None:
    ends = [0, 1, 2 * LOW - 1, 2 * LOW, 2 * HIGH - 1, 2 * HIGH, (1 << 32) - 1]
    words = np.array([ends, [0] * 7], np.uint32)
    value, doubtful = np.empty((2, 7), np.float32), np.empty(7, np.bool_)
    rounded_normals._singles(words, value[0], value[1], doubtful)
    assert doubtful.tolist() == [True, True, True, False, False, True, True]


def test_float64_normals_are_as_near_as_their_bound_says() -> None:
    draw = np.random.default_rng(0)
    n = 1500
    k = draw.integers(0, 1 << 32, n, dtype=np.uint32) >> draw.integers(0, 33, n).clip(0, 31).astype(np.uint32)
    k[::2] = ~k[::2]
    more, turn_more = (draw.integers(0, 1 << 64, n, dtype=np.uint64) for _ in range(2))
    turn = draw.integers(0, 1 << 32, n, dtype=np.uint32)
    turn[::7] = np.array([0, 1 << 30, 1 << 31, 3 << 30], np.uint32)[np.arange(len(turn[::7])) % 4]
    for second in (False, True):
        got, extreme = doubles(k, more, turn, turn_more, np.full(n, second))
        with mpmath.workprec(200):
            for i in np.flatnonzero(~extreme):
                u = mpmath.mpf((int(k[i]) << 64) + int(more[i])) / mpmath.mpf(2) ** 96
                angle = 2 * mpmath.pi * (mpmath.mpf((int(turn[i]) << 64) + int(turn_more[i])) / mpmath.mpf(2) ** 96)
                true = mpmath.sqrt(-2 * mpmath.log(u)) * (mpmath.sin(angle) if second else mpmath.cos(angle))
                assert abs(true - mpmath.mpf(float(got[i]))) < DOUBLE_NORMAL


def test_the_bounds_of_the_proof_add_up() -> None:
    """The inequalities of docs/exactness.md, at 10⁵ places between the ends."""
    u = np.concatenate([np.geomspace(2.0**-11, 0.5, 50_000), 1 - np.geomspace(2.0**-10, 0.5, 50_000)])
    radius = np.sqrt(-2 * np.log(u))
    off = (SINGLE.unit + 2.0**-31 / u * 1.001) / radius + radius * (SINGLE.log / 2 + 2 * SINGLE.unit)
    turned = math.pi * 2.5 * SINGLE.unit + 2 * math.pi * 2.0**-32 + SINGLE.trig
    assert (off + (radius + off) * (turned + SINGLE.unit)).max() < SINGLE_NORMAL
    u = np.concatenate([np.geomspace(EXTREME, 0.5, 50_000), 1 - np.geomspace(EXTREME, 0.5, 50_000)])
    length, near = -np.where(u > 0.5, np.log1p(u - 1), np.log(u)), np.minimum(u, 1 - u)
    radius = np.sqrt(2 * length)
    relative = 2 * DOUBLE.unit + 2.0**-95 / near
    off = radius * (np.where(u > 0.5, 1.5, 1 / np.maximum(length, 0.5)) * relative + DOUBLE.log + 2 * DOUBLE.unit)
    turned = math.pi * 4 * DOUBLE.unit + 2 * math.pi * 2.0**-96 + DOUBLE.trig
    assert (off + (radius + off) * (turned + DOUBLE.unit)).max() < DOUBLE_NORMAL


def test_functions_are_nearer_than_the_proof_needs() -> None:
    check_functions()
    single, double = function_check.single_errors(400_000), function_check.double_errors(800)
    assert max(single["log"], 2 * single["sin"], 2 * single["cos"]) < SINGLE.log
    assert max(double["log"], double["log1p"]) < DOUBLE.log and max(double["sin"], double["cos"]) < DOUBLE.trig


@pytest.mark.parametrize(("name", "kind", "by"), [
    ("log", np.float32, 2.0**-18), ("cos", np.float32, 2.0**-19), ("sqrt", np.float32, 2.0**-20),
    ("log", np.float64, 2.0**-47), ("log1p", np.float64, 2.0**-47), ("sin", np.float64, 2.0**-48),
])  # fmt: skip
def test_a_biased_library_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, kind: type, by: float) -> None:
    right = getattr(np, name)

    def biased(x: npt.NDArray[Any], *rest: Any, **options: Any) -> Any:
        got = right(x, *rest, **options)
        return (got * kind(1 + by)).astype(kind) if np.asarray(x).dtype == kind else got

    function_check._check_once.cache_clear()
    monkeypatch.setattr(np, name, biased)
    with pytest.raises(StreamError, match=f"{name} of {np.dtype(kind).name} is off by"):
        SeededStream(0).rounded_normals(4, scale=1.0)
    monkeypatch.undo()
    check_functions()


def test_threads_that_ask_at_once_ask_one_after_another() -> None:
    from concurrent.futures import ThreadPoolExecutor

    before = mpmath.mp.prec
    function_check._check_once.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        for made in [pool.submit(check_functions) for _ in range(16)]:
            made.result()
    assert mpmath.mp.prec == before and function_check._check_once.cache_info().misses == 1


# Bits are appended, never drawn again; time shows nothing.


def test_both_normals_of_a_pair_share_their_bits_and_pairs_do_not() -> None:
    stream = SeededStream(0)
    one, two = stream.pairs(10), stream.pairs(5)
    again = one.further(np.array([3, 4, 3]), 0)
    assert (again[0] == again[2]).all()
    every = np.concatenate(
        [one.further(np.arange(10), c).ravel() for c in (0, 1)] + [two.further(np.arange(5), 0).ravel()]
    )
    assert len(np.unique(every)) == 50
    assert (SeededStream(0).pairs(10).further(np.array([3]), 0)[0] == again[0]).all()
    assert not (
        SecureStream().pairs(1).further(np.array([0]), 0) == SecureStream().pairs(1).further(np.array([0]), 0)
    ).any()


def test_the_doubtful_are_recomputed_in_batches_of_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    right = rounded_normals._in_doubles

    def seen(index: Indices, *rest: Any) -> Any:
        sizes.append(len(index))
        return right(index, *rest)

    monkeypatch.setattr(rounded_normals, "_in_doubles", seen)
    stream, mean = SecureStream(), mixture(4, 2000)
    for weight in (1.0, 0.3):
        for _ in range(20):
            told = Mean(mean.sources, tuple(weight * w for w in mean.weights), 0.5, mean.largest)
            out = np.empty((4, 2000), np.int16)
            rounded(out, np.full(4, 563.0), told, stream.pairs(4000), most=563.0)
    assert len(sizes) == 40 and len(set(sizes)) == 1 and sizes[0] < 400


def test_values_are_cut_off_at_the_bound_and_fit_any_integers() -> None:
    out, small = np.empty((3, 501), np.int64), np.empty((3, 501), np.int16)
    rounded(out, np.full(3, 900.0), NOTHING, SeededStream(1).pairs(752), most=900.0)
    rounded(small, np.full(3, 900.0), NOTHING, SeededStream(1).pairs(752), most=900.0, bound=700)
    assert (small == out.clip(-700, 700)).all() and abs(out).max() > 700


def test_scales_of_many_sizes() -> None:
    for scale in (1e-3, 1024.0, 1e9, 2.0**45):
        drawn = SeededStream(4).rounded_normals(3, 300, scale=scale)
        assert drawn.dtype == torch.int64 and drawn.shape == (3, 300)
        assert float(drawn.double().std()) == pytest.approx(scale, rel=0.1) if scale > 1 else not drawn.any()
    with pytest.raises(ArgumentError, match="scale must be at most 2\\^45"):
        SeededStream(0).rounded_normals(1, scale=1e15)
    assert SeededStream(0).rounded_normals(0, scale=1.0).shape == (0,)


def test_bounds_grow_with_what_they_bound() -> None:
    assert Bounds.of(0, 1024).single < 0.01 and Bounds.of(0, 1024).double < 1e-10
    assert Bounds.of(1e4, 1024).single > Bounds.of(0, 1024).single


def test_bits_that_never_decide_are_refused() -> None:
    with pytest.raises(StreamError, match="are not random"):
        decide(Fraction(1, 2), Fraction(3), lambda count: (1 << (count - 1), 1 << (count - 1)), second=True)
