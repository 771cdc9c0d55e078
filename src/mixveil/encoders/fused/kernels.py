"""The two kernels of `encoding`: all values in float32, and the doubtful ones in float64.

HARDWARE: the GPU's own approximations of logarithm, square root, sine and cosine; False in Triton's interpreter.
"""

# mypy: ignore-errors
# ruff: noqa: RUF005
from __future__ import annotations

import triton
import triton.language as tl

from mixveil.encoders.fused import budget
from mixveil.encoders.fused.keystream_kernels import words_of

_LN2: tl.constexpr = tl.constexpr(0.6931471805599453)
_TURN: tl.constexpr = tl.constexpr(6.283185307179586)
_LOW: tl.constexpr = tl.constexpr(budget.LOW)
_USABLE: tl.constexpr = tl.constexpr(budget.HIGH - budget.LOW)
_EDGE: tl.constexpr = tl.constexpr(budget.DOUBLE_EDGE)
_FEW: tl.constexpr = tl.constexpr(budget.FEW)
_SHIFTER: tl.constexpr = tl.constexpr(12582912.0)  # 1.5 · 2²³: a float32 added to it is rounded to a whole number


@triton.jit
def _hardware(x, NAME: tl.constexpr):
    return tl.inline_asm_elementwise(NAME + ".approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)


@triton.jit
def radius32(word, HARDWARE: tl.constexpr):
    """√(−2 ln u) of the middle of a word's cell, in float32."""
    u = tl.fma(word.to(tl.float32), 2.0**-32, 2.0**-33)
    if HARDWARE:
        return _hardware(_hardware(u, "lg2") * (-2 * _LN2), "sqrt")
    else:  # noqa: RET505
        return tl.sqrt(tl.log2(u) * (-2 * _LN2))


@triton.jit
def turned32(word, HARDWARE: tl.constexpr):
    """Cosine and sine of a word's angle, in float32."""
    angle = word.to(tl.int32, bitcast=True).to(tl.float32) * (_TURN * 2.0**-32)
    if HARDWARE:
        return _hardware(angle, "cos"), _hardware(angle, "sin")
    else:  # noqa: RET505
        return tl.cos(angle), tl.sin(angle)


@triton.jit
def _written(value, out, inside, bound, most):
    """Stores rounded values, and says which are doubtful."""
    value = tl.minimum(tl.maximum(value, -bound), bound)
    rounded = value + _SHIFTER
    tl.store(out, rounded.to(tl.int32, bitcast=True).to(tl.int16), mask=inside)
    return tl.abs(value - (rounded - _SHIFTER)) > most


@triton.jit(do_not_specialize=["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "room"])
def fused(
    own, other, partner, factors, out, counts, doubtful, first_row, room, d, blocks, bound, most,
    k0, k1, k2, k3, k4, k5, k6, k7,
    CHACHA: tl.constexpr, ROUNDS: tl.constexpr, BLOCK: tl.constexpr, PAIRED: tl.constexpr,
    HARDWARE: tl.constexpr,
):  # fmt: skip
    """One program a row and BLOCK/64 tiles of it: noise, mixture, rounding, and a list of blocks with doubtful values.

    own (m, d), other (n, d) float32; partner (m,) int64 rows of other; factors (m, 4) float32: of own, of other, the
    shift, the noise; out (m, d) int16; counts (m,) int32, zeros; doubtful (m, room) int64: block of the row · 2¹⁶ +
    which of its 16 values; first_row (1,) int64: the number of the first row in the keystream.
    """
    row = tl.program_id(1).to(tl.int64)
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # the block within the row
    column = (lane // 64) * 1024 + lane % 64
    factor = tl.load(factors + row * 4)
    shift, scale = tl.load(factors + row * 4 + 2), tl.load(factors + row * 4 + 3)
    own_at, out_at = own + row * d + column, out + row * d + column
    if PAIRED:
        other_at = other + tl.load(partner + row) * d + column
        other_factor = tl.load(factors + row * 4 + 1)
    read = ()  # before the noise is made: memory and arithmetic at the same time
    for word in tl.static_range(16):
        read = read + (tl.load(own_at + word * 64, mask=column < d - word * 64),)
    if PAIRED:
        for word in tl.static_range(16):
            read = read + (tl.load(other_at + word * 64, mask=column < d - word * 64),)
    number = (tl.load(first_row) + row) * blocks + lane
    words = words_of(number, 0, k0, k1, k2, k3, k4, k5, k6, k7, CHACHA, ROUNDS)
    flags = tl.zeros([BLOCK], tl.int32)
    for t in tl.static_range(8):
        radius = radius32(words[t], HARDWARE) * scale
        cosine, sine = turned32(words[t + 8], HARDWARE)
        flags = tl.where((words[t] - _LOW) < _USABLE, flags, flags | (0x101 << t))
        for half in tl.static_range(2):
            step = (t + 8 * half) * 64
            inside = column < d - step
            mean = tl.fma(read[t + 8 * half], factor, shift)
            if PAIRED:
                mean = tl.fma(read[16 + t + 8 * half], other_factor, mean)
            value = tl.fma(radius, sine if half else cosine, mean)
            doubt = _written(value, out_at + step, inside, bound, most)
            flags = tl.where(doubt, flags | (1 << (t + 8 * half)), flags)
    within = tl.minimum(tl.maximum((d - column + 63) // 64, 0), 16)  # how many of the lane's values there are
    flags = flags & ((1 << within) - 1)
    flagged = (flags != 0).to(tl.int32)
    place = tl.cumsum(flagged, 0) - flagged
    place += tl.atomic_add(counts + row, tl.sum(flagged, 0), sem="relaxed")
    entry = (lane.to(tl.int64) << 16) | flags.to(tl.int64)
    tl.store(doubtful + row * room + place, entry, mask=(flagged != 0) & (place < room))


@triton.jit
def _radius64(word, more, last):
    """√(−2 ln u) in float64, from three words of u. Above one half the logarithm is that of 1 − e, where
    ln(w)·(1 − e − 1)/(w − 1) with w = 1 − e rounded loses nothing."""
    upper = word >= 0x80000000
    head = tl.where(upper, word ^ 0xFFFFFFFF, word).to(tl.float64)
    rest = tl.where(upper, more ^ 0xFFFFFFFF, more).to(tl.float64)
    rest += (tl.where(upper, last ^ 0xFFFFFFFF, last).to(tl.float64) + 0.5) * 2.0**-32
    small = (head + rest * 2.0**-32) * 2.0**-32  # u, or 1 − u
    w = tl.where(upper, 1.0 - small, small)
    gap = tl.where(upper & (w != 1.0), w - 1.0, -1.0)
    logarithm = tl.log(w) * tl.where(upper & (w != 1.0), -small / gap, 1.0)
    logarithm = tl.where(upper & (w == 1.0), -small, logarithm)
    return tl.sqrt(-2.0 * logarithm)


@triton.jit
def _rare(word):
    """Whether U is so near 0 or 1 that a third word of it is needed."""
    return (word + _FEW) < 2 * _FEW


@triton.jit
def _angle64(word, more):
    """In [−π, π), the middle of a cell of 2⁻⁶⁴ turns."""
    head = word.to(tl.int32, bitcast=True).to(tl.float64)
    return (head + (more.to(tl.float64) + 0.5) * 2.0**-32) * 2.0**-32 * _TURN


@triton.jit
def _chosen(lowest, words, further, third):
    """The words of the pair with the lowest flag, in each lane, and the pair's number."""
    k, w, more_k, more_w, last, t = words[0], words[8], further[0], further[8], third[0], lowest * 0
    for j in tl.static_range(1, 8):
        hit = (lowest & (0x101 << j)) != 0
        k, w, t = tl.where(hit, words[j], k), tl.where(hit, words[j + 8], w), tl.where(hit, j, t)
        more_k, more_w = tl.where(hit, further[j], more_k), tl.where(hit, further[j + 8], more_w)
        last = tl.where(hit, third[j], last)
    return k, w, more_k, more_w, last, t


@triton.jit
def _mean64(own, other, here, wanted, factor, other_factor, centre, PAIRED: tl.constexpr):
    mean = (tl.load(own + here, mask=wanted, other=0.0).to(tl.float64) - centre) * factor
    if PAIRED:
        mixed = tl.load(other + here, mask=wanted, other=0.0).to(tl.float64)
        mean += (mixed - centre) * other_factor
    return mean


@triton.jit(do_not_specialize=["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "room", "open_room"])
def doubled(
    own, other, partner, factors, out, counts, doubtful, first_row, room, d, blocks, limits,
    open_count, still_open, open_room,
    k0, k1, k2, k3, k4, k5, k6, k7,
    CHACHA: tl.constexpr, ROUNDS: tl.constexpr, BLOCK: tl.constexpr, PAIRED: tl.constexpr,
    LISTED: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    """The doubtful values of a row in float64; all values where no list is given (LISTED = False). What float64 leaves
    open goes to still_open (open_room,) int64: row of this call · 2³² + column.

    factors (m, 3) float64: of own, of other, the noise; limits (3,) float64: the centre, the bound, and how far a
    value that is decided may be from a whole number.
    """
    row = tl.program_id(1).to(tl.int64)
    entry = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if LISTED:
        known = entry < tl.minimum(tl.load(counts + row), room)
        listed = tl.load(doubtful + row * room + entry, mask=known, other=0)
        lane, flags = listed >> 16, (listed & 0xFFFF).to(tl.int32)
    else:
        lane, flags = entry.to(tl.int64), tl.where(entry < blocks, 0xFFFF, 0)
    if tl.max(flags, 0) > 0:
        number = (tl.load(first_row) + row) * blocks + lane
        words = words_of(number, 0, k0, k1, k2, k3, k4, k5, k6, k7, CHACHA, ROUNDS)
        further = words_of(number, 1, k0, k1, k2, k3, k4, k5, k6, k7, CHACHA, ROUNDS)
        zero = words[0] ^ words[0]
        r0, r1, r2, r3, r4, r5, r6, r7 = zero, zero, zero, zero, zero, zero, zero, zero
        rare = _rare(words[0]) | _rare(words[1]) | _rare(words[2]) | _rare(words[3])
        rare = rare | _rare(words[4]) | _rare(words[5]) | _rare(words[6]) | _rare(words[7])
        if tl.max(rare.to(tl.int32), 0) > 0:
            drawn = words_of(number, 2, k0, k1, k2, k3, k4, k5, k6, k7, CHACHA, ROUNDS)
            r0, r1, r2, r3 = drawn[0], drawn[1], drawn[2], drawn[3]
            r4, r5, r6, r7 = drawn[4], drawn[5], drawn[6], drawn[7]
        third = (r0, r1, r2, r3, r4, r5, r6, r7)
        factor, other_factor, scale = (
            tl.load(factors + row * 3),
            tl.load(factors + row * 3 + 1),
            tl.load(factors + row * 3 + 2),
        )
        centre, bound, most = tl.load(limits), tl.load(limits + 1), tl.load(limits + 2)
        own_row, other_row, out_row = own + row * d, other, out + row * d
        if PAIRED:
            other_row = other + tl.load(partner + row) * d
        first = (lane // 64) * 1024 + lane % 64
        while tl.max(flags, 0) > 0:
            lowest = flags & (-flags)
            flags = flags ^ lowest
            k, w, more_k, more_w, last, t = _chosen(lowest, words, further, third)
            second = lowest >= 0x100
            here = first + (t + tl.where(second, 8, 0)) * 64
            wanted = (lowest != 0) & (here < d)
            angle = _angle64(w, more_w)
            noise = _radius64(k, more_k, last) * tl.where(second, tl.sin(angle), tl.cos(angle)) * scale
            value = _mean64(own_row, other_row, here, wanted, factor, other_factor, centre, PAIRED) + noise
            value = tl.minimum(tl.maximum(value, -bound), bound)
            near = tl.floor(value + 0.5)
            tl.store(out_row + here, near.to(OUT), mask=wanted)
            unusable = (k == 0) & (more_k < _EDGE)
            unusable = unusable | ((k == 0xFFFFFFFF) & ((more_k ^ 0xFFFFFFFF) < _EDGE))
            unsure = ((tl.abs(value - near) > most) | unusable) & wanted
            if tl.max(unsure.to(tl.int32), 0) > 0:
                at = tl.atomic_add(open_count + here * 0, 1, mask=unsure)
                tl.store(still_open + at, (row << 32) | here.to(tl.int64), mask=unsure & (at < open_room))


@triton.jit
def parts(words, single, double, n, HARDWARE: tl.constexpr, BLOCK: tl.constexpr):
    """For checks: R, cos θ and sin θ, (3, n) in float32 and in float64, of words (5, n) int64: those of U and T, those
    that follow, and the third of U."""
    here = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k, w = tl.load(words + here).to(tl.uint32), tl.load(words + n + here).to(tl.uint32)
    more_k, more_w = tl.load(words + 2 * n + here).to(tl.uint32), tl.load(words + 3 * n + here).to(tl.uint32)
    cosine, sine = turned32(w, HARDWARE)
    tl.store(single + here, radius32(k, HARDWARE))
    tl.store(single + n + here, cosine)
    tl.store(single + 2 * n + here, sine)
    angle = _angle64(w, more_w)
    tl.store(double + here, _radius64(k, more_k, tl.load(words + 4 * n + here).to(tl.uint32)))
    tl.store(double + n + here, tl.cos(angle))
    tl.store(double + 2 * n + here, tl.sin(angle))
