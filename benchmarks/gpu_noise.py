"""Noise on a GPU: is it exact, and how far is it from the floor that memory sets?

    PYTHONPATH=src:. python -m benchmarks.gpu_noise [--part checks|times]

Checks first (`gpu_checks`). Then times, by CUDA events, as medians after two calls that are not counted; ratios are
within this run. The floor is the best of several shapes of a kernel that reads a row and a gathered row (float32) and
writes one (int16), with no noise.
"""

# mypy: ignore-errors
from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
import time
from pathlib import Path

import torch
import triton
import triton.language as tl

from benchmarks.gpu_checks import DEVICE, GENERATORS, HARDWARE, KEY, NARROW, WIDE, checks, made, say
from mixveil.core.randomness import SecureStream
from mixveil.core.types import Fact, Facts, Mu
from mixveil.encoders.fused import encoding
from mixveil.encoders.fused.encoding import encoded
from mixveil.encoders.fused.mixture import Keystream, Launch, Mixture
from mixveil.encoders.noisy import on_grid
from mixveil.encoders.singular import Singular

WARM_UP, REPEATS = 2, 9
LAUNCHES = (Launch(64, 2), Launch(128, 4)) if HARDWARE else (Launch(128, 4),)


@triton.jit
def _floor(own, other, partner, out, d, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    here = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = here < d
    x = tl.load(own + row * d + here, mask=inside)
    y = tl.load(other + tl.load(partner + row) * d + here, mask=inside)
    tl.store(out + row * d + here, (x * 300.0 + y * 400.0).to(tl.int16), mask=inside)


def seconds(call, repeats: int = REPEATS) -> float:
    """The median GPU time of a call."""
    if not HARDWARE:
        call()
        return 1.0
    times = []
    for _ in range(repeats + WARM_UP):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) / 1000)
    return statistics.median(times[WARM_UP:])


def floor(mixture: Mixture) -> float:
    """Seconds."""
    m, d = mixture.own.shape
    out = torch.empty(m, d, dtype=torch.int16, device=DEVICE)
    return min(
        seconds(lambda: _floor[(-(-d // block), m)](mixture.own, mixture.other, mixture.partner, out, d,  # noqa: B023
                                                    BLOCK=block, num_warps=warps))  # noqa: B023
        for block, warps in ((512, 4), (1024, 4), (1024, 8), (2048, 4), (2048, 8), (4096, 8))
    )  # fmt: skip


def naive(mixture: Mixture) -> torch.Tensor:
    """The same release by whole tensors in float32, noise from torch's own generator."""
    a = mixture.factors.float()
    x = (mixture.own - mixture.centre) * a[:, :1] + (mixture.other[mixture.partner] - mixture.centre) * a[:, 1:]
    x += torch.randn_like(x) * mixture.scale.float()[:, None]
    return x.round_().clamp_(-mixture.bound, mixture.bound).to(torch.int16)


def steps(mixture: Mixture, keystream: Keystream, launch: Launch, out: torch.Tensor) -> dict:
    """Time of the float32 kernel and of the float64 kernel, in ps a value."""
    run = encoding._Run(mixture, keystream, 0, launch, out, encoding._Size.of(mixture))
    room, values = run.size.room(run.blocks), mixture.own.numel()
    run.begin(room)
    return {
        "ps_float32": seconds(lambda: run.start_single(room)) / values * 1e12,
        "ps_float64": seconds(run.start_double) / values * 1e12,
        "doubtful_blocks": float(run.counts.double().mean()) / run.blocks,
        "open": int(run.open_count),
    }


def times(d: int, rows: int) -> list:
    """So many rows of d values, against the floor and against whole tensors."""
    mixture, few = made(rows, d), made(max(2, min(rows // 8, (1 << 26) // d)), d)
    values, out = rows * d, torch.empty(rows, d, dtype=torch.int16, device=DEVICE)
    about = {"values_a_row": d, "rows": rows}
    launched = mixture.rows(slice(0, encoding.ROWS))
    least = floor(launched) / launched.own.numel() * 1e12
    plain = seconds(lambda: naive(few)) / few.own.numel() * 1e12
    found = [
        say(work="floor", **about, ps_per_value=least, tb_per_s=10 / least, of_floor=1.0),
        say(work="whole tensors", values_a_row=d, rows=len(few.own), ps_per_value=plain, of_floor=plain / least),
    ]
    for generator in GENERATORS:
        keystream = Keystream(KEY, generator)
        for launch in LAUNCHES:
            whole = seconds(lambda: encoded(mixture, keystream, launch=launch, out=out)) / values * 1e12  # noqa: B023
            parts = steps(launched, keystream, launch, out[: len(launched.own)])
            found.append(say(work=generator, **about, **dataclasses.asdict(launch), ps_per_value=whole,
                             of_floor=whole / least, **parts))  # fmt: skip
    return found


def release(n: int, d: int) -> list:
    """A whole release of features by ChaCha20: norms, factors, all rows; then its way to pinned memory."""
    x = torch.rand(n, d, device=DEVICE)
    partner, weight = torch.randperm(n, device=DEVICE), torch.rand(n, dtype=torch.float64, device=DEVICE) * 0.1 + 0.45
    out = torch.empty(n, d, dtype=torch.int16, device=DEVICE)
    host = torch.empty(n, d, dtype=torch.int16, pin_memory=HARDWARE)
    clip, sigma = 50.0, 200.0

    def whole() -> None:
        norm = torch.cat([torch.linalg.vector_norm(part.double().sub_(0.5), dim=1) for part in x.split(1024)])
        factor = (clip / norm).clamp_(max=1) * 1024 / sigma
        share = torch.stack([weight * factor, (1 - weight) * factor[partner]], dim=1)
        mixture = Mixture(x, x, partner, share, (1 - weight) * 1024, 0.5, 564.0, 8.0, 9000)
        encoded(mixture, Keystream(KEY, "chacha20"), out=out)

    gpu = seconds(whole, 3)
    begun = time.perf_counter()
    whole()
    host.copy_(out)
    return [say(work="release", rows=n, values_a_row=d, seconds=gpu, seconds_to_pinned=time.perf_counter() - begun,
                gigabytes=n * d * 2 / 1e9)]  # fmt: skip


def blocks_of_an_encoder(n: int, d: int) -> list:
    """A block as `encode --device cuda` makes it: rows in memory are brought, encoded and brought back."""
    known = {"dimension": float(d), "centre": 0.5, "amplitude": 0.5, "clip": 0.5 * d**0.5}
    encoder, _ = Singular().calibrate(Mu(1.0), Facts({name: Fact(value, "public") for name, value in known.items()}))
    x, y = torch.rand(n, d), torch.rand(n, d)
    share = torch.rand(n, dtype=torch.float64) * 0.1 + 0.45
    found = []
    for device in {torch.device("cpu"), DEVICE}:

        def block() -> None:
            sources = [x.to(device), y.to(device)]  # noqa: B023
            on_grid(encoder, sources, [1 - share, share], share, 0.55, SecureStream())

        block()
        begun = time.perf_counter()
        block()
        taken = time.perf_counter() - begun
        found.append(say(work="block of an encoder", device=device.type, threads=torch.get_num_threads(), rows=n,
                         values_a_row=d, seconds=taken, ps_per_value=taken / (n * d) * 1e12))  # fmt: skip
    return found


def copy_speed() -> list:
    x = torch.rand(1 << (30 if HARDWARE else 16), device=DEVICE)
    y = torch.empty_like(x)
    return [say(work="copy", tb_per_s=2 * x.numel() * 4 / seconds(lambda: y.copy_(x)) / 1e12)]


def all_rows(part: str) -> list:
    small, found = not HARDWARE, []
    jobs = {
        "checks": checks(),
        "times": [
            copy_speed,
            lambda: times(WIDE // (40 if small else 1), 2 if small else encoding.ROWS),
            lambda: times(NARROW, 2 if small else 8 * encoding.ROWS),
            lambda: release(4 if small else 50_000, WIDE // (40 if small else 1)),
            lambda: blocks_of_an_encoder(2 if small else 10_000, NARROW),
        ],
    }
    for kind, work in jobs.items():
        for number, job in enumerate(work if part in (kind, "all") else ()):
            begun = time.perf_counter()
            try:
                found += job()
            except Exception as error:  # the others are still worth their time on a lent machine
                found.append(say(work="failed", job=f"{kind} {number}", error=f"{type(error).__name__}: {error}"))
            print(f"# {kind} {number}: {time.perf_counter() - begun:.1f} s", flush=True)
            if HARDWARE:
                torch.cuda.empty_cache()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("checks", "times", "all"), default="all")
    parser.add_argument("--out", type=Path, help="the folder of the results; $OUT or this one if not given")
    asked = parser.parse_args()
    found = all_rows(asked.part)
    out = asked.out or Path(os.environ.get("OUT", "."))
    name = torch.cuda.get_device_name() if HARDWARE else "Triton's interpreter"
    settings = {"warm_up": WARM_UP, "repetitions": REPEATS, "statistic": "median", "part": asked.part}
    try:
        from benchmarks.record import Found, recorded
    except ImportError:
        (out / "gpu-noise.json").write_text(json.dumps({"device": name, "settings": settings, "rows": found}, indent=1))
    else:
        recorded("gpu-noise", lambda: Found(found, settings, (), name, ("triton",)), out)
    sys.exit(any(row["work"] == "failed" for row in found))


if __name__ == "__main__":
    main()
