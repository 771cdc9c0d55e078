"""Exactly rounded noise: the integer nearest to q + s·N, for an exactly normal N.

    q = Σ_j a_j (x_j − c),   N = R cos θ or R sin θ,   R = √(−2 ln U),   U, θ/2π uniform on [0, 1)

The uniforms are real numbers of which 32 bits are drawn at first; further bits are appended where they are needed,
never drawn again, and both normals of a pair share them. Three passes decide a value, each with a bound on its error:

1. float32, for all values. One that lies within `Bounds.single` of the middle between two integers is doubtful, and so
   is one whose U lies near 0 or 1.
2. float64 with 64 further bits, for the doubtful, in batches of one size. `Bounds.double` as above.
3. Intervals of any precision with as many bits as it takes, for what is left: twice `Bounds.double` of the values, one
   in 10¹⁰ of records; one in some thousands of sums, whose grid is as fine as 2⁻³² of the noise.

So the integers are exactly those of real arithmetic, given the bits. The proof of both bounds: docs/exactness.md. They
take that log, sqrt, sin and cos of float32 and float64 are as near as `SINGLE` and `DOUBLE` say (`function_check`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mixveil.core.errors import ArgumentError, StreamError

Doubles = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]
Further = npt.NDArray[np.uint64]

LOW, HIGH = 1 << 20, (1 << 31) - (1 << 21)
"""The first 31 bits of U as float32 takes them: 2⁻¹¹ ≤ U < 1 − 2⁻¹⁰."""
EXTREME = 2.0**-42
"""float64 takes U between this and one minus this."""
_COARSEST = 2.0**-4  # the largest bound with which float32 saves anything
_SPARE = 8.0  # deviations of the number of doubtful values that a batch has room for
_CACHED = 1 << 17  # values, or pairs, of a part
_BATCH = 1 << 16  # values that float64 takes at a time, where it takes all
_FIRST_BITS, _MOST_BITS = 128, 1 << 14


class Accuracy(NamedTuple):
    """How near the machine's functions are. log: relative; trig: absolute, of sin and cos on [−π, π]; unit: of one
    rounding, relative."""

    log: float
    trig: float
    unit: float


SINGLE = Accuracy(log=2.0**-20, trig=2.0**-22, unit=2.0**-24)
DOUBLE = Accuracy(log=2.0**-50, trig=2.0**-51, unit=2.0**-53)
SINGLE_NORMAL, DOUBLE_NORMAL = 2.0**-17, 2.0**-45
"""By how much a normal may be off: follows from the accuracies, see docs/exactness.md."""
_SINGLE_RADIUS, _DOUBLE_RADIUS = 4.0, 8.0  # no radius is larger that float32, or float64, decides


class Bounds(NamedTuple):
    """How far a value may be off, in steps, where float32 or float64 made it."""

    single: float
    double: float

    @classmethod
    def of(cls, mean: float, scale: float) -> Bounds:
        """mean: the largest Σ_j |a_j| (|x_j| + |c|); scale: the largest s. Each product and each sum is rounded once:
        seven roundings of all terms together, and nine."""
        return cls(
            scale * SINGLE_NORMAL + SINGLE.unit * (7 * (mean + scale * _SINGLE_RADIUS) + 1),
            scale * DOUBLE_NORMAL + DOUBLE.unit * (9 * (mean + scale * _DOUBLE_RADIUS) + 1),
        )


class Pairs(Protocol):
    """Pairs of uniforms, U and θ/2π, whose bits come as they are asked for."""

    def first(self, out: Words) -> None:
        """Fill (2, h): the first 32 bits of each U, and of each θ/2π."""

    def further(self, pair: Indices, chunk: int) -> Further:
        """(m, 2): the 64 bits number `chunk` after those, of U and of θ/2π."""


@dataclass(frozen=True)
class Mean:
    """q of (m, d) values: Σ_j weight_j (x_j − centre), all of it exact.

    Attributes:
        sources: (m, d) float32 each; none: q = 0.
        weights: (m,) float64 each.
        centre: One number.
        largest: A public bound on Σ_j |weight_j| (|x_j| + |centre|); None: it is not known, and float32 is not used.
    """

    sources: tuple[Singles, ...] = ()
    weights: tuple[Doubles, ...] = ()
    centre: float = 0.0
    largest: float | None = 0.0

    def doubles(self, index: Indices, width: int) -> Doubles:
        """q of some values, numbered row by row, in float64."""
        row, total = index // width, np.zeros(len(index))
        for x, weight in zip(self.sources, self.weights, strict=True):
            total += weight[row] * (x.reshape(-1)[index].astype(np.float64) - self.centre)
        return total

    def most(self) -> float:
        """The bound of these very values."""
        terms = [
            weight * (np.abs(x).max(1) + abs(self.centre)) for x, weight in zip(self.sources, self.weights, strict=True)
        ]
        return float(np.max(sum(terms)))

    def exact(self, index: int, width: int) -> Fraction:
        centre = Fraction(self.centre)
        values = (Fraction(float(x.reshape(-1)[index])) - centre for x in self.sources)
        weights = (Fraction(float(weight[index // width])) for weight in self.weights)
        return sum((weight * value for weight, value in zip(weights, values, strict=True)), start=Fraction(0))


NOTHING = Mean()


@dataclass
class Scratch(threading.local):
    """Arrays that a thread uses again and again: fresh memory costs more than the arithmetic on it."""

    arrays: dict[tuple[str, Any], npt.NDArray[Any]] = field(default_factory=dict)

    def get(self, name: str, size: int, dtype: Any) -> npt.NDArray[Any]:
        kept = self.arrays.get((name, dtype))
        if kept is None or len(kept) < size:
            kept = self.arrays[name, dtype] = np.empty(size, dtype)
        return kept[:size]


class _Intervals(threading.local):
    """Interval arithmetic of a thread: to make it takes longer than to decide a value."""

    made: Any = None

    def context(self) -> Any:
        if self.made is None:
            from mpmath.ctx_iv import MPIntervalContext

            self.made = MPIntervalContext()
        return self.made


_scratch, _intervals = Scratch(), _Intervals()


def rounded(
    out: npt.NDArray[Any], scale: Doubles, mean: Mean, pairs: Pairs, *, most: float, bound: int | None = None
) -> None:
    """Fill out, (m, d) integers, with those nearest to q + s·N, cut off at ±bound.

    Args:
        scale: (m,) s of each row.
        most: A public bound on s.
    """
    if not out.size:
        return
    if not out.flags.c_contiguous:
        raise ArgumentError("out must be contiguous")
    d, flat = out.shape[1], out.reshape(-1)
    half = -(-len(flat) // 2)
    words = _scratch.get("words", 2 * half, np.uint32).reshape(2, half)
    pairs.first(words)
    wide = Bounds.of(mean.most() if mean.largest is None else mean.largest, most)
    if mean.largest is not None and wide.single <= _COARSEST:
        beyond = bound is not None and mean.largest + most * _SINGLE_RADIUS + 1 > bound
        doubtful = _in_singles(words, scale, mean, wide.single, bound if beyond else None, out)
        share = 2 * wide.single + LOW * 2.0**-31 + 1 - HIGH * 2.0**-31
        size = math.ceil(share * len(flat) + _SPARE * math.sqrt(2 * share * len(flat)))  # some come in pairs
        missing = -len(doubtful) % size if len(doubtful) else size
        doubtful = np.concatenate([doubtful, np.zeros(missing, np.int64)])  # time shows nothing of their number
    else:
        doubtful, size = np.arange(len(flat)), _BATCH
    for start in range(0, len(doubtful), size):
        index = doubtful[start : start + size]
        value, undecided = _in_doubles(index, words, scale, mean, pairs, wide.double, d)
        for place in np.flatnonzero(undecided).tolist():
            value[place] = _exactly(int(index[place]), words, scale, mean, pairs, d)
        flat[index] = value if bound is None else value.clip(-bound, bound)


def _in_singles(
    words: Words, scale: Doubles, mean: Mean, bound: float, most: int | None, out: npt.NDArray[Any]
) -> Indices:
    """Fill out as float32 has it; the numbers of the doubtful values. By parts that stay in the cache."""
    half, d = words.shape[1], out.shape[1]
    normal = _scratch.get("normal", 2 * half, np.float32)
    doubtful = _scratch.get("doubtful", 2 * half, np.bool_)
    for start in range(0, half, _CACHED):
        part = slice(start, min(start + _CACHED, half))
        _singles(words[:, part], normal[:half][part], normal[half:][part], doubtful[:half][part])
    doubtful[half:] = doubtful[:half]
    normal, doubtful = normal[: out.size].reshape(out.shape), doubtful[: out.size].reshape(out.shape)
    rows = max(1, _CACHED // d)
    for start in range(0, len(out), rows):
        part = slice(start, start + rows)
        _mixed(normal[part], scale[part], mean, part)
        _nearest(normal[part], bound, most, out[part], doubtful[part])
    return np.flatnonzero(doubtful)


def _singles(words: Words, first: Singles, second: Singles, doubtful: npt.NDArray[np.bool_]) -> None:
    """Fill first and second with the normals of all pairs, as float32 has them, and doubtful with where U is too near
    0 or 1."""
    size = words.shape[1]
    radius, angle = (_scratch.get(name, size, np.float32) for name in ("radius", "angle"))
    top = _scratch.get("top", size, np.uint32)
    np.right_shift(words[0], np.uint32(1), out=top)
    np.copyto(radius, top.view(np.int32), casting="unsafe")
    top -= np.uint32(LOW)  # what lies below wraps around
    np.greater_equal(top, np.uint32(HIGH - LOW), out=doubtful)
    np.maximum(radius, np.float32(1), out=radius)  # a logarithm of 0 would warn; it is doubtful all the same
    radius *= np.float32(2.0**-31)
    np.log(radius, out=radius)
    radius *= np.float32(-2)
    np.sqrt(radius, out=radius)
    np.copyto(angle, words[1].view(np.int32), casting="unsafe")
    angle *= np.float32(math.pi * 2.0**-31)
    np.cos(angle, out=first)
    np.sin(angle, out=second)
    first *= radius
    second *= radius


def _mixed(normal: Singles, scale: Doubles, mean: Mean, part: slice) -> None:
    """Scale the normals of some rows, and add their means."""
    normal *= scale.astype(np.float32)[:, None]
    if not mean.sources:
        return
    spare = _scratch.get("spare", normal.size, np.float32).reshape(normal.shape)
    for x, weight in zip(mean.sources, mean.weights, strict=True):
        normal += np.multiply(x[part], weight[part].astype(np.float32)[:, None], out=spare)
    if mean.centre:
        normal -= (mean.centre * np.sum([weight[part] for weight in mean.weights], axis=0)).astype(np.float32)[:, None]


def _nearest(
    value: Singles, bound: float, most: int | None, out: npt.NDArray[Any], doubtful: npt.NDArray[np.bool_]
) -> None:
    """Fill out with the nearest integers, and mark where another may be nearer; value is overwritten."""
    nearest = _scratch.get("nearest", value.size, np.float32).reshape(value.shape)
    near = _scratch.get("near", value.size, np.bool_).reshape(value.shape)
    np.rint(value, out=nearest)
    value -= nearest
    np.abs(value, out=value)
    np.greater_equal(value, np.float32(0.5 - bound), out=near)
    doubtful |= near
    if most is not None:
        np.clip(nearest, -most, most, out=nearest)
    np.copyto(out, nearest, casting="unsafe")


def _in_doubles(
    index: Indices, words: Words, scale: Doubles, mean: Mean, pairs: Pairs, bound: float, d: int
) -> tuple[Doubles, npt.NDArray[np.bool_]]:
    """The integers of some values, as float64 has them; and which of them it cannot tell."""
    half = words.shape[1]
    pair = index % half
    more = pairs.further(pair, 0)
    normal, extreme = doubles(words[0][pair], more[:, 0], words[1][pair], more[:, 1], index >= half)
    exact = mean.doubles(index, d) + scale[index // d] * normal
    nearest = np.rint(exact)
    return nearest, (np.abs(exact - nearest) >= 0.5 - bound) | extreme


def doubles(
    k: Words, k_more: Further, turn: Words, turn_more: Further, second: npt.NDArray[np.bool_]
) -> tuple[Doubles, npt.NDArray[np.bool_]]:
    """Normals from 96 bits of each uniform, as float64 has them: R sin θ where `second`, else R cos θ. And where U is
    so near 0 or 1 that they may be further off than `DOUBLE_NORMAL`."""
    low = k * 2.0**-32 + k_more * 2.0**-96
    high = ~k * 2.0**-32 + ~k_more * 2.0**-96  # 1 − U, exact near 0
    log = np.log(np.maximum(low, 2.0**-100))
    near_one = np.flatnonzero(k >= np.uint32(1 << 31))
    log[near_one] = np.log1p(-high[near_one])
    quarter = np.where(second, np.uint32(0), np.uint32(1 << 30))  # cos θ = sin(θ + π/2)
    angle = ((turn + quarter).view(np.int32) + turn_more * 2.0**-64) * (math.pi * 2.0**-31)
    return np.sqrt(-2 * log) * np.sin(angle), np.minimum(low, high) < EXTREME


def _exactly(index: int, words: Words, scale: Doubles, mean: Mean, pairs: Pairs, d: int) -> int:
    """One value, with as many bits as it takes."""
    half = words.shape[1]
    pair = index % half

    def bits(count: int) -> tuple[int, int]:
        found, known = [int(words[0][pair]), int(words[1][pair])], 32
        for chunk in range(-(-(count - 32) // 64)):
            more = pairs.further(np.array([pair]), chunk)[0]
            found = [(part << 64) | int(word) for part, word in zip(found, more, strict=True)]
            known += 64
        return found[0] >> (known - count), found[1] >> (known - count)

    return decide(mean.exact(index, d), Fraction(float(scale[index // d])), bits, second=index >= half)


def decide(mean: Fraction, scale: Fraction, bits: Callable[[int], tuple[int, int]], *, second: bool) -> int:
    """The integer nearest to mean + scale · N, by intervals that hold N, each twice as precise as the last.

    bits: from a number to as many first bits of U and of θ/2π, as integers; second: N = R sin θ, not R cos θ."""
    real, count = _intervals.context(), _FIRST_BITS
    while count <= _MOST_BITS:
        real.prec = count + 64
        of_radius, of_turn = bits(count)
        if of_radius:  # else ln U has no lower end yet
            u = real.mpf([of_radius, of_radius + 1]) / 2**count
            theta = 2 * real.pi * real.mpf([of_turn, of_turn + 1]) / 2**count
            normal = real.sqrt(-2 * real.log(u)) * (real.sin(theta) if second else real.cos(theta))
            low, high = (math.floor(mean + scale * _fraction(end) + Fraction(1, 2)) for end in normal._mpi_)
            if low == high:
                return low
        count *= 2
    raise StreamError(f"{_MOST_BITS:,} bits do not decide a rounding: they are not random")


def _fraction(end: tuple[int, int, int, int]) -> Fraction:
    """An end of an interval, exact: sign, mantissa and exponent of two."""
    sign, mantissa, exponent, _ = end
    return Fraction(-int(mantissa) if sign else int(mantissa)) * Fraction(2) ** int(exponent)
