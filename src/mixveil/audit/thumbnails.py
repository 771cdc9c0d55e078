"""Small pictures of one record: as it is, as it was released, and as an attack guesses it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.audit.verdict import Audit

LARGEST = 96
"""No picture that is kept is wider or higher."""


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
    image = image.float().clamp(0, 1)
    height, width = image.shape[1:]
    factor = side / max(height, width)
    if factor >= 1:
        return image.clone()
    size = [max(1, round(height * factor)), max(1, round(width * factor))]
    small = torch.nn.functional.interpolate(image[None], size=size, mode="bilinear", antialias=True)
    return small[0].clamp(0, 1)
