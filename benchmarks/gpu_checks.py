"""Is noise on this GPU exact? Keystreams bit for bit, released integers one by one, float32 over all words."""

# mypy: ignore-errors
# ruff: noqa: S101
from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
from unittest import mock

import numpy as np
import torch
import triton
import triton.language as tl
from tests.encoders.fused.twin import slow

from mixveil.core.keystreams import ROUNDS, blocks, key_words
from mixveil.encoders.fused import budget, encoding, keystream_kernels
from mixveil.encoders.fused.encoding import Keystream, Mixture, encoded
from mixveil.encoders.fused.kernels import radius32, turned32

GENERATORS = ("chacha12", "chacha20", "philox")
KEY = bytes(range(7, 39))
WIDE, NARROW = 62_720, 3_072
HARDWARE = os.environ.get("TRITON_INTERPRET") != "1"
DEVICE = torch.device("cuda" if HARDWARE else "cpu")
_TURN: tl.constexpr = tl.constexpr(2 * math.pi)


def checks() -> list:
    small = not HARDWARE
    return [
        lambda: check_keystreams(128 if small else 1 << 16),
        lambda: check_values(3000 if small else 1_050_000),
        lambda: check_open(100 if small else 50_000, 30 if small else 300),
        lambda: check_budget(1 << (12 if small else 32)),
    ]


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
        factors, 2 * scale * (1 - share[:, 0]), 0.5, 1.1 * scale, 450.0, bound,
    )  # fmt: skip


def check_keystreams(count: int) -> list:
    """The kernel's words against the reference, on several planes, and where the counter passes 2³²."""
    words = 0
    for generator, first, plane in itertools.product(GENERATORS, (0, (1 << 32) - 100, (1 << 45) + 3), (0, 1, 7)):
        out = torch.zeros(count, 16, dtype=torch.int32, device=DEVICE)
        keystream_kernels.raw_words[(count // 64,)](
            out, torch.tensor([first], device=DEVICE), plane, *key_words(KEY), CHACHA=generator != "philox",
            ROUNDS=ROUNDS[generator], BLOCK=64, num_warps=2,
        )  # fmt: skip
        want = blocks(generator, KEY, np.arange(first, first + count, dtype=np.uint64), plane)
        assert (out.cpu().numpy().view(np.uint32) == want).all(), (generator, first, plane)
        words += want.size
    return [say(work="keystreams", checked=words, differ=0)]


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
        unknown = encoded(dataclasses.replace(mixture, reach=None), keystream, first_row=3).cpu().long()
        differ = sum(int((one != want).sum()) for one in (got, tight, unknown))
        found.append(say(work="values", generator=generator, values_a_row=d, sources=2 if paired else 1, bound=bound,
                         checked=m * d, by_intervals=decided, differ=differ,
                         in_float32=encoding.uses_single(mixture)))  # fmt: skip
        assert differ == 0
    return found


def check_open(values: int, planted: int) -> list:
    """Values that float64 must leave open: with a bound that is far too large, and planted half-integers."""
    found = []
    for generator in GENERATORS:
        mixture, keystream = made(2, values // 2), Keystream(KEY, generator)
        want, _ = slow(mixture, keystream)
        with mock.patch.object(budget, "double", lambda *_: 1e-3):
            got = encoded(mixture, keystream)
        half = Mixture(
            torch.arange(float(planted), device=DEVICE).remainder(97)[None], None, None,
            torch.ones(1, 1, dtype=torch.float64, device=DEVICE),
            torch.full((1,), 1e-15, dtype=torch.float64, device=DEVICE), 0.5, 1e-15, 100.0, 9000,
        )  # fmt: skip
        signs, decided = slow(half, keystream)
        differ = int((got.cpu().long() != want).sum()) + int((encoded(half, keystream).cpu().long() != signs).sum())
        found.append(say(work="open", generator=generator, checked=values + planted, by_intervals=decided,
                         differ=differ))  # fmt: skip
        assert differ == 0
    return found


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


def check_budget(words: int) -> list:
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
        work="budget", checked=programs * block * rounds, radius_error=float(absolute.max()),
        radius_of_budget=float(relative.max()),
        angle_error=float(angles.max()), angle_log2=math.log2(float(angles.max())),
        angle_of_budget=float(angles.max()) / budget.angle_error(),
        single=budget.single(563.2, 450.0), double=budget.double(563.2, 450.0),
    )  # fmt: skip
    assert found["radius_of_budget"] <= 1 and found["angle_of_budget"] <= 1
    return [found]
