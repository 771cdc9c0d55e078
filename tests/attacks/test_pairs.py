"""The radius check and the grid check: what they must find, and what they must not."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from mixveil.attacks.records.grid import Grid, _best_evidence, layouts, looked_at
from mixveil.attacks.records.radius import Radius, RadiusLabels
from mixveil.core.randomness import SecureStream, SeededStream
from mixveil.core.types import Attack, Batch, Mu, Release, Tau, Trace, View
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import CalibratedSingular, Singular
from tests.made import encoded, images, in_memory, range_facts, with_moments

DATA = images(24, (3, 32, 32), classes=6)
CANDIDATES = DATA.take(torch.arange(24)).x
FEW = 16
"""Of them are enough for the grid check: it tries every two of them on every row."""

FACTS = with_moments(range_facts(DATA), energy=256.0, lambda_max=1.0)


def found(attack: Attack, release: Release, trace: Trace) -> float:
    """The share of rows whose two sources the attack names, among the rows whose labels show the weights."""
    n = len(trace.weight)
    truth = torch.stack([torch.arange(n), trace.partner[:, 0]], dim=1)
    shown = DATA.labels[:n] != DATA.labels[trace.partner[:, 0]]
    seen = View((release,), candidates=CANDIDATES[:n], candidate_labels=DATA.labels[:n])
    pairs = attack(seen, stream=SeededStream(0)).pairs
    assert pairs is not None and bool((pairs[~shown] == -1).all())
    return float(pairs.eq(truth).all(1)[shown].double().mean())


def test_the_radius_check_finds_the_pairs_of_sphere_noise_however_much_there_is() -> None:
    encoder, _ = Singular(noise="sphere").calibrate(Tau(1e-4, "energy"), FACTS)
    assert found(Radius(), *encoded(encoder, DATA, SeededStream(2))) > 0.8  # a coin would tell half


def test_the_radius_check_does_not_find_those_of_gaussian_noise() -> None:
    encoder, _ = Singular().calibrate(Tau(1e-4, "energy"), FACTS)
    release, trace = encoded(encoder, DATA, SecureStream())
    assert found(Radius(exact=True), release, trace) < 0.25
    assert found(Radius(), release, trace) < 0.25


def test_labels_leave_fewer_pairs_to_try() -> None:
    """Noise so strong that one pair in 552 fits as well as the true one by chance; of 16 none does."""
    encoder, _ = Singular(noise="sphere").calibrate(Tau(1e-9, "energy"), FACTS)
    release, trace = encoded(encoder, DATA, SeededStream(2))
    blind, pruned = found(Radius(), release, trace), found(RadiusLabels(), release, trace)
    assert pruned > blind + 0.2 and pruned > 0.7


def test_the_strength_of_gaussian_noise_tells_which_source_is_the_rows_own() -> None:
    encoder, _ = Singular().calibrate(Tau(0.1, "energy"), FACTS)
    assert found(Radius(), *encoded(encoder, DATA, SeededStream(2))) > 0.8  # a coin would tell half


def test_without_noise_the_smallest_residual_is_the_pair() -> None:
    """Which of the two is the row's own cannot be told then: the pair is what counts."""
    release, trace = encoded(Mixup(), DATA, SeededStream(3))
    pairs = Radius()(View((release,), candidates=CANDIDATES), stream=SeededStream(0)).pairs
    assert pairs is not None
    shown = pairs[:, 0] >= 0
    truth = torch.stack([torch.arange(24), trace.partner[:, 0]], dim=1)
    assert int(shown.sum()) > 12
    assert torch.equal(pairs[shown].sort(1).values, truth[shown].sort(1).values)


def naive_float32(encoder: CalibratedSingular, trace: Trace, width: int) -> Release:
    """The same mechanism as a quick script would write it: float32 Box–Muller from uniforms of few bits."""
    n = len(trace.weight)
    x = CANDIDATES[:n].flatten(1) - 0.5
    bits = SeededStream(8).words(n * 3072).bitwise_and((1 << width) - 1).view(2, n, 1536)
    radius = torch.sqrt(-2 * torch.log((bits[0] + 1).double() * 2.0**-width)).float()
    angle = bits[1].float() * (2 * math.pi * 2.0**-width)
    noise = torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], dim=2).view(n, 3072)
    weight = trace.weight
    rows = weight[:, :1] * x + weight[:, 1:] * (x[trace.partner[:, 0]] + encoder.sigma * noise)
    labels = DATA.take(torch.arange(n)).y
    mixed = weight[:, :1] * labels + weight[:, 1:] * labels[trace.partner[:, 0]]
    return in_memory(encoder, Batch(rows.view(n, 3, 32, 32), mixed), None, DATA.classes)


def test_the_grid_check_finds_the_pairs_of_naive_float32_noise_and_not_ours() -> None:
    encoder, _ = Singular().calibrate(Mu(0.5), FACTS)
    trace = encoder.plan(FEW, stream=SeededStream(5))
    assert found(Grid(), naive_float32(encoder, trace, 24), trace) > 0.9
    assert found(Grid(), naive_float32(encoder, trace, 25), trace) > 0.6
    assert found(Grid(), *encoded(encoder, DATA.part(torch.arange(FEW)), SecureStream())) < 0.25


def test_of_a_wide_row_the_grid_check_looks_at_values_that_pair_up() -> None:
    assert torch.equal(looked_at(4096), torch.arange(4096))
    d = 62_720
    place = torch.arange(d)[None]
    neighbours, halves, sixteens = (layout[0] for layout in layouts(place))
    seen = looked_at(d)
    assert len(seen) == 4096
    for whole, part in zip((neighbours, halves, sixteens), layouts(place[:, seen]), strict=True):
        pairs = {tuple(pair) for pair in whole.T.tolist()}
        assert {tuple(pair) for pair in part[0].T.tolist()} <= pairs


def test_the_grid_checks_evidence_is_that_of_all_normals_one_by_one() -> None:
    draws = SeededStream(4)
    uniform = (draws.words(64).bitwise_and((1 << 24) - 1) + 1).double() * 2.0**-24
    radius, angle = (-2 * uniform.log()).sqrt(), 2 * math.pi * draws.uniform(64).double()
    noise = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1).flatten()
    second = torch.cat([torch.zeros(1, 128).double(), 0.3 * draws.normal(3, 128), 40 * draws.normal(1, 128)])
    columns = [layout[0] for layout in layouts(torch.arange(128)[None])]
    found = _best_evidence(noise, second, columns, (24, 25))
    for number, other in enumerate(second):
        if number < 4:
            assert float(found[number]) == pytest.approx(_one_by_one(noise - other), abs=1e-6)
    assert int(found.argmax()) == 0 and float(found[4]) < -50


def _one_by_one(normals: Tensor) -> float:
    """The best of all layouts and numbers of bits, from lists."""
    values, best = normals.tolist(), -math.inf
    halves = [(i, i + 64) for i in range(64)]
    sixteens = [(16 * b + i, 16 * b + 8 + i) for b in range(8) for i in range(8)]
    for pairs in ([(2 * i, 2 * i + 1) for i in range(64)], halves, sixteens):
        for bits in (24, 25):
            total = 0.0
            for one, other in pairs:
                energy = values[one] ** 2 + values[other] ** 2
                steps = math.exp(-energy / 2) * 2.0**bits
                spread = steps * (energy + 1) * 2.0**-24.5 + 0.02
                near = sum(math.exp(-(((steps - round(steps) + turn) / spread) ** 2) / 2) for turn in (-1, 0, 1))
                on_grid = 0.9 * near / (spread * math.sqrt(2 * math.pi)) if steps > 0.5 else 0.0
                total += math.log(on_grid + 0.1) if energy > 6 else 0.0
            best = max(best, total)
    return best


def test_the_grid_check_is_not_misled_by_pairs_that_are_far_off() -> None:
    """Under weak noise other pairs leave much more than any uniform makes: they lie on no grid."""
    encoder, _ = Singular().calibrate(Tau(1.0, "energy"), FACTS)
    trace = encoder.plan(FEW, stream=SeededStream(5))
    assert found(Grid(), naive_float32(encoder, trace, 24), trace) > 0.9
