"""Which of a solution and its negative is right, pixel by pixel: one sign for each, the same in all images.

What is known of every sign by itself is added to how alike pixels beside one another are in natural images: Gaussian
differences, of the variance that public images show. The signs are improved one half of the pixels after the other
(iterated conditional modes on the fields of a chessboard).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_ROUNDS = 50
_WAYS = (1, 2, 0)  # down, right, to the next channel


@dataclass(frozen=True)
class PixelPrior:
    """What images are like.

    Attributes:
        mean, variance: (d,) of their values.
        apart: The mean square of the difference of values beside one another: below, to the right, in the next channel.
        shape: Of an image.
    """

    mean: Tensor
    variance: Tensor
    apart: tuple[float, float, float]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, images: Tensor, shape: tuple[int, ...]) -> PixelPrior:
        """As images (k, d) are like."""
        whole = images.view(-1, *shape)
        apart = [float(whole.diff(dim=way).square().mean()) if whole.shape[way] > 1 else 1.0 for way in (2, 3, 1)]
        variance = images.var(0).clamp(min=1e-3 * float(images.var(0).mean()) + 1e-12)
        down, right, channels = (max(value, 1e-6) for value in apart)
        return cls(images.mean(0), variance, (down, right, channels), shape)


def chosen_signs(images: Tensor, word: Tensor, prior: PixelPrior) -> Tensor:
    """(d,) ±1 for images (n, d). word: (d,) what else is known of every sign: the logarithm of how much likelier +1
    is."""
    mean, variance = prior.mean.to(images), prior.variance.to(images)
    own = (word + (2 * images * mean / variance).sum(0)).view(prior.shape)
    field = torch.where(own < 0, -1.0, 1.0).to(images)
    whole = images.view(-1, *prior.shape)
    links = [
        (whole * whole.roll(-1, way + 1)).sum(0) / apart for way, apart in zip((1, 2, 0), prior.apart, strict=True)
    ]
    for way, link in zip((1, 2, 0), links, strict=True):
        link.narrow(way, link.shape[way] - 1, 1).zero_()  # nothing is beside the last one
    number = [torch.arange(size, device=images.device) for size in prior.shape]
    dark = (number[0][:, None, None] + number[1][:, None] + number[2]) % 2 == 0
    for _ in range(_ROUNDS):
        before = field.clone()
        for half in (dark, ~dark):
            around = sum((_beside(field, link, way) for way, link in zip(_WAYS, links, strict=True)), start=own)
            field = torch.where(half, torch.where(around < 0, -1.0, 1.0).to(field), field)
        if torch.equal(before, field):
            break
    return field.flatten()


def _beside(field: Tensor, link: Tensor, way: int) -> Tensor:
    """What the pixels on both sides say of a sign. link: what a pixel and the next one along `way` have in common."""
    return link * field.roll(-1, way) + link.roll(1, way) * field.roll(1, way)
