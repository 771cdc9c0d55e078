"""Small pictures: of one record as it is, released and guessed; and of the images behind features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from mixveil.audit.verdict import Audit
from mixveil.core.types import Batch, Dataset
from mixveil.data.row_views import RowsView

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
    original, mine = ((x - result.low) / (result.high - result.low) for x in (result.pixels[row], guess[row]))
    released = result.view.releases[0].payload.take(torch.tensor([row])).x[0]
    released = (released - released.min()) / (released.max() - released.min()).clamp(min=1e-12)
    return Thumbnails(int(numbers[row]), *(shrunk(x, LARGEST) for x in (original, released, mine)))


def shrunk(image: Tensor, side: int) -> Tensor:
    """(c, h, w) float32 in [0, 1], no wider or higher than `side`, in proportion."""
    return _within(image.float().clamp(0, 1)[None], side)[0].clone()


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
