"""Measure, and write what was measured with where it was measured. See README.md beside this file."""

from __future__ import annotations

import json
import math
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from mixveil import results
from mixveil.backbones import KNOWN, Backbone
from mixveil.calibration import settled_facts
from mixveil.data import from_tensors
from mixveil.encoders.singular import Singular
from mixveil.features import Extractor, Loaded, extract
from mixveil.keys import SecureStream, SeededStream
from mixveil.theory.minimax import log_minimax_factors
from mixveil.types import Mu

HERE = Path(__file__).parent


def best(work: Callable[[], object], repetitions: int = 3) -> float:
    """Seconds of the fastest repetition, after one to warm up."""
    work()
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def encoding(rows: int = 10_000, values: int = 3072, block: int = 21) -> dict[str, float]:
    """Secure noise on the grid against the same mixture with torch.randn in float32, whole and then rounded."""
    x = SeededStream(0).uniform(rows, values).float()
    data = from_tensors(x, torch.arange(rows) % 10)
    encoder, _ = Singular().calibrate(Mu(1.0), settled_facts(data, certified=True, public=None, clip=None))
    trace = encoder.plan(rows, stream=SeededStream(1))
    partner, weight, sigma, step = (
        trace.partner[:, 0],
        trace.weight,
        float(encoder.sigma or 0),
        float(encoder.step or 0),
    )
    stream = SecureStream()

    def ours() -> None:
        for start in range(0, rows, block):
            encoder.encode(data, torch.arange(start, min(start + block, rows)), trace, stream=stream)

    def naive() -> torch.Tensor:
        z = x - 0.5
        mixed = weight[:, :1] * z + weight[:, 1:] * (z[partner] + sigma * torch.randn(rows, values))
        return (mixed / step).round().to(torch.int16)

    fast, slow = best(ours), best(naive)
    return {
        "rows": rows,
        "values": values,
        "secure_ns_per_value": fast / rows / values * 1e9,
        "naive_ns_per_value": slow / rows / values * 1e9,
        "naive_over_secure": slow / fast,
    }


def minimax(rows: int = 5_000_000) -> dict[str, float | bool]:
    """Theorem 1 for millions of rows on one thread, with the peak memory of the whole process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    stream = SeededStream(2)
    partner, weight = stream.permutation(rows), stream.capped_weights(rows, 0.7)
    start = time.perf_counter()
    logs = log_minimax_factors(partner, weight)
    seconds = time.perf_counter() - start
    torch.set_num_threads(threads)
    return {
        "rows": rows,
        "seconds": seconds,
        "peak_process_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        "log10_t_max": float(logs.max()) / math.log(10),
        "all_finite": bool(logs.isfinite().all()),
    }


def features(count: int = 96, batch: int = 16) -> dict[str, float]:
    """Images a second from `extract`, with no cache, against a bare loop over the network. The weights are random:
    they do not change the speed. Repetitions alternate, the best of each counts."""
    known = KNOWN["mobilenet_v2"]
    torch.manual_seed(0)
    net = Backbone("mobilenet_v2", "0" * 64, known.make().requires_grad_(False).eval())
    loaded = Loaded(Extractor(("mobilenet_v2",)), (net,), torch.device("cpu"))
    images = from_tensors(torch.rand(count, 3, 32, 32), torch.arange(count) % 2)
    ready = torch.rand(batch, 3, 224, 224).contiguous(memory_format=torch.channels_last)

    def bare() -> None:
        with torch.inference_mode():
            for _ in range(count // batch):
                for _, found in net.net.maps(ready):
                    last = found
                last.mean((2, 3))

    ours: list[float] = []
    plain: list[float] = []
    for _ in range(4):
        for times, work in ((ours, lambda: extract(images, loaded, None)), (plain, bare)):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
    return {
        "images": count,
        "extract_images_per_second": count / min(ours),
        "bare_images_per_second": count / min(plain),
        "extract_over_bare": min(plain) / min(ours),
    }


def main() -> None:
    # Theorem 1 first: peak memory is the process's, and the encoding's arrays would count.
    found = {"minimax": minimax(), "encoding": encoding(), "features": features()}
    rows: tuple[dict[str, Any], ...] = tuple(
        {"settings": {"benchmark": name}, "figures": figures} for name, figures in found.items()
    )
    about = results.provenance({"threads": torch.get_num_threads()})
    results.write_results(HERE / "results.json", results.Results("Benchmarks", about, rows))
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
