"""What the labels of a release say of how it was mixed: enough for an attacker, and for a server that trains on it."""

from __future__ import annotations

from typing import NamedTuple

import torch

from mixveil.core.types import Release

_ROWS = 8192


class Mixing(NamedTuple):
    """share: E[Σw²], what mixing leaves of a variance; noise: the variance of the noise in one value of a row."""

    share: float
    noise: float


def mixing(release: Release) -> Mixing:
    """From labels of several classes, which show the weights but not which of them is the row's own: both orders count
    half. Where no label shows any, two records of one class were mixed about half and half, or none were mixed."""
    share = noise = 0.0
    count = 0
    for index in torch.split(torch.arange(len(release.payload)), _ROWS):
        y = release.payload.take(index).y
        several = y[(y > 0).sum(1) > 1]
        if not len(several):
            continue
        share += float(several.double().square().sum())
        weights = several.topk(2, dim=1).values
        noise += float(release.encoder.deviation(torch.cat([weights, weights.flip(1)])).square().sum()) / 2
        count += len(several)
    if count:
        return Mixing(share / count, noise / count)
    mixes = release.encoder.name == "singular"
    return Mixing(0.5 if mixes else 1.0, float(release.encoder.deviation(torch.full((1, 2), 0.5)).square()))
