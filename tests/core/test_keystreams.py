"""The reference keystreams: published vectors, the cipher of `cryptography`, and blocks one by one."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from hypothesis import given, settings
from hypothesis import strategies as st

from mixveil.core.errors import ArgumentError
from mixveil.core.keystreams import ROUNDS, Generator, blocks, key_words, pair_bits

KEY = bytes(range(32))
GENERATORS: list[Generator] = ["chacha20", "chacha12", "philox"]


def at(*counters: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(counters, np.uint64)


def test_chacha12_has_the_published_keystream_of_a_zero_key() -> None:
    known = (
        "9bf49a6a0755f953811fce125f2683d50429c3bb49e074147e0089a52eae155f"
        "0564f879d27ae3c02ce82834acfa8c793a629f2ca0de6919610be82f411326be"
    )
    assert blocks("chacha12", bytes(32), at(0), 0).tobytes().hex() == known


@given(st.binary(min_size=32, max_size=32), *[st.integers(0, 2**32 - 3)] * 2, st.integers(0, 2**64 - 1))
@settings(deadline=None)
def test_chacha20_is_the_cipher_of_cryptography(key: bytes, low: int, high: int, plane: int) -> None:
    counter = high << 32 | low  # that library refuses to carry from the lower half to the upper
    nonce = counter.to_bytes(8, "little") + plane.to_bytes(8, "little")
    keystream = Cipher(algorithms.ChaCha20(key, nonce), None).encryptor().update(bytes(128))
    assert blocks("chacha20", key, at(counter, counter + 1), plane).tobytes() == keystream


def test_philox_has_the_published_words_of_zeros() -> None:
    words = blocks("philox", bytes(32), at(0), 0)[0, :4]
    assert [hex(word) for word in words.tolist()] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


@pytest.mark.parametrize("generator", GENERATORS)
def test_blocks_do_not_depend_on_which_are_asked_for_together(generator: Generator) -> None:
    together = blocks(generator, KEY, at(5, 2**32 - 1, 2**32), 3)
    for found, counter in zip(together, (5, 2**32 - 1, 2**32), strict=True):
        assert (blocks(generator, KEY, at(counter), 3)[0] == found).all()


@pytest.mark.parametrize("generator", GENERATORS)
def test_keys_counters_and_planes_give_different_blocks(generator: Generator) -> None:
    made = [
        blocks(generator, key, at(c), p).tobytes() for key in (KEY, KEY[::-1]) for c in (0, 1, 2**32) for p in (0, 1)
    ]
    assert len(set(made)) == len(made)


@given(
    st.sampled_from(GENERATORS), st.binary(min_size=32, max_size=32), st.integers(0, 2**64 - 1),
    st.tuples(*[st.integers(0, 15)] * 2), st.lists(st.integers(1, 300), min_size=1, max_size=3),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_bits_of_a_pair_are_those_of_the_planes_in_order(
    generator: Generator, key: bytes, counter: int, words: tuple[int, int], counts: list[int]
) -> None:
    first = pair_bits(generator, key, counter, words)
    planes = [blocks(generator, key, at(counter), plane)[0] for plane in range(10)]
    whole = [sum(int(plane[word]) << 32 * (9 - i) for i, plane in enumerate(planes)) for word in words]
    for n in counts:
        assert first(n) == tuple(bits >> (320 - n) for bits in whole)


def test_key_words_are_the_key_in_little_endian_order() -> None:
    assert b"".join(word.to_bytes(4, "little", signed=True) for word in key_words(KEY[::-1])) == KEY[::-1]


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(ArgumentError, match="32 bytes, got 31"):
        blocks("chacha20", bytes(31), at(0), 0)


def test_rounds_are_those_of_the_names() -> None:
    assert ROUNDS == {"chacha20": 20, "chacha12": 12, "philox": 10}
