"""Theorem 1 for millions of rows."""

from __future__ import annotations

import math
import resource
import time

from benchmarks.record import Found, Plain
from benchmarks.timing import threads
from mixveil.core.randomness import SeededStream
from mixveil.theory.minimax import log_minimax_factors


def minimax(rows: int = 5_000_000) -> Found:
    """On one thread, with the peak memory of the whole process."""
    stream = SeededStream(2)
    partner, weight = stream.permutation(rows), stream.capped_weights(rows, 0.7)
    with threads(1):
        start = time.perf_counter()
        logs = log_minimax_factors(partner, weight)
        seconds = time.perf_counter() - start
    row: dict[str, Plain] = {
        "rows": rows,
        "seconds": seconds,
        "peak_process_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        "log10_t_max": float(logs.max()) / math.log(10),
        "all_finite": bool(logs.isfinite().all()),
    }
    return Found([row], {"warm_up": 0, "repetitions": 1, "statistic": "single", "threads": 1})
