"""Random draws for everything that leaves a party.

`SecureStream` makes the noise of releases; `SeededStream` makes experiments that must repeat. Both have the same
distributions over different 64-bit words, so that a test of one holds for the other. Training draws from
`device_random.DeviceStream`, where speed counts and nothing leaves. All other modules draw through these three.

What is released with a guarantee goes through `Stream.rounded_normals` and `Stream.round_noisy`: integers that are
exactly the rounded sum of a value and a normal (`rounded_normals`). Other normals are float64, from 63-bit uniforms.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NoReturn, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError, MissingDependencyError, StreamError, TooFewRowsError
from mixveil.core.function_check import check_functions
from mixveil.core.keystreams import philox
from mixveil.core.rounded_normals import NOTHING, Doubles, Further, Indices, Mean, rounded

NORMAL_BOUND = math.sqrt(2 * 63 * math.log(2))
"""Released values are cut off where noise is larger than this, which one in 10²⁰ is; it is the radius of 2⁻⁶³, the
smallest uniform of `box_muller`."""

WEIGHT_BITS = 24
"""Mixing weights are multiples of 2⁻²⁴: exact in float32, and so is one minus each of them."""

_BLOCK = 1 << 17  # words a pass of Box–Muller: fewer cost more in calls, more do not stay in the cache
_SWAPS = 100  # rounds
_TRIES, _RARE = 200_000, 100  # draws, of which fewer that fit are too few
_63_BITS = (1 << 63) - 1
_MOST_SCALE = 2.0**45
_ZEROS = memoryview(bytes(1 << 20))
_forks = 0  # how many forks lie between this process and the one that imported this module


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


def this_process() -> tuple[int, int]:
    """A different value in every process that a stream can be carried into. The number of the process is not enough: a
    fork into a new namespace, or a late fork, may have the number of an ancestor."""
    return os.getpid(), _forks


def local_key() -> bytes:
    """A fresh key, for data that stay on this machine."""
    return os.urandom(32)


def exchange_secret() -> bytes:
    """A fresh secret for one exchange of keys, straight from the operating system. It is never written."""
    return os.urandom(32)


def release_id() -> str:
    """A fresh name for a release: 128 bits from the operating system."""
    return os.urandom(16).hex()


def box_muller(words: Tensor) -> Tensor:
    """Standard normals (float64) from as many 64-bit words, an even number: the first half gives radii from uniforms in
    (0, 1] with 63 bits, the second half angles in [−π, π)."""
    half = len(words) // 2
    radius = (words[:half] & _63_BITS).double().add_(1).mul_(2.0**-63).log_().mul_(-2).sqrt_()
    angle = words[half:].double().mul_(math.pi * 2.0**-63)
    normals = torch.empty(2 * half, dtype=torch.float64)
    torch.cos(angle, out=normals[:half]).mul_(radius)
    torch.sin(angle, out=normals[half:]).mul_(radius)
    return normals


class Stream(ABC):
    """Independent draws. Fork it by name for each consumer: a new consumer does not change the draws of the others. A
    second fork of the same name is a new stream; it never repeats the draws of the first."""

    reproducible: bool

    def _start(self, key: bytes) -> None:
        self._key = key
        self._forks: dict[str, int] = {}
        self._pairs = 0
        self._lock = threading.Lock()  # two threads must never get the same draws

    @classmethod
    def _from_key(cls, key: bytes) -> Self:
        stream = cls.__new__(cls)
        stream._start(key)
        return stream

    @abstractmethod
    def words(self, n: int) -> Tensor:
        """(n,) int64: uniform 64-bit words."""

    def fill(self, out: npt.NDArray[np.uint32]) -> None:
        """Fill an even number of uniform 32-bit words."""
        flat = out.reshape(-1)
        flat[:] = self.words(len(flat) // 2).numpy().view(np.uint32)

    def pairs(self, count: int) -> StreamPairs:
        """So many pairs of uniforms, with as many bits as are asked for."""
        with self._lock:
            start = self._pairs
            self._pairs += count
        return StreamPairs(self, start)

    @abstractmethod
    def further(self, pair: Indices, chunk: int) -> Further:
        """(m, 2) uint64: 128 bits that belong to each pair of uniforms alone, at any place."""

    def rounded_normals(self, *shape: int, scale: float) -> Tensor:
        """int64: exactly round(scale · N), N standard normals; scale at most 2⁴⁵."""
        checks.finite_positive("scale", scale)
        if scale > _MOST_SCALE:
            raise ArgumentError(f"scale must be at most 2^45, got {scale:g}")
        out = torch.empty(math.prod(shape), dtype=torch.int64)
        for part in torch.split(out, _BLOCK):
            self.round_noisy(part[None], np.array([scale]), NOTHING, most=scale)
        return out.view(shape)

    def round_noisy(self, out: Tensor, scale: Doubles, mean: Mean, *, most: float, bound: int | None = None) -> None:
        """Fill out, (m, d) integers, with exactly round(mean + scale · N), N standard normals, cut off at ±bound.

        Args:
            scale: (m,) of each row; no more than the public figure `most`.
        """
        check_functions()
        rounded(out.numpy(), scale, mean, self.pairs(-(-out.numel() // 2)), most=most, bound=bound)

    def fork(self, name: str) -> Self:
        with self._lock:
            count = self._forks.get(name, 0)
            self._forks[name] = count + 1
        return self._from_key(hmac.digest(self._key, f"{name}#{count}".encode() + self._fresh(), "sha256"))

    def key(self, name: str) -> bytes:
        """32 bytes, the key of another keystream (`core/keystreams.py`). It is as fresh as a fork, and no fork has it;
        a second key of the same name is a new one."""
        return hmac.digest(self.fork(name)._key, b"keystream", "sha256")

    def _fresh(self) -> bytes:
        """The part of a fork's key that does not follow from this stream's key."""
        return b""

    def uniform(self, *shape: int) -> Tensor:
        """Uniform in [0, 1) with 53 bits, float64."""
        return (self.words(math.prod(shape)) >> 11).bitwise_and_((1 << 53) - 1).double().mul_(2.0**-53).view(shape)

    def normal(self, *shape: int) -> Tensor:
        """Standard normals, float64, none beyond `NORMAL_BOUND`."""
        n = math.prod(shape)
        normals = torch.empty(n, dtype=torch.float64)
        for start in range(0, n, _BLOCK):
            size = min(_BLOCK, n - start)
            normals[start : start + size] = box_muller(self.words(size + size % 2))[:size]
        return normals.view(shape)

    def sphere(self, n: int, d: int, radius: float) -> Tensor:
        """(n, d) noise uniform on the sphere of that radius: normals scaled to its norm, in float64."""
        normals = self.normal(n, d)
        return normals.mul_(radius / torch.linalg.vector_norm(normals, dim=1, keepdim=True))

    def laplace(self, *shape: int) -> Tensor:
        """Laplace noise of mean size 1, float64: exponentials with fair signs."""
        size = torch.log1p(-self.uniform(math.prod(shape))).neg_()
        return size.mul_(self.signs(len(size))).view(shape)

    def signs(self, *shape: int) -> Tensor:
        """Fair ±1, int8, one bit of the stream each."""
        n = math.prod(shape)
        octets = self.words(-(-n // 64)).view(torch.uint8)
        bits = (octets[:, None] >> torch.arange(8, dtype=torch.uint8)) & 1
        return bits.view(-1)[:n].to(torch.int8).mul_(2).sub_(1).view(shape)

    def permutation(self, n: int) -> Tensor:
        """(n,) int64, uniform over all n! permutations: the order of n distinct random words."""
        while True:
            ranked, order = self.words(n).sort()
            if not bool((ranked[1:] == ranked[:-1]).any()):
                return order

    def derangement(self, n: int) -> Tensor:
        """(n,) int64, uniform over the permutations that leave no element in place (n ≥ 2)."""
        checks.enough_rows(n)
        own = torch.arange(n)
        while True:  # a uniform permutation is a derangement with probability about 1/e
            partner = self.permutation(n)
            if not bool((partner == own).any()):
                return partner

    def derangement_across_units(self, units: Tensor) -> Tensor:
        """(n,) int64: a permutation that gives no row a partner of its own unit. units: (n,) the unit of each row.

        Starts from a uniform permutation and swaps partners at random until no unit meets itself. If that takes too
        many rounds, the rows are put in the order of their units (units, and rows within them, in random order) and
        shifted by the size of the largest unit.
        """
        n, largest = checks.enough_rows(len(units)), int(units.bincount().max())
        if 2 * largest > n:
            raise TooFewRowsError(
                f"one unit has {largest} of {n} rows, more than half: they cannot all be paired with rows of other "
                f"units. Leave some of them out, or use the encoder gaussian, which pairs nothing"
            )
        partner = self.permutation(n)
        for _ in range(_SWAPS):
            wrong = (units[partner] == units).nonzero()[:, 0]
            if not len(wrong):
                return partner
            other = self.permutation(n)[: len(wrong)]
            after = (units[partner[other]] != units[wrong]) & (units[partner[wrong]] != units[other])
            alone = ~torch.isin(other, wrong)  # a row takes part in one swap at a time
            first, second = wrong[after & alone], other[after & alone]
            partner[first], partner[second] = partner[second].clone(), partner[first].clone()
        order = self.permutation(n)
        order = order[self.permutation(int(units.max()) + 1)[units[order]].argsort(stable=True)]
        partner[order] = order.roll(-largest)
        return partner

    def capped_weights(self, n: int, alpha: float) -> Tensor:
        """(n, 2) float32 weights that sum to exactly one, both at most α.

        The law of (u₁, u₂)/(u₁ + u₂), u uniform on [0, 1]², given that the larger is at most α: its density
        is ∝ 1/max(w, 1 − w)², so the larger weight m has distribution function (2 − 1/m)/(2 − 1/α), which
        is inverted here. Weights are rounded towards one half to a multiple of 2⁻²⁴.
        """
        checks.cap("alpha", alpha)
        scale = 1 << WEIGHT_BITS
        larger = 1 / (2 - self.uniform(n) * (2 - 1 / alpha))
        larger = larger.mul_(scale).floor_().clamp_(scale // 2, math.floor(alpha * scale)).div_(scale)
        own = torch.where(self.signs(n) > 0, larger, 1 - larger)
        return torch.stack([own, 1 - own], dim=1).float()

    def mixing_weights(self, n: int, k: int) -> Tensor:
        """(n, k) float32 weights that sum to exactly one: u ~ U[0, 1]ᵏ scaled to one, on multiples of 2⁻²⁴."""
        scale = 1 << WEIGHT_BITS
        draws = 1 - self.uniform(n, k)
        parts = draws.div_(draws.sum(1, keepdim=True)).mul_(scale).floor_()
        parts[:, -1] += scale - parts.sum(1)
        return parts.div_(scale).float()

    def bounded_weights(self, n: int, k: int, most: float, first: int, least: float) -> Tensor:
        """(n, k) mixing weights, given that none is larger than `most` and the first so many sum to `least` or more:
        those are drawn again that are not so."""
        if k == 1:
            return torch.ones(n, 1)
        found, tried = torch.empty(0, k), 0
        while len(found) < n:
            if tried > _TRIES and tried > _TRIES * len(found) / _RARE:
                bounds = f"none above {most:g}, and {least:g} or more of the first {first}"
                raise ArgumentError(f"weights of {k} images, {bounds}, hardly ever come up: choose wider bounds")
            drawn = self.mixing_weights(2 * (n - len(found)) + 64, k)
            tried += len(drawn)
            fits = (drawn.amax(1) <= most) & (drawn[:, :first].sum(1) >= least)
            found = torch.cat([found, drawn[fits]])[:n]
        return found


@dataclass(frozen=True)
class StreamPairs:
    """Pairs of uniforms of a stream, from the pair number `start` on."""

    stream: Stream
    start: int

    def first(self, out: npt.NDArray[np.uint32]) -> None:
        self.stream.fill(out)

    def further(self, pair: Indices, chunk: int) -> Further:
        return self.stream.further(pair + self.start, chunk)


class SeededStream(Stream):
    """The same draws for the same seed, on every machine. An attacker who knows the seed can remove the noise."""

    reproducible = True

    def __init__(self, seed: int) -> None:
        if not 0 <= seed < 1 << 64:
            raise ArgumentError(f"seed must be in [0, 2^64), got {seed}")
        self._start(hashlib.sha256(b"mixveil seed " + seed.to_bytes(8, "big")).digest())

    def _start(self, key: bytes) -> None:
        super()._start(key)
        self._bits = np.random.Philox(key=int.from_bytes(key[:16], "big"))

    def words(self, n: int) -> Tensor:
        return torch.from_numpy(self._bits.random_raw(n).view(np.int64))

    def further(self, pair: Indices, chunk: int) -> Further:
        key = hmac.digest(self._key, b"further", "sha256")
        return philox(key, pair.view(np.uint64), chunk, calls=1).view(np.uint64)


class SecureStream(Stream):
    """AES-128 in counter mode under a key from the operating system. The key is never written or shown.

    A copy, a pickle or a forked process would repeat its draws, and two releases under the same noise cancel it: all
    three are refused. Every fork by name takes fresh randomness from the operating system into its key, so that two
    copies of a whole machine, made from one snapshot, draw differently from the next fork on.
    """

    reproducible = False

    def __init__(self) -> None:
        self._start(os.urandom(32))

    def _start(self, key: bytes) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
        except ImportError:
            raise MissingDependencyError("secure noise needs cryptography: pip install cryptography") from None
        super()._start(key)
        self._process = this_process()
        # The words and the forks have keys of their own: neither key reveals the other.
        word_key = hmac.digest(key, b"words", "sha256")[:16]
        self._cipher = Cipher(algorithms.AES(word_key), modes.CTR(bytes(16))).encryptor()
        further_key = hmac.digest(key, b"further", "sha256")
        self._further = Cipher(algorithms.AES(further_key), modes.ECB()).encryptor  # noqa: S305 - of numbers, each once

    def words(self, n: int) -> Tensor:
        self._refuse_fork()
        words = np.zeros(n, np.int64)
        if n:
            octets = words.view(np.uint8).data
            with self._lock:
                self._cipher.update_into(octets, octets)
        return torch.from_numpy(words)

    def fill(self, out: npt.NDArray[np.uint32]) -> None:
        self._refuse_fork()
        octets = out.reshape(-1).view(np.uint8).data
        with self._lock:
            for start in range(0, len(octets), len(_ZEROS)):
                part = octets[start : start + len(_ZEROS)]
                self._cipher.update_into(_ZEROS[: len(part)], part)

    def further(self, pair: Indices, chunk: int) -> Further:
        """AES of the pair's number and the chunk's: counter mode at any place, under a key of its own."""
        self._refuse_fork()
        blocks = np.empty((len(pair), 2), np.uint64)
        blocks[:, 0], blocks[:, 1] = pair, chunk
        return np.frombuffer(self._further().update(blocks.tobytes()), np.uint64).reshape(-1, 2)

    def fork(self, name: str) -> Self:
        self._refuse_fork()
        return super().fork(name)

    def _fresh(self) -> bytes:
        return os.urandom(32)

    def _refuse_fork(self) -> None:
        if this_process() != self._process:
            raise StreamError("a secure stream crossed into a forked process: its draws would repeat; make a new one")

    def __repr__(self) -> str:
        return "SecureStream()"

    def __reduce__(self) -> NoReturn:
        raise StreamError("a secure stream is never copied or stored: its draws would repeat; make a new one")
