"""Images that are mirrored and moved by whole pixels.

A move is three numbers: mirrored or not (1 or 0), then pixels down and right. Mirroring comes first.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor


def moved(x: Tensor, moves: Tensor, fill: float) -> Tensor:
    """Images (m, c, h, w), each moved by one of moves (m, 3). What comes in from outside is `fill`."""
    mirror, down, right = moves.long().to(x.device).T
    return _taken(x, mirror, down, right, mirror_first=True, fill=fill)


def moved_back(x: Tensor, moves: Tensor, fill: float) -> Tensor:
    """The inverse of `moved`, but for what it moved out of the image: that is `fill`."""
    mirror, down, right = moves.long().to(x.device).T
    return _taken(x, mirror, -down, -right, mirror_first=False, fill=fill)


def mirrored(x: Tensor, which: Tensor) -> Tensor:
    """Images (m, c, h, w), of which those are mirrored that `which` (m,) says."""
    return torch.where(which[:, None, None, None], x.flip(3), x)


def all_moves(reach: int) -> Tensor:
    """(2·(2·reach + 1)², 3): every move by so many pixels at most; mirrored too, where any is moved at all."""
    steps = range(-reach, reach + 1)
    return torch.tensor(list(itertools.product((0, 1) if reach else (0,), steps, steps)))


def _taken(x: Tensor, mirror: Tensor, down: Tensor, right: Tensor, *, mirror_first: bool, fill: float) -> Tensor:
    height, width = x.shape[2:]
    row = torch.arange(height, device=x.device) - down[:, None]
    column = torch.arange(width, device=x.device).expand(len(x), -1)
    flipped = mirror[:, None] == 1
    if mirror_first:
        column = column - right[:, None]
        source = torch.where(flipped, width - 1 - column, column)
    else:
        source = torch.where(flipped, width - 1 - column, column) - right[:, None]
        column = source
    inside = (row >= 0) & (row < height), (column >= 0) & (column < width)
    row, source = row.clamp(0, height - 1), source.clamp(0, width - 1)
    image = torch.arange(len(x), device=x.device)[:, None, None]
    taken = x.movedim(1, -1)[image, row[:, :, None], source[:, None, :]].movedim(-1, 1)
    seen = inside[0][:, None, :, None] & inside[1][:, None, None, :]
    return torch.where(seen, taken, torch.tensor(fill, dtype=x.dtype, device=x.device))
