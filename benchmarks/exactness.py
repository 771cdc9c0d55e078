"""Released integers against 200 bits: each value is computed once more by mpmath, from the same bits."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import mpmath
import numpy as np
from tests.slow_normals import PRECISION, Kept, nearest, slow_value

from benchmarks.record import Found, Plain
from mixveil.core.randomness import SeededStream
from mixveil.core.rounded_normals import Mean, rounded

_WIDTH, _SCALE = 1000, 563.0  # of a release at α = 0.55
_MOST = 70.0
_VALUES, _PLANTED = 1_000_000, 10_000
_ROWS = 20  # of a piece of work


def exactness() -> Found:
    """A million values of mixtures, and among them values of which the mean is chosen so that they lie within 10⁻¹¹ of
    the middle between two integers."""
    jobs = [(seed, False) for seed in range(_VALUES // (_ROWS * _WIDTH))]
    jobs += [(seed, True) for seed in range(_PLANTED // 1000)]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        found = list(pool.map(_compared, *zip(*jobs, strict=True)))
    rows: list[dict[str, Plain]] = []
    for planted in (False, True):
        own = [counted for (_, kind), counted in zip(jobs, found, strict=True) if kind == planted]
        rows.append(
            {
                "values": sum(count for count, _, _ in own),
                "planted_near_halves": planted,
                "differ": sum(wrong for _, wrong, _ in own),
                "nearest_to_a_half": min(least for _, _, least in own),
            }
        )
    return Found(
        rows,
        {"warm_up": 0, "repetitions": 1, "statistic": "single", "bits": PRECISION, "scale": _SCALE},
        packages=("numpy", "mpmath"),
    )


def _compared(seed: int, planted: bool) -> tuple[int, int, float]:
    """How many values were compared, how many differ, and how near to a half one came."""
    mean = _planted(seed) if planted else _mixture(seed)
    shape = mean.sources[0].shape
    out, scale = np.empty(shape, np.int64), np.full(shape[0], _SCALE)
    kept = Kept(SeededStream(seed).pairs(-(-out.size // 2)))
    rounded(out, scale, mean, kept, most=_SCALE)
    wrong, least = 0, 1.0
    for index in range(out.size):
        value = slow_value(index, shape, scale, mean, kept)
        wrong += nearest(value) != int(out.reshape(-1)[index])
        with mpmath.workprec(PRECISION):
            least = min(least, float(abs(value - mpmath.floor(value) - mpmath.mpf(0.5))))
    return out.size, wrong, least


def _mixture(seed: int) -> Mean:
    draw = np.random.default_rng(seed)
    own, other = (draw.random((_ROWS, _WIDTH)).astype(np.float32) for _ in range(2))
    share = draw.random(_ROWS) * 0.1 + 0.45
    return Mean((own, other), (40 * share, 40 * (1 - share)), 0.5, _MOST)


def _planted(seed: int) -> Mean:
    """1,000 values that would lie on a half, but for the rounding of their mean and a step or two."""
    n = 1000
    out, scale = np.empty((n, 1), np.int64), np.full(n, _SCALE)
    kept = Kept(SeededStream(seed).pairs(n // 2))
    still = Mean()
    rounded(out, scale, still, kept, most=_SCALE)
    weights = np.empty(n)
    for index in range(n):
        weights[index] = float(int(out[index, 0]) + mpmath.mpf(0.5) - slow_value(index, (n, 1), scale, still, kept))
        for _ in range(index % 3):
            weights[index] = np.nextafter(weights[index], np.inf if index % 2 else -np.inf)
    return Mean((np.ones((n, 1), np.float32),), (weights,), 0.0, 2.0)
