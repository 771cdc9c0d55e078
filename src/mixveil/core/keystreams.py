"""Keystreams that a GPU can make too: ChaCha20, ChaCha12 and Philox, here by numpy, as the reference,
and by plain integers, for one block.

A keystream is cut into blocks of 16 words of 32 bits, numbered by a counter, on several planes: the words of plane 0
are the first 32 bits of 16 uniforms, those of plane 1 their next 32 bits, and so on, for as many bits as are needed.

- ChaCha in its original layout: four constants, a key of 256 bits, a counter of 64 bits, and the plane as the nonce of
  64 bits. A block number is never used twice under a key, so the keystream is as good as the cipher.
- Philox 4×32 with 10 rounds under the first 64 bits of the key: for experiments, no secret.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mixveil.core.errors import ArgumentError

Words = NDArray[np.uint32]
Generator = Literal["chacha20", "chacha12", "philox"]

KEY_BYTES = 32
ROUNDS = {"chacha20": 20, "chacha12": 12, "philox": 10}

_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)  # "expand 32-byte k"
_COLUMNS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
_DIAGONALS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
_PHILOX_FACTORS = (0xD2511F53, 0xCD9E8D57)
_PHILOX_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = 0xFFFFFFFF


def blocks(generator: Generator, key: bytes, counters: NDArray[np.uint64], plane: int) -> Words:
    """(m, 16) words: the blocks with these numbers (m,) on a plane."""
    if len(key) != KEY_BYTES:
        raise ArgumentError(f"key must have {KEY_BYTES} bytes, got {len(key)}")
    if generator == "philox":
        return philox(key, counters, plane)
    return _chacha(key, counters, plane, ROUNDS[generator])


def key_words(key: bytes) -> tuple[int, ...]:
    """The eight words of a key, as signed integers of 32 bits."""
    return tuple(np.frombuffer(key, "<i4").tolist())


def pair_bits(
    generator: Generator, key: bytes, counter: int, words: tuple[int, int]
) -> Callable[[int], tuple[int, int]]:
    """The first n bits of two uniforms of a block, as whole numbers below 2ⁿ. By plain integers: for one block they are
    quicker than arrays."""
    planes: list[tuple[int, int]] = []

    def first(n: int) -> tuple[int, int]:
        while 32 * len(planes) < n:
            if generator == "philox":
                planes.append(_philox_pair(key, counter, len(planes), words))
            else:
                planes.extend(_chacha_pairs(key, counter, len(planes), words, ROUNDS[generator]))
        one = other = 0
        for left, right in planes:
            one, other = one << 32 | left, other << 32 | right
        beyond = 32 * len(planes) - n
        return one >> beyond, other >> beyond

    return first


def _chacha(key: bytes, counters: NDArray[np.uint64], nonce: int, rounds: int) -> Words:
    low = (counters & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    start = np.empty((16, len(counters)), np.uint32)
    start[:4] = np.array(_CONSTANTS, np.uint32)[:, None]
    start[4:12] = np.frombuffer(key, "<u4")[:, None]
    start[12], start[13] = low, (counters >> np.uint64(32)).astype(np.uint32)
    start[14], start[15] = nonce & 0xFFFFFFFF, nonce >> 32
    state = start.copy()
    for _ in range(rounds // 2):
        for a, b, c, d in _COLUMNS + _DIAGONALS:
            for left, right, mixed, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                state[left] += state[right]
                state[mixed] ^= state[left]
                state[mixed] = state[mixed] << np.uint32(turn) | state[mixed] >> np.uint32(32 - turn)
    return np.ascontiguousarray((state + start).T)


def philox(key: bytes, counters: NDArray[np.uint64], plane: int, calls: int = 4) -> Words:
    """(m, 4 · calls) words of Philox: the third word of a counter tells the calls of a block apart, the fourth is the
    plane."""
    found = np.empty((len(counters), 4 * calls), np.uint32)
    for call in range(calls):
        c = [counters & np.uint64(0xFFFFFFFF), counters >> np.uint64(32)]
        c += [np.full_like(counters, call), np.full_like(counters, plane)]
        k0, k1 = (int(word) for word in np.frombuffer(key[:8], "<u4"))
        for _ in range(ROUNDS["philox"]):
            first, second = c[0] * np.uint64(_PHILOX_FACTORS[0]), c[2] * np.uint64(_PHILOX_FACTORS[1])
            low = np.uint64(0xFFFFFFFF)
            c = [
                second >> np.uint64(32) ^ c[1] ^ np.uint64(k0),
                second & low,
                first >> np.uint64(32) ^ c[3] ^ np.uint64(k1),
                first & low,
            ]
            k0, k1 = (k0 + _PHILOX_STEPS[0]) & 0xFFFFFFFF, (k1 + _PHILOX_STEPS[1]) & 0xFFFFFFFF
        found[:, 4 * call : 4 * call + 4] = np.stack(c, axis=1).astype(np.uint32)
    return found


def _chacha_pairs(key: bytes, counter: int, first: int, words: tuple[int, int], rounds: int) -> list[tuple[int, int]]:
    """Two words of a block on four planes. A row of the state is one integer: four columns of four planes, with 64 bits
    of room for each word of 32."""
    mask, full = sum(_LOW << 64 * lane for lane in range(16)), (1 << 64 * 16) - 1

    def row(*columns: int) -> int:
        return sum(column << 64 * (4 * j + plane) for j, column in enumerate(columns) for plane in range(4))

    def turned(x: int, left: int) -> int:
        return (x << left | x >> (32 - left)) & mask

    def rolled(x: int, columns: int) -> int:
        return x >> 256 * columns | x << 256 * (4 - columns) & full

    keyed = np.frombuffer(key, "<u4").tolist()
    nonces = sum((first + plane & _LOW) << 64 * (8 + plane) for plane in range(4))
    start = (row(*_CONSTANTS), row(*keyed[:4]), row(*keyed[4:]), row(counter & _LOW, counter >> 32) | nonces)
    a, b, c, d = start
    for half in range(rounds):
        a = a + b & mask
        d = turned(d ^ a, 16)
        c = c + d & mask
        b = turned(b ^ c, 12)
        a = a + b & mask
        d = turned(d ^ a, 8)
        c = c + d & mask
        b = turned(b ^ c, 7)
        step = 3 if half % 2 else 1  # to the diagonals, and back
        b, c, d = rolled(b, step), rolled(c, 2), rolled(d, 4 - step)
    ends = [end + begun & mask for end, begun in zip((a, b, c, d), start, strict=True)]
    one, other = (ends[word // 4] >> 256 * (word % 4) for word in words)
    return [(one >> 64 * plane & _LOW, other >> 64 * plane & _LOW) for plane in range(4)]


def _philox_pair(key: bytes, counter: int, plane: int, words: tuple[int, int]) -> tuple[int, int]:
    """Two words of a block on one plane."""
    found = []
    for word in words:
        c = (counter & _LOW, counter >> 32, word // 4, plane)
        k0, k1 = np.frombuffer(key[:8], "<u4").tolist()
        for _ in range(ROUNDS["philox"]):
            left, right = c[0] * _PHILOX_FACTORS[0], c[2] * _PHILOX_FACTORS[1]
            c = (right >> 32 ^ c[1] ^ k0, right & _LOW, left >> 32 ^ c[3] ^ k1, left & _LOW)
            k0, k1 = k0 + _PHILOX_STEPS[0] & _LOW, k1 + _PHILOX_STEPS[1] & _LOW
        found.append(c[word % 4])
    return found[0], found[1]
