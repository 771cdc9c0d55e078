"""Low-pass and scale: images are smooth and noise is not, so blur the row and scale what is left.

How much to blur, and the scale, are fitted on public data that the attacker encodes himself with the release's encoder.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.attacks import _model
from mixveil.errors import ArgumentError
from mixveil.keys import Stream
from mixveil.types import Encoder, Guess, Rows, Trace, View

_PUBLIC_ROWS = 2000


@dataclass(frozen=True)
class Lowpass:
    """The average of the releases, pooled over squares that divide the image."""

    name: ClassVar[str] = "lowpass"
    needs: ClassVar[frozenset[str]] = frozenset({"public"})
    threat: ClassVar[str] = "Holds similar public images, and blurs and scales each row."

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        release = view.releases[0]
        if view.public is None or len(release.shape) != 3:
            raise ArgumentError("lowpass needs public images")
        size, scale, mean = self._fit(view, view.public, stream)
        rows = torch.stack([_model.released(item) for item in view.releases]).mean(0)
        guess = mean + scale * (pooled(rows.view(-1, *release.shape), size).flatten(1) - mean)
        return Guess(images=release.encoder.restore(guess).view(-1, *release.shape))

    def _fit(self, view: View, public: Rows, stream: Stream) -> tuple[int, float, Tensor]:
        """The square's side, the least-squares scale, and the mean record, from as many encodings of public data as
        there are releases."""
        encoder, shape = view.releases[0].encoder, view.releases[0].shape
        index = torch.arange(min(_PUBLIC_ROWS, len(public)))
        known: tuple[Trace | None, ...] = view.traces or (None,) * len(view.releases)
        rows = torch.stack([_encoded(encoder, public, index, trace, stream) for trace in known]).mean(0)
        truth = encoder.prepare(public.take(index).x)
        mean = truth.mean(0)
        best = (math.inf, 1, 0.0)
        for size in range(1, min(shape[1:]) + 1):
            if shape[1] % size or shape[2] % size:
                continue
            blurred = pooled(rows, size).flatten(1) - mean
            scale = float((blurred * (truth - mean)).sum() / blurred.square().sum())
            best = min(best, (float((truth - mean - scale * blurred).square().mean()), size, scale))
        return best[1], best[2], mean


def _encoded(encoder: Encoder, public: Rows, index: Tensor, known: Trace | None, stream: Stream) -> Tensor:
    """Public rows as the release would have them, with its own weights where they are known."""
    trace = encoder.plan(len(index), stream=stream.fork("plan"))
    if known is not None:
        trace = Trace(trace.partner, known.weight[index % len(known.weight)])
    rows = encoder.encode(public, index, trace, stream=stream.fork("noise")).x.double()
    return rows if encoder.step is None else rows * encoder.step


def pooled(images: Tensor, size: int) -> Tensor:
    """The means of squares of that side, with straight lines between them."""
    small = torch.nn.functional.avg_pool2d(images, size)
    return torch.nn.functional.interpolate(small, size=images.shape[2:], mode="bilinear") if size > 1 else small
