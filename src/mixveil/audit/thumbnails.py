"""Small pictures: of one record as it is, released and guessed; and of the images behind features."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from mixveil.audit.found import Audit
from mixveil.core.types import Batch, Dataset
from mixveil.data.row_views import RowsView
from mixveil.releases.kinds.representations import RepresentationSettings

LARGEST = 96
"""No picture that is kept is wider or higher."""

LARGEST_GUESSED = 64
"""Larger images behind features are shown, guessed and measured at this size."""


class Thumbnails(NamedTuple):
    """One record under an attack, as small pictures (c, h, w) in [0, 1]. released: its row, stretched to its own range;
    of the first encoding where there are several."""

    number: int
    original: Tensor
    released: Tensor
    guess: Tensor


def thumbnails(result: Audit, guess: Tensor, row: int, numbers: Tensor) -> Thumbnails:
    """guess: (n, …) uint8, as an audit keeps it."""
    original, mine = (result.pixels[row] - result.low) / (result.high - result.low), guess[row] / 255
    sent = released(result, torch.tensor([row]))[0]
    return Thumbnails(int(numbers[row]), *(shrunk(x, LARGEST) for x in (original, sent, mine)))


def released(result: Audit, index: Tensor) -> Tensor:
    """(m, …) in [0, 1]: some rows of the first release, each stretched to its own range. Rows of records have the shape
    of records; representations are pictures (m, 1, h, w), their maps side by side, each stretched by itself: a map of
    large values does not blacken the others."""
    first = result.view.releases[0]
    rows: Tensor = first.payload.take(index).x.flatten(1)
    settings = first.envelope.settings
    if isinstance(settings, RepresentationSettings):
        maps = settings.shape[0] if len(settings.shape) == 3 else 1
        return _within(mosaic(_stretched(rows.view(len(rows), maps, -1)).flatten(1), settings.shape), LARGEST)
    return _stretched(rows).view(-1, *result.shape)


def _stretched(values: Tensor) -> Tensor:
    """(…, k) in [0, 1]: each to the whole range; 0 where all k are equal."""
    wide = values.double()
    low, high = wide.amin(-1, keepdim=True), wide.amax(-1, keepdim=True)
    return ((wide - low) / torch.where(high > low, high - low, 1.0)).to(values.dtype)


def mosaic(rows: Tensor, shape: tuple[int, ...]) -> Tensor:
    """(m, 1, h, w) pictures of rows (m, values), nearly square: the maps of (maps, height, width) side by side, line by
    line; the values of other shapes as maps of one pixel. Places that are left over are 0.

    >>> mosaic(torch.arange(3.0)[None], (3,))
    tensor([[[[0., 1.],
              [2., 0.]]]])
    """
    maps, height, width = shape if len(shape) == 3 else (math.prod(shape), 1, 1)
    across = max(1, min(maps, math.ceil(math.sqrt(maps * height / width) - 1e-9)))
    down = math.ceil(maps / across)
    whole = rows.new_zeros(len(rows), down * across, height, width)
    whole[:, :maps] = rows.view(-1, maps, height, width)
    tiles = whole.view(-1, down, across, height, width).permute(0, 1, 3, 2, 4)
    return tiles.reshape(-1, 1, down * height, across * width)


def shrunk(image: Tensor, side: int) -> Tensor:
    """(c, h, w) float32 in [0, 1], no wider or higher than `side`, in proportion."""
    return _within(image.float().clamp(0, 1)[None], side)[0].clone()


def small(images: Tensor) -> Tensor:
    """(n, …) uint8: pictures (n, c, h, w) no wider or higher than `LARGEST`, in proportion; others as they are."""
    if images.dim() != 4 or max(images.shape[2:]) <= LARGEST:
        return images
    return (_within(images.float() / 255, LARGEST) * 255).round().to(torch.uint8)


@dataclass(frozen=True)
class SmallImages(RowsView):
    """Images in [0, 1], no larger than `LARGEST_GUESSED`: what attackers who turn features back into pictures guess."""

    rows: Dataset

    def take(self, index: Tensor) -> Batch:
        x, y = self.rows.take(index)
        return Batch(_within((x - self.rows.low) / (self.rows.high - self.rows.low), LARGEST_GUESSED), y)


def _within(images: Tensor, side: int) -> Tensor:
    """(n, c, h, w) in [0, 1], no wider or higher than `side`, in proportion."""
    longest = max(images.shape[2:])
    if longest <= side:
        return images
    size = [max(1, round(length * side / longest)) for length in images.shape[2:]]
    return interpolate(images, size=size, mode="bilinear", antialias=True).clamp(0, 1)
