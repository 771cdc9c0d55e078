"""Low-pass: images are smooth and noise is not, so blur the rows; then scale them, or undo the mixing.

How much to blur, and the scale, are fitted on public data, which the attacker encodes with the release's encoder.
It knows nothing of images but that they are smooth, so it works in any number of dimensions and from few public ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.attacks.records.lmmse import unmixed
from mixveil.attacks.shared import model
from mixveil.attacks.shared.base import ImageAttack
from mixveil.attacks.shared.model import MixingMatrix
from mixveil.attacks.shared.prior import total
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackBound, AttackKind, Encoder, Guess, Release, Trace, View
from mixveil.data.row_views import Subset
from mixveil.theory.moments import blocks

_PUBLIC_ROWS = 2000
_PUBLIC_VALUES = 1 << 22


@dataclass(frozen=True)
class LowpassRow(ImageAttack):
    """Each row by itself, pooled over squares that divide the image, times one number. Releases are averaged."""

    name: ClassVar[str] = "lowpass-row"
    kind: ClassVar[AttackKind] = "reconstruction"
    needs: ClassVar[frozenset[str]] = frozenset({"public"})
    bound: ClassVar[AttackBound | None] = "linear"
    passes: ClassVar[float] = 60

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        return Guess(images=_attacked(view, None, stream))


@dataclass(frozen=True)
class Lowpass(ImageAttack):
    """All rows of all releases, pooled; then the mixing is undone, value by value, with the pairing known."""

    name: ClassVar[str] = "lowpass"
    kind: ClassVar[AttackKind] = "reconstruction"
    needs: ClassVar[frozenset[str]] = frozenset({"public", "traces"})
    bound: ClassVar[AttackBound | None] = "linear"
    passes: ClassVar[float] = 60

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        return Guess(images=_attacked(view, model.traces_of(view), stream))


def _attacked(view: View, traces: tuple[Trace, ...] | None, stream: Stream) -> Tensor:
    """Choose the side of the squares, and the scale, that are best on public data; then do the same to the rows."""
    shape = view.releases[0].shape
    if view.public is None or len(shape) != 3:
        raise ArgumentError("this attack needs public images")
    public = Subset(view.public, model.spaced(len(view.public), _PUBLIC_ROWS))
    mean = (total(blocks(public)) / len(public)).view(shape)
    prepares = [release.encoder.prepare for release in view.releases]
    offsets = [(total(prepare(x) for x in blocks(public)) / len(public)).view(shape) for prepare in prepares]
    index = model.spaced(len(view.public), min(_PUBLIC_ROWS, _PUBLIC_VALUES // math.prod(shape)))
    truth = view.public.take(index).x - mean
    made, known = [], []
    for t, release in enumerate(view.releases):
        weight = None if view.traces is None else view.traces[t].weight
        rows, trace = _encoded(release.encoder, view, index, weight, stream.fork(f"release {t}"))
        made.append(rows.sub_(offsets[t]))
        known.append(trace)
    flat, best = truth.flatten(), (math.inf, 1, 0.0)
    for size in (size for size in range(1, min(shape[1:]) + 1) if shape[1] % size == 0 == shape[2] % size):
        variance = float(torch.nn.functional.avg_pool2d(truth, size).square().mean())
        small = [torch.nn.functional.avg_pool2d(rows, size) for rows in made]
        guess = _smooth(view, small, None if traces is None else tuple(known), size, variance).flatten()
        agreed, length = float(guess @ flat), max(float(guess @ guess), 1e-300)
        best = min(best, (-agreed * agreed / length, size, agreed / length))  # what this scale takes off ‖truth‖²
    _, size, scale = best
    variance = float(torch.nn.functional.avg_pool2d(truth, size).square().mean())
    seen = [_pooled(release, offset, size) for release, offset in zip(view.releases, offsets, strict=True)]
    return _smooth(view, seen, traces, size, variance).mul_(scale).add_(mean)


def _pooled(release: Release, offset: Tensor, size: int) -> Tensor:
    """(n, …) the means of the squares of all rows, less the mean row (…)."""
    parts = (block.view(-1, *release.shape) - offset for block in blocks(release.payload))
    return torch.cat([torch.nn.functional.avg_pool2d(part, size) for part in parts])


def _smooth(view: View, small: list[Tensor], traces: tuple[Trace, ...] | None, size: int, variance: float) -> Tensor:
    """(n, …) images from the means of squares, of each release (n, …): the rows', or those of the records that the rows
    were mixed of."""
    n, (channels, height, width) = len(small[0]), view.releases[0].shape
    flat = [x.flatten(1) for x in small]
    if traces is None:
        found = torch.stack(flat).mean(0)
    else:
        noises = [model.noise_variance(r, t.weight) / size**2 for r, t in zip(view.releases, traces, strict=True)]
        noises = [noise.clamp(min=1e-7 * variance)[:, None] for noise in noises]
        one = torch.ones(1, dtype=torch.float64)
        found = unmixed(MixingMatrix.of(traces), flat, noises, [one] * len(flat), variance * one)[:n]
    return enlarged(found.view(n, channels, height // size, width // size), (height, width))


def _encoded(encoder: Encoder, view: View, some: Tensor, weight: Tensor | None, stream: Stream) -> tuple[Tensor, Trace]:
    """Some public rows as the release would have them, with its own weights where they are known."""
    if view.public is None:
        raise ArgumentError("this attack needs public images")
    public, index = model.with_covers(view, Subset(view.public, some)), torch.arange(len(some))
    trace = encoder.plan(len(index), stream=stream.fork("plan"))
    if weight is not None:
        trace = replace(trace, weight=weight[index % len(weight)])
    rows = encoder.encode(public, index, trace, stream=stream.fork("noise")).x.double()
    return rows if encoder.step is None else rows.mul_(encoder.step), trace


def enlarged(small: Tensor, size: tuple[int, int]) -> Tensor:
    """Images of that size, with straight lines between the values."""
    if small.shape[2:] == size:
        return small
    return torch.nn.functional.interpolate(small, size=size, mode="bilinear")
