"""The attacks on a whole release, on a GPU or on the CPU: the best linear attacker on 50,000 rows of 3 × 32 × 32
values, and the linkage of as many candidates with them.

    python -m benchmarks.gpu_attacks [--device cuda] [--rows 50000] [--candidates 50000] [--out RESULTS]

It writes gpu-attacks.json or cpu-attacks.json.

Images are sums of random waves whose strength falls with their length, as in photographs; nothing is downloaded. Before
anything is timed a small case is compared with slow twins on the CPU: dense inverses, and the whole matrix of ratios.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from benchmarks.record import RESULTS, Found, Plain, Row, recorded
from benchmarks.timing import in_status
from mixveil.attacks.records.linkage import Linkage, summary
from mixveil.attacks.records.lmmse import Lmmse
from mixveil.attacks.shared.directions import Waves
from mixveil.attacks.shared.model import MixingMatrix, prior_of
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Batch, Mu, View
from mixveil.data.images import from_tensors
from mixveil.data.row_views import InMemoryRows
from mixveil.encoders.calibration import settled_facts
from mixveil.encoders.singular import Singular
from mixveil.releases.records import traced_in_memory

_NOISE = 0.3  # of a value, in standard deviations of the images
_PUBLIC = 20_000
_MADE = 2000  # images at a time

T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--candidates", type=int, default=50_000)
    parser.add_argument("--side", type=int, default=32, help="pixels a side")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder of results")
    chosen = parser.parse_args()
    device = torch.device(chosen.device)
    name = "cpu-attacks" if device.type == "cpu" else "gpu-attacks"
    shape = (3, chosen.side, chosen.side)
    path = recorded(name, lambda: measured(device, chosen.rows, chosen.candidates, shape), chosen.out)
    sys.stdout.write(path.read_text())


def measured(device: torch.device, rows: int, candidates: int, shape: tuple[int, ...]) -> Found:
    """Seconds and memory of the prior, of the best linear attacker, and of the linkage."""
    agreed = agreement(device)
    view, truth = made(device, rows, max(2, min(_PUBLIC, rows)), shape)
    view = replace(view, candidates=truth[:candidates])
    times: list[dict[str, Plain]] = []
    timed(times, "prior", device, lambda: prior_of(view))
    guess = timed(times, "lmmse", device, lambda: Lmmse()(view, stream=SeededStream(0)).images)
    if guess is not None:
        times[-1]["mse_over_variance"] = error(guess, truth) / float(truth[:1000].var(0).mean())
    del guess
    links = timed(times, "linkage", device, lambda: summary(view))
    own = torch.arange(len(links.row), device=device)
    times[-1]["row_identified"] = float(links.row.eq(own).double().mean())
    agreeing: list[Row] = [{"work": "agreement with slow twins", **agreed}]
    settings: Row = {
        "warm_up": 0, "repetitions": 1, "statistic": "single", "rows": rows, "candidates": candidates,
        "values_a_row": math.prod(shape), "threads": torch.get_num_threads(),
    }  # fmt: skip
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    return Found([*times, *agreeing], settings, device=name, packages=("triton",))


def timed(times: list[dict[str, Plain]], name: str, device: torch.device, work: Callable[[], T]) -> T:
    """What a piece of work takes, once: it is long, and there is nothing to warm up but the first kernels."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    found = work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else peak_process()
    times.append({"work": name, "seconds": seconds, "peak_gb": peak / 1e9})
    sys.stderr.write(f"{times[-1]}\n")
    return found


def peak_process() -> int:
    """Bytes, of the whole process so far."""
    return in_status("VmHWM")


def error(guess: Tensor, truth: Tensor) -> float:
    """The mean squared error of a value."""
    parts = zip(guess.split(_MADE), truth.split(_MADE), strict=True)
    return sum(float((mine - x).square().sum()) for mine, x in parts) / truth.numel()


def made(device: torch.device, rows: int, public: int, shape: tuple[int, ...]) -> tuple[View, Tensor]:
    """A release as a party makes it, its trace and public images, all on the device; and the records (n, …)."""
    x, known = pictures(rows, shape, 1), pictures(public, shape, 2).to(device)
    data = from_tensors(x, torch.arange(rows) % 10)
    encoder, _ = Singular(alpha=0.7).calibrate(Mu(1.0), settled_facts(data, certified=True, public=None, clip=None))
    weak = replace(encoder, sigma=_NOISE * float(x[:1000].std()))
    release, trace = traced_in_memory(data, weak, (), party="bench", stream=SeededStream(3))
    held = release.with_(payload=release.payload.held_on(device))
    labels = torch.zeros(public, 10, device=device)
    return View((held,), (trace,), InMemoryRows(Batch(known, labels))), x.to(device)


def pictures(count: int, shape: tuple[int, ...], seed: int) -> Tensor:
    """(n, …) float32 in [0, 1]."""
    waves, stream = Waves(shape, torch.device("cpu")), SeededStream(seed)
    down, across = torch.meshgrid(*(torch.arange(size).double() for size in shape[1:]), indexing="ij")
    strength = (1 / (1 + down.square() + across.square())).expand(shape).flatten()
    found = torch.empty(count, *shape)
    for part in torch.split(torch.arange(count), _MADE):
        x = waves.back(stream.normal(len(part), len(strength)) * strength)
        found[part] = (0.5 + 0.15 * x / strength.square().mean().sqrt()).clamp(0, 1).float().view(-1, *shape)
    return found


def agreement(device: torch.device) -> dict[str, float]:
    """The largest relative difference from the slow twins, and the share of candidates for which the same row is the
    best, on 300 rows of 192 values."""
    view, truth = made(device, 300, 400, (3, 8, 8))
    view = replace(view, candidates=truth[:100])
    guess, links = Lmmse()(view, stream=SeededStream(0)).images, summary(view)
    near, _ = made(torch.device("cpu"), 300, 400, (3, 8, 8))
    near = replace(near, candidates=truth[:100].cpu())
    slow, whole = slow_posterior(near), Linkage()(near, stream=SeededStream(0)).links
    if guess is None or whole is None:
        raise RuntimeError("an attack gave no guess")
    return {
        "lmmse_apart": float((guess.cpu() - slow).abs().max() / slow.abs().max()),
        "linkage_apart": float((links.most.cpu() - whole.amax(1)).abs().max() / whole.abs().max()),
        "linkage_same_row": float(links.row.cpu().eq(whole.argmax(1)).double().mean()),
    }


def slow_posterior(view: View) -> Tensor:
    """Every direction by a dense inverse of its own."""
    prior, release = prior_of(view), view.releases[0]
    if view.traces is None:
        raise RuntimeError("the traces are missing")
    trace, n = view.traces[0], len(release.payload)
    w = MixingMatrix.of((trace,))[0].rows(torch.eye(n, dtype=torch.float64))
    noise = release.encoder.deviation(trace.weight.double()).square()[:, None]
    mean = release.encoder.prepare(prior.mean[None])
    seen = prior.directions.coordinates(release.payload.take(torch.arange(n)).x.flatten(1).double() - mean)
    told, found = w.T @ (seen / noise), torch.empty_like(seen)
    for k, variance in enumerate(prior.variance):
        precision = w.T @ (w / noise) + torch.eye(n, dtype=torch.float64) / variance
        found[:, k] = torch.linalg.solve(precision, told[:, k])
    return prior.images(view, found)


if __name__ == "__main__":
    main()
