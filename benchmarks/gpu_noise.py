"""Noise on a GPU: is it exact, and how far is it from the floor that memory sets?

    PYTHONPATH=src:. python -m benchmarks.gpu_noise [results.json]

Checks first: keystreams bit for bit, released integers one by one, the float32 budget over all words. Then times, by
CUDA events, as medians after a warm-up; ratios are within this run. The floor is the best of several shapes of a kernel
that reads a row and a gathered row (float32) and writes one (int16), with no noise.
"""

# mypy: ignore-errors
# ruff: noqa: S101
from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np
import torch
import triton
import triton.language as tl
from tests.encoders.fused.twin import slow

from mixveil.core.keystreams import ROUNDS, blocks, key_words
from mixveil.encoders.fused import budget, encoding, keystream_kernels
from mixveil.encoders.fused.encoding import Keystream, Launch, Mixture, encoded
from mixveil.encoders.fused.kernels import radius32, turned32

GENERATORS = ("chacha12", "chacha20", "philox")
KEY = bytes(range(7, 39))
WIDE, NARROW = 62_720, 3_072
HARDWARE = os.environ.get("TRITON_INTERPRET") != "1"
DEVICE = torch.device("cuda" if HARDWARE else "cpu")
_TURN: tl.constexpr = tl.constexpr(2 * math.pi)


@triton.jit
def _floor(own, other, partner, out, d, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    here = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = here < d
    x = tl.load(own + row * d + here, mask=inside)
    y = tl.load(other + tl.load(partner + row) * d + here, mask=inside)
    tl.store(out + row * d + here, (x * 300.0 + y * 400.0).to(tl.int16), mask=inside)


@triton.jit
def _radius_errors(absolute, relative, first, rounds: tl.constexpr, ABOVE: tl.constexpr, BELOW: tl.constexpr,
                   B: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, HARDWARE: tl.constexpr,
                   BLOCK: tl.constexpr):  # fmt: skip
    """The largest error of the radius over a program's words, and its largest ratio to the budget A/R + B·R."""
    start = tl.load(first) + tl.program_id(0).to(tl.int64) * BLOCK * rounds
    worst, ratio = tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64)
    for i in range(rounds):
        number = start + i * BLOCK + tl.arange(0, BLOCK)
        used = (number >= LOW) & (number < HIGH)
        allowed = tl.where(number >= 0x80000000, ABOVE, BELOW).to(tl.float64)
        found = radius32(number.to(tl.uint32), HARDWARE).to(tl.float64)
        for end in tl.static_range(2):
            true = tl.sqrt(-2.0 * tl.log((number + end).to(tl.float64) * 2.0**-32))
            error = tl.where(used, tl.abs(found - true), 0.0)
            worst = tl.maximum(worst, error)
            ratio = tl.maximum(ratio, tl.where(used, error / (allowed / true + B * true), 0.0))
    tl.store(absolute + tl.program_id(0), tl.max(worst, 0))
    tl.store(relative + tl.program_id(0), tl.max(ratio, 0))


@triton.jit
def _angle_errors(absolute, first, rounds: tl.constexpr, HARDWARE: tl.constexpr, BLOCK: tl.constexpr):
    """The largest error of cosine and sine over a program's words."""
    start = tl.load(first) + tl.program_id(0).to(tl.int64) * BLOCK * rounds
    worst = tl.zeros([BLOCK], tl.float64)
    for i in range(rounds):
        number = start + i * BLOCK + tl.arange(0, BLOCK)
        word = number.to(tl.uint32)
        cosine, sine = turned32(word, HARDWARE)
        signed = word.to(tl.int32, bitcast=True).to(tl.float64)
        for end in tl.static_range(2):
            angle = (signed + end) * (2.0**-32 * _TURN)
            worst = tl.maximum(worst, tl.abs(cosine.to(tl.float64) - tl.cos(angle)))
            worst = tl.maximum(worst, tl.abs(sine.to(tl.float64) - tl.sin(angle)))
    tl.store(absolute + tl.program_id(0), tl.max(worst, 0))


def say(**found) -> dict:
    print(json.dumps(found, default=str), flush=True)
    return found


def made(m: int, d: int, *, paired: bool = True, bound: int = 9000, scale: float = 512.0, seed: int = 0) -> Mixture:
    """Rows like singularized mixup's: weights near a half of values in [0, 1], noise of about 512 steps."""
    g = torch.Generator(DEVICE).manual_seed(seed)
    x = torch.rand(m, d, generator=g, device=DEVICE)
    share = torch.rand(m, 1, generator=g, device=DEVICE, dtype=torch.float64) * 0.1 + 0.45
    factors = 300 * (torch.cat([share, 1 - share], dim=1) if paired else share)
    return Mixture(
        x, x if paired else None, torch.randperm(m, generator=g, device=DEVICE) if paired else None,
        factors, 2 * scale * (1 - share[:, 0]), 0.5, 1.0, bound,
    )  # fmt: skip


def check_keystreams(count: int) -> list:
    """The kernel's words against the reference, on several planes, and where the counter passes 2³²."""
    found = []
    for generator, first, plane in itertools.product(GENERATORS, (0, (1 << 32) - 100, (1 << 45) + 3), (0, 1, 7)):
        out = torch.zeros(count, 16, dtype=torch.int32, device=DEVICE)
        for unrolled in (True, False):
            keystream_kernels.raw_words[(count // 64,)](
                out, torch.tensor([first], device=DEVICE), plane, *key_words(KEY), CHACHA=generator != "philox",
                ROUNDS=ROUNDS[generator], UNROLLED=unrolled, BLOCK=64, num_warps=2,
            )  # fmt: skip
            want = blocks(generator, KEY, np.arange(first, first + count, dtype=np.uint64), plane)
            wrong = int((out.cpu().numpy().view(np.uint32) != want).sum())
            found.append({"generator": generator, "first": first, "plane": plane, "wrong": wrong})
            assert wrong == 0, found[-1]
    say(keystreams="equal", words=len(found) * count * 16)
    return found


def check_values(total: int) -> list:
    """Released integers against the slow twin."""
    cases = [(g, d, True, 9000) for g in GENERATORS for d in (NARROW, WIDE, 1000, 1025, 70)]
    cases += [("chacha20", 3000, False, 9000), ("chacha20", 3000, True, 1 << 20), ("chacha20", 3000, True, 700)]
    found = []
    for generator, d, paired, bound in cases:
        small = d not in (NARROW, WIDE)
        m = max(2, -(-(total // 10 if small else total) // d))
        mixture, keystream = made(m, d, paired=paired, bound=bound, seed=d), Keystream(KEY, generator)
        got = encoded(mixture, keystream, first_row=3).cpu().long()
        want, decided = slow(mixture, keystream, 3)
        tight = encoded(mixture, keystream, first_row=3, room=1).cpu().long()  # the list has to grow
        found.append(say(generator=generator, d=d, paired=paired, bound=bound, values=m * d, decided=decided,
                         differ=int((got != want).sum()), differ_when_grown=int((tight != want).sum()),
                         single=encoding.uses_single(mixture)))  # fmt: skip
        assert found[-1]["differ"] == found[-1]["differ_when_grown"] == 0
    return found


def check_open(rows: int) -> list:
    """Values that float64 must leave open: with a budget that is far too large, and with planted half-integers."""
    found = []
    for generator in GENERATORS:
        mixture, keystream = made(rows, 2000), Keystream(KEY, generator)
        want, _ = slow(mixture, keystream)
        with mock.patch.object(budget, "double", lambda *_: 1e-3):
            got = encoded(mixture, keystream)
        half = dataclasses.replace(
            mixture, own=torch.arange(rows * 700.0, device=DEVICE).remainder(97).view(rows, 700), other=None,
            partner=None, factors=torch.ones(rows, 1, dtype=torch.float64, device=DEVICE), largest=100.0,
            scale=torch.full((rows,), 1e-15, dtype=torch.float64, device=DEVICE),
        )  # fmt: skip
        planted, (signs, decided) = encoded(half, keystream).cpu().long(), slow(half, keystream)
        found.append(say(generator=generator, differ=int((got.cpu().long() != want).sum()), planted=decided,
                         planted_differ=int((planted != signs).sum())))  # fmt: skip
        assert found[-1]["differ"] == found[-1]["planted_differ"] == 0
    return found


def check_budget(words: int) -> dict:
    """All words of radius and angle in float32, against float64."""
    block, rounds = 1024, 64 if HARDWARE else 1
    programs = words // (block * rounds)
    absolute, relative, angles = (torch.zeros(programs, dtype=torch.float64, device=DEVICE) for _ in range(3))
    first = torch.tensor([0 if HARDWARE else 1 << 31], device=DEVICE)
    _radius_errors[(programs,)](absolute, relative, first, rounds, ABOVE=budget.ABOVE_HALF,
                                BELOW=budget.BELOW_HALF, B=budget.PER_RADIUS, LOW=budget.LOW, HIGH=budget.HIGH,
                                HARDWARE=HARDWARE, BLOCK=block)  # fmt: skip
    _angle_errors[(programs,)](angles, first, rounds, HARDWARE=HARDWARE, BLOCK=block)
    found = say(
        words=programs * block * rounds, radius_error=float(absolute.max()), radius_of_budget=float(relative.max()),
        angle_error=float(angles.max()), angle_log2=math.log2(float(angles.max())),
        angle_of_budget=float(angles.max()) / budget.angle_error(),
        single_at_512=budget.single(563.2, 300.0), double_at_512=budget.double(563.2, 300.0),
    )  # fmt: skip
    assert found["radius_of_budget"] <= 1 and found["angle_of_budget"] <= 1
    return found


def seconds(call, repeats: int = 9) -> float:
    """The median GPU time of a call, after two that are not counted."""
    if not HARDWARE:
        call()
        return 1.0
    times = []
    for _ in range(repeats + 2):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) / 1000)
    return statistics.median(times[2:])


def floor(mixture: Mixture) -> dict:
    m, d = mixture.own.shape
    out = torch.empty(m, d, dtype=torch.int16, device=DEVICE)
    best = {}
    for block, warps in ((512, 4), (1024, 4), (1024, 8), (2048, 4), (2048, 8), (4096, 8)):
        grid = (-(-d // block), m)
        taken = seconds(lambda: _floor[grid](mixture.own, mixture.other, mixture.partner, out, d,  # noqa: B023
                                             BLOCK=block, num_warps=warps))  # noqa: B023  # fmt: skip
        best[f"{block}/{warps}"] = taken / (m * d) * 1e12
    name = min(best, key=best.get)
    return {"ps": best[name], "shape": name, "tb_per_s": 10 / best[name], "all": best}


def naive(mixture: Mixture, generator: torch.Generator | None = None) -> torch.Tensor:
    """The same release by whole tensors in float32, noise from torch's own generator."""
    a = mixture.factors.float()
    x = (mixture.own - mixture.centre) * a[:, :1] + (mixture.other[mixture.partner] - mixture.centre) * a[:, 1:]
    x += torch.randn_like(x) * mixture.scale.float()[:, None]
    return x.round_().clamp_(-mixture.bound, mixture.bound).to(torch.int16)


def launches() -> list[Launch]:
    shapes = ((32, 1), (64, 2), (128, 4), (256, 8))
    found = [Launch(b, w, False, early) for (b, w), early in itertools.product(shapes, (True, False))]
    return [*found, Launch(64, 2, True, True), Launch(64, 2, True, False)] if HARDWARE else found[2:3]


def steps(mixture: Mixture, keystream: Keystream, launch: Launch, out: torch.Tensor) -> dict:
    """Time of the float32 kernel and of the float64 kernel, in ps a value."""
    run = encoding._Run(mixture, keystream, 0, launch, out, encoding._Size.of(mixture))
    room, values = run.size.room(run.blocks), mixture.own.numel()
    run.begin(room)
    found = {
        "single_ps": seconds(lambda: run.start_single(room)) / values * 1e12,
        "double_ps": seconds(run.start_double) / values * 1e12,
    }
    return {**found, "doubtful_blocks": float(run.counts.double().mean()) / run.blocks, "room": room,
            "most": int(run.counts.max()), "open": int(run.open_count)}  # fmt: skip


def times(d: int, rows: int) -> dict:
    mixture = made(rows, d)
    part = mixture.rows(slice(0, min(rows, encoding.ROWS)))
    values, out = rows * d, torch.empty(rows, d, dtype=torch.int16, device=DEVICE)
    least, few = floor(part), mixture.rows(slice(0, max(2, rows // 8)))
    slow_torch = seconds(lambda: naive(few), 5) / few.own.numel() * 1e12
    say(d=d, rows=rows, floor=least, naive_ps=slow_torch, naive_of_floor=slow_torch / least["ps"])
    found = {"floor": least, "naive_ps": slow_torch, "generators": {}}
    for generator in GENERATORS:
        keystream, tried = Keystream(KEY, generator), []
        for launch in launches():
            tried.append({**dataclasses.asdict(launch), **steps(part, keystream, launch, out[: len(part.own)])})
            print("   ", d, generator, json.dumps(tried[-1]), flush=True)
        best = min(tried, key=lambda one: one["single_ps"])
        launch = Launch(best["blocks"], best["warps"], best["unrolled"], best["early"])
        whole = seconds(lambda: encoded(mixture, keystream, launch=launch, out=out)) / values * 1e12  # noqa: B023
        found["generators"][generator] = say(
            d=d, generator=generator, best=best, whole_ps=whole, of_floor=whole / least["ps"],
            of_naive=whole / slow_torch,
        )  # fmt: skip
        found["generators"][generator]["tried"] = tried
    return found


def release(n: int, d: int) -> dict:
    """A whole release of features: norms, factors, all rows, with ChaCha20; then its way to pinned memory."""
    x = torch.rand(n, d, device=DEVICE)
    partner, weight = torch.randperm(n, device=DEVICE), torch.rand(n, dtype=torch.float64, device=DEVICE) * 0.1 + 0.45
    out = torch.empty(n, d, dtype=torch.int16, device=DEVICE)
    host = torch.empty(n, d, dtype=torch.int16, pin_memory=HARDWARE)
    clip, sigma = 50.0, 200.0

    def whole() -> None:
        norm = torch.cat([torch.linalg.vector_norm(part.double().sub_(0.5), dim=1) for part in x.split(1024)])
        factor = (clip / norm).clamp_(max=1) * 1024 / sigma
        share = torch.stack([weight * factor, (1 - weight) * factor[partner]], dim=1)
        mixture = Mixture(x, x, partner, share, (1 - weight) * 1024, 0.5, 1.0, 9000)
        encoded(mixture, Keystream(KEY, "chacha20"), out=out)

    gpu = seconds(whole, 3)
    begun = time.perf_counter()
    whole()
    host.copy_(out)
    wall = time.perf_counter() - begun
    return say(rows=n, d=d, gpu_seconds=gpu, wall_seconds_to_pinned=wall, gigabytes=n * d * 2 / 1e9)


def copy_speed() -> float:
    x = torch.rand(1 << (30 if HARDWARE else 16), device=DEVICE)
    y = torch.empty_like(x)
    return 2 * x.numel() * 4 / seconds(lambda: y.copy_(x)) / 1e12


def machine() -> dict:
    return {
        "gpu": torch.cuda.get_device_name() if HARDWARE else "Triton's interpreter", "torch": torch.__version__,
        "triton": triton.__version__, "python": platform.python_version(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", default=str(Path(os.environ.get("OUT", ".")) / "gpu_noise.json"))
    parser.add_argument("--part", choices=("checks", "times", "all"), default="all")
    asked = parser.parse_args()
    found, small = {"machine": say(**machine())}, not HARDWARE
    parts = {
        "checks": {
            "keystreams": lambda: check_keystreams(128 if small else 1 << 16),
            "values": lambda: check_values(3000 if small else 1_050_000),
            "open": lambda: check_open(2 if small else 50),
            "budget": lambda: check_budget(1 << (12 if small else 32)),
        },
        "times": {
            "copy_tb_per_s": lambda: say(copy_tb_per_s=copy_speed())["copy_tb_per_s"],
            "wide": lambda: times(WIDE // (40 if small else 1), 2 if small else 8192),
            "narrow": lambda: times(NARROW, 2 if small else 1 << 17),
            "release": lambda: release(4 if small else 50_000, WIDE // (40 if small else 1)),
        },
    }
    failed = False
    for kind, jobs in parts.items():
        for name, job in jobs.items() if asked.part in (kind, "all") else ():
            begun = time.perf_counter()
            try:
                found[name] = job()
            except Exception as error:  # the other parts are still worth their time on a lent machine
                failed = True
                found[name] = say(failed=name, error=f"{type(error).__name__}: {error}")
            print(f"# {name}: {time.perf_counter() - begun:.1f} s", flush=True)
            Path(asked.out).write_text(json.dumps(found, indent=1, default=str))
            if HARDWARE:
                torch.cuda.empty_cache()
    sys.exit(failed)


if __name__ == "__main__":
    main()
