"""The definition of `mixveil.encoders.fused`, value by value: float64 by numpy, and interval arithmetic near halves."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mixveil.core.keystreams import blocks, pair_bits
from mixveil.core.rounded_normals import decide
from mixveil.encoders.fused import layout
from mixveil.encoders.fused.mixture import Keystream, Mixture

UNSURE = 1e-7
"""Far more than float64 can be wrong, where no uniform is near 0 or 1."""


def slow(mixture: Mixture, keystream: Keystream, first_row: int = 0) -> tuple[Tensor, int]:
    """(m, d) int64, and how many values were decided by interval arithmetic."""
    found, decided = [], 0
    for row in range(len(mixture.own)):
        values, count = _row(mixture, keystream, first_row, row)
        found.append(values)
        decided += count
    return torch.from_numpy(np.stack(found)), decided


def normals(keystream: Keystream, row: int, d: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(d,) the normals of a row, from 64 bits of each uniform, and where the radius is too near an end of its range."""
    count = layout.blocks_in_row(d)
    counters = np.arange(row * count, (row + 1) * count, dtype=np.uint64)
    high, low = (blocks(keystream.generator, keystream.key, counters, plane) for plane in (0, 1))
    pairs, turns = (_uniform(high, low, part) for part in (slice(0, 8), slice(8, 16)))
    extreme = (high[:, :8] < 1 << 8) | (high[:, :8] >= (1 << 32) - (1 << 8))
    near_one = high[:, :8] >= 1 << 31
    rest = _uniform(~high, ~low, slice(0, 8))  # 1 − U, with all its bits
    logarithm = np.where(near_one, np.log1p(-np.where(near_one, rest, 0.0)), np.log(np.where(near_one, 0.5, pairs)))
    radius = np.sqrt(-2 * logarithm)
    words = np.concatenate([radius * np.cos(2 * np.pi * turns), radius * np.sin(2 * np.pi * turns)], axis=1)
    unsure = np.concatenate([extreme, extreme], axis=1)
    # (tiles · lanes, words) to the columns of the row
    order = (-1, layout.LANES, layout.WORDS)
    return (
        words.reshape(order).transpose(0, 2, 1).reshape(-1)[:d],
        unsure.reshape(order).transpose(0, 2, 1).reshape(-1)[:d],
    )


def _uniform(high: NDArray[np.uint32], low: NDArray[np.uint32], part: slice) -> NDArray[np.float64]:
    """The middle of a cell of 2⁻⁶⁴."""
    return (high[:, part].astype(np.float64) + (low[:, part].astype(np.float64) + 0.5) / 2**32) / 2**32


def _row(mixture: Mixture, keystream: Keystream, first_row: int, row: int) -> tuple[NDArray[np.int64], int]:
    d = mixture.own.shape[1]
    normal, unsure = normals(keystream, first_row + row, d)
    sources = [mixture.own[row].cpu()]
    if mixture.other is not None and mixture.partner is not None:
        sources.append(mixture.other[mixture.partner[row]].cpu())
    factors, scale = mixture.factors[row].tolist(), float(mixture.scale[row])
    value = scale * normal
    for a, x in zip(factors, sources, strict=True):
        value = value + a * (x.double().numpy() - mixture.centre)
    whole = np.floor(value + 0.5)
    wrong = np.flatnonzero((np.abs(value - whole) > 0.5 - UNSURE) | unsure)
    for column in wrong.tolist():
        block, pair, second = layout.place(first_row + row, column, d)
        bits = pair_bits(keystream.generator, keystream.key, block, (pair, pair + 8))
        parts = [Fraction(a) * (Fraction(float(x[column])) - Fraction(mixture.centre))
                 for a, x in zip(factors, sources, strict=True)]  # fmt: skip
        whole[column] = decide(sum(parts, Fraction(0)), Fraction(scale), bits, second=second)
    return whole.clip(-mixture.bound, mixture.bound).astype(np.int64), len(wrong)
