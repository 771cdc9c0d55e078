"""The slow twin of exactly rounded noise: one value at a time, with 200 bits, from the same bits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt
from mpmath import mpf

from mixveil.core.randomness import SeededStream
from mixveil.core.rounded_normals import Further, Indices, Mean, Pairs, Words

PRECISION = 200


@dataclass
class Kept:
    """Pairs that keep the first words that were drawn, for a second look."""

    pairs: Pairs
    words: Words = field(default_factory=lambda: np.empty((2, 0), np.uint32))

    def first(self, out: Words) -> None:
        self.pairs.first(out)
        self.words = out.copy()

    def further(self, pair: Indices, chunk: int) -> Further:
        return self.pairs.further(pair, chunk)

    def normal(self, pair: int, second: bool) -> mpf:
        """In the middle of what 160 bits of each uniform leave open."""
        bits = []
        for which in (0, 1):
            bits.append(int(self.words[which][pair]))
            for chunk in (0, 1):
                bits[which] = (bits[which] << 64) | int(self.further(np.array([pair]), chunk)[0, which])
        with mpmath.workprec(PRECISION):
            u, turn = ((mpf(2 * part + 1) / mpf(2) ** 161) for part in bits)
            angle = 2 * mpmath.pi * turn
            return mpmath.sqrt(-2 * mpmath.log(u)) * (mpmath.sin(angle) if second else mpmath.cos(angle))


class KeptStream(SeededStream):
    """A seeded stream that keeps the pairs of its last noise."""

    drawn: Kept

    def pairs(self, count: int) -> Any:
        self.drawn = Kept(super().pairs(count))
        return self.drawn


def slow_value(index: int, shape: tuple[int, int], scale: npt.NDArray[np.float64], mean: Mean, kept: Kept) -> mpf:
    """q + s·N of one value, numbered row by row."""
    size, row = shape[0] * shape[1], index // shape[1]
    half = -(-size // 2)
    with mpmath.workprec(PRECISION):
        q = mpf(0)
        for x, weight in zip(mean.sources, mean.weights, strict=True):
            q += mpf(float(weight[row])) * (mpf(float(x.reshape(-1)[index])) - mpf(mean.centre))
        return q + mpf(float(scale[row])) * kept.normal(index % half, index >= half)


def nearest(value: mpf) -> int:
    with mpmath.workprec(PRECISION):
        return int(mpmath.floor(value + mpf(1) / 2))
