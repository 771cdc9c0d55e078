"""Projections and features of which tests make sums, and the optimal test against them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.core.randomness import SecureStream, SeededStream, Stream
from mixveil.data.images import Images, from_tensors
from mixveil.features.cache import Features
from mixveil.features.projection import HeldRows, Projected, Projection
from mixveil.features.projection_fit import fit
from mixveil.features.round_settings import RoundSettings
from mixveil.releases.contributions import Head, class_total, residual_total, square_total
from mixveil.releases.kinds.sums import SumSettings
from mixveil.releases.sums import _noisy
from tests.made import blobs, features_of

WEIGHTS, DIGEST = "a" * 64, "b" * 64
SETTINGS = RoundSettings(
    directions=6,
    rounds=6,
    share=0.2,
    clip=0.2,
    noise=1e-3,
    rate=2.0,
    momentum=0.5,
    temperature=0.5,
    accuracy=0.9,
)


@cache
def base() -> Projection:
    return fit(features_of(blobs(600, 1)), WEIGHTS)


def ball(points: Tensor, labels: Tensor, units: tuple[str, ...] | None = None) -> Features:
    """Points (n, d) as features, with no range."""
    data: Images = from_tensors(points.float()[:, None, None], labels, classes=int(labels.max()) + 1)
    return features_of(replace(data, low=-1e9, high=1e9, units=units))


def identity(k: int = 4) -> Projection:
    """So many numbers as they are, clipped to norm 1."""
    sample, ones = SeededStream(0).normal(64, k).half() * 0.4, torch.ones(k)
    return replace(base(), mean=0 * ones, matrix=torch.eye(k), clip=1.0, sample=sample, separation=ones, norms=ones)


def given(z: Tensor, labels: Tensor, units: Sequence[str] | None = None, *, clip: float, classes: int = 2) -> HeldRows:
    """Rows (n, k) that go into sums as they are, however long: nothing but the sums themselves clips them."""
    data = from_tensors(torch.zeros(len(z), 1, 1, z.shape[1]), labels, classes=classes, units=units)
    return HeldRows(features_of(data), replace(identity(z.shape[1]), clip=clip), z)


def scores(
    one: Tensor,
    other: Tensor,
    settings: SumSettings,
    repetitions: int,
    stream: Stream | None = None,
    parties: int = 1,
    having: int = 1,
) -> tuple[Tensor, Tensor]:
    """Of the optimal test of which of two totals noise was added to, by the code that adds it. Repetitions are drawn in
    one batch. parties: how many of them add noise, where only their sum is seen; having: how many of them have it."""
    towards, found = (one - other).flatten() / (one - other).norm(), []
    for total in (one, other):
        each = torch.zeros(parties, repetitions, total.numel(), dtype=torch.float64)
        for number in range(parties):
            own = total if number < having else torch.zeros_like(total)
            indices = _noisy(
                own.div(settings.step).round().long().repeat(repetitions, 1), settings, stream or SecureStream()
            )
            each[number] = settings.values(indices).view(repetitions, -1)
        found.append(each.sum(0) @ towards)
    return found[0], found[1]


BITS = 30


def class_sum(rows: HeldRows, clip: float) -> Tensor:
    """The exact total as values, float64."""
    return class_total(rows, clip, BITS).double() * math.ldexp(clip, -BITS)


def residual_sum(rows: Projected, head: Head, clip: float) -> Tensor:
    return residual_total(rows, head, clip, BITS).double() * math.ldexp(clip, -BITS)


def square_sum(rows: HeldRows, k: int, clip: float) -> Tensor:
    return square_total(rows, k, clip, BITS).double() * math.ldexp(clip**2, -BITS)


class Watched(SeededStream):
    """It remembers the deviation of all noise that was drawn, in steps of the grid."""

    scales: ClassVar[list[float]] = []

    def rounded_normals(self, *shape: int, scale: float) -> Tensor:
        self.scales.append(scale)
        return super().rounded_normals(*shape, scale=scale)


class LastIsBare(SecureStream):
    """A planted lie: no noise on the last value of each class."""

    def rounded_normals(self, *shape: int, scale: float) -> Tensor:
        drawn = super().rounded_normals(*shape, scale=scale)
        drawn[..., -1] = 0
        return drawn
