"""Projections and features of which tests make class sums and second moments."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from mixveil.core.randomness import SeededStream
from mixveil.data.images import Images, from_tensors
from mixveil.features.cache import Features
from mixveil.features.projection import Projection
from mixveil.features.projection_fit import fit
from mixveil.features.round_settings import RoundSettings
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
