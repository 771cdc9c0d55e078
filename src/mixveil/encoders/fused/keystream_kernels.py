"""`core.keystreams` in Triton: 16 words of many blocks at once, each word a tensor in registers."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _turned(word, left: tl.constexpr):
    return (word << left) | (word >> (32 - left))


@triton.jit
def _quarter(a, b, c, d):
    a += b
    d = _turned(d ^ a, 16)
    c += d
    b = _turned(b ^ c, 12)
    a += b
    d = _turned(d ^ a, 8)
    c += d
    b = _turned(b ^ c, 7)
    return a, b, c, d


@triton.jit
def _double_round(s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15):
    s0, s4, s8, s12 = _quarter(s0, s4, s8, s12)
    s1, s5, s9, s13 = _quarter(s1, s5, s9, s13)
    s2, s6, s10, s14 = _quarter(s2, s6, s10, s14)
    s3, s7, s11, s15 = _quarter(s3, s7, s11, s15)
    s0, s5, s10, s15 = _quarter(s0, s5, s10, s15)
    s1, s6, s11, s12 = _quarter(s1, s6, s11, s12)
    s2, s7, s8, s13 = _quarter(s2, s7, s8, s13)
    s3, s4, s9, s14 = _quarter(s3, s4, s9, s14)
    return s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15


@triton.jit
def _chacha(low, high, plane, k0, k1, k2, k3, k4, k5, k6, k7, ROUNDS: tl.constexpr):
    zero = low ^ low
    c0, c1, c2, c3 = zero + 0x61707865, zero + 0x3320646E, zero + 0x79622D32, zero + 0x6B206574
    n0 = zero + plane
    s0, s1, s2, s3, s12, s13, s14, s15 = c0, c1, c2, c3, low, high, n0, zero
    s4, s5, s6, s7, s8, s9, s10, s11 = (
        zero + k0,
        zero + k1,
        zero + k2,
        zero + k3,
        zero + k4,
        zero + k5,
        zero + k6,
        zero + k7,
    )
    for _ in range(ROUNDS // 2):  # not written out: that takes tens of seconds to compile
        s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15 = _double_round(
            s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15
        )
    return (
        s0 + c0,
        s1 + c1,
        s2 + c2,
        s3 + c3,
        s4 + k0,
        s5 + k1,
        s6 + k2,
        s7 + k3,
        s8 + k4,
        s9 + k5,
        s10 + k6,
        s11 + k7,
        s12 + low,
        s13 + high,
        s14 + n0,
        s15,
    )


@triton.jit
def _philox(low, high, plane, k0, k1, ROUNDS: tl.constexpr):
    zero = low ^ low
    seed = (k1.to(tl.uint64) << 32) | k0.to(tl.uint64)
    last = zero + plane
    s0, s1, s2, s3 = tl.philox(seed, low, high, zero, last, ROUNDS)
    s4, s5, s6, s7 = tl.philox(seed, low, high, zero + 1, last, ROUNDS)
    s8, s9, s10, s11 = tl.philox(seed, low, high, zero + 2, last, ROUNDS)
    s12, s13, s14, s15 = tl.philox(seed, low, high, zero + 3, last, ROUNDS)
    return s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15


@triton.jit
def words_of(block, plane, k0, k1, k2, k3, k4, k5, k6, k7, CHACHA: tl.constexpr, ROUNDS: tl.constexpr):
    """16 tensors of words (uint32) of the blocks with these numbers (int64). k0 … k7: int32, the key."""
    low = (block & 0xFFFFFFFF).to(tl.uint32)
    high = (block >> 32).to(tl.uint32)
    k0, k1 = k0.to(tl.uint32, bitcast=True), k1.to(tl.uint32, bitcast=True)
    k2, k3 = k2.to(tl.uint32, bitcast=True), k3.to(tl.uint32, bitcast=True)
    k4, k5 = k4.to(tl.uint32, bitcast=True), k5.to(tl.uint32, bitcast=True)
    k6, k7 = k6.to(tl.uint32, bitcast=True), k7.to(tl.uint32, bitcast=True)
    if CHACHA:
        return _chacha(low, high, plane, k0, k1, k2, k3, k4, k5, k6, k7, ROUNDS)
    else:  # noqa: RET505
        return _philox(low, high, plane, k0, k1, ROUNDS)


@triton.jit(do_not_specialize=["first", "k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"])
def raw_words(
    out, first, plane, k0, k1, k2, k3, k4, k5, k6, k7,
    CHACHA: tl.constexpr, ROUNDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The keystream itself, (blocks, 16), for checks. first: int64 in memory, the number of the first block."""
    here = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    words = words_of(tl.load(first) + here, plane, k0, k1, k2, k3, k4, k5, k6, k7, CHACHA, ROUNDS)
    for t in tl.static_range(16):
        tl.store(out + here * 16 + t, words[t].to(tl.int32, bitcast=True))
