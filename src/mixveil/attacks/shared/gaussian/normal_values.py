"""Whether rows can be mixtures of images whose values are independent normal draws: what Chen et al. 2020 assume."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mixveil.core.types import Release
from mixveil.core.wording.notes import Note, note

_ROWS = 64
_DEVIATIONS = 5.0
_LEAST_CORRELATION, _LEAST_KURTOSIS = 0.02, 0.15  # less does no harm


def not_normal(release: Release) -> Note | None:
    """Why the rows of a release cannot be such mixtures; None if they can. From some of its rows alone."""
    rows = release.payload.take(torch.arange(min(len(release.payload), _ROWS))).x.double()
    x = rows.view(len(rows), *release.shape)
    places = tuple(range(1, x.dim()))
    if not release.encoder.masked:
        x = x - x.mean(places, keepdim=True)
    size = math.sqrt(math.prod(release.shape))
    found = max(neighbours(x.square()), 0.0 if release.encoder.masked else neighbours(x))
    if found > max(_LEAST_CORRELATION, _DEVIATIONS / size):
        return note("attack-needs-independent-values", correlation=found)
    tails = float((x.pow(4).mean(places) / x.square().mean(places).square().clamp(min=1e-300)).mean())
    if abs(tails - 3) > max(_LEAST_KURTOSIS, _DEVIATIONS * math.sqrt(24) / size):
        return note("attack-needs-normal-values", kurtosis=tails)
    return None


def neighbours(x: Tensor) -> float:
    """The largest mean correlation, without its sign, of neighbouring values of rows (m, …), along any axis."""
    centred = x - x.mean(tuple(range(1, x.dim())), keepdim=True)
    variance = centred.square().mean().clamp(min=1e-300)
    found = [0.0]
    for axis in range(1, x.dim()):
        size = x.shape[axis]
        if size > 1:
            both = centred.narrow(axis, 0, size - 1) * centred.narrow(axis, 1, size - 1)
            found.append(abs(float(both.mean() / variance)))
    return max(found)
