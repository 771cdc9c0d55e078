"""Public images that are mixed into private rows: patches of them, cut at random, and not flat.

A patch is a square of an image, three quarters of its shorter side at least, resized to the rows. Flat ones hide
nothing: kept are those with more than 40 keypoints (SIFT), counted before they are resized.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from mixveil.core import checks
from mixveil.core.errors import ArgumentError, MismatchError, MissingDependencyError
from mixveil.core.randomness import Stream
from mixveil.core.types import Batch, Dataset, Rows
from mixveil.core.watching import Watch, unwatched
from mixveil.data.row_views import RowsView

KEYPOINTS = 40
PATCHES = 10_000
_SIDE = 0.75  # of an image's shorter side, at least
_BLOCK = 256
_TRIES = 50  # squares that are cut for each that can be kept, before there are too few
_FEW = 2048  # squares that tell how many can be kept


@dataclass(frozen=True)
class Patches:
    """Rows without labels, in the shape, range and classes of `like`. table: (p, 4) image, top, left, side."""

    images: Dataset
    table: Tensor
    like: Dataset

    def __len__(self) -> int:
        return len(self.table)

    def take(self, index: Tensor) -> Batch:
        cut = self.table[checks.rows_within(index, len(self))]
        shape, span = self.like.shape, self.like.high - self.like.low
        x = torch.empty(len(index), *shape)
        for start in range(0, len(index), _BLOCK):
            here = cut[start : start + _BLOCK]
            for row, (image, square) in enumerate(zip(self.images.originals(here[:, 0]), here, strict=True), start):
                patch = _fitted(_square(image, square), shape)
                x[row] = patch if (span, self.like.low) == (1, 0) else patch.mul_(span).add_(self.like.low)
        return Batch(x, torch.zeros(len(index), len(self.like.classes)))


@dataclass(frozen=True)
class Covered(RowsView):
    """Records, and after them the public rows that they are mixed with."""

    covers: Rows

    def __len__(self) -> int:
        return len(self.rows) + len(self.covers)

    def take(self, index: Tensor) -> Batch:
        """Public rows have no labels, whatever classes the records have."""
        n = len(self.rows)
        public = index >= n
        if not bool(public.any()):
            return self.rows.take(index)
        own = self.rows.take(index[~public] if not bool(public.all()) else torch.zeros(1, dtype=torch.int64))
        x, y = own.x.new_empty(len(index), *own.x.shape[1:]), own.y.new_zeros(len(index), own.y.shape[1])
        x[public] = self.covers.take(index[public] - n).x
        if not bool(public.all()):
            x[~public], y[~public] = own
        return Batch(x, y)


def patches(
    images: Dataset,
    like: Dataset,
    *,
    count: int = PATCHES,
    keypoints: int = KEYPOINTS,
    stream: Stream,
    watch: Watch = unwatched,
) -> Patches:
    """So many patches of public images, each with more than that many keypoints; 0: flat ones too."""
    checks.at_least("patches", count, 1)
    checks.at_least("keypoints", keypoints, 0)
    if len(like.shape) != 3 or len(images.shape) != 3:
        raise MismatchError(f"public images are mixed with images, got rows of {like.shape} and {images.shape}")
    counted = _sift() if keypoints else None
    found: list[Tensor] = []
    cut: set[tuple[int, ...]] = set()
    tried = 0
    with watch("patches", count) as step:
        while len(found) < count:
            if tried >= _FEW and tried > _TRIES * len(found):
                raise ArgumentError(
                    f"of {tried:,} squares of public images {len(found):,} are different and have more than "
                    f"{keypoints} keypoints, and {count:,} patches are asked for: give more, larger or more varied "
                    f"images, or ask for fewer patches or keypoints"
                )
            numbers = (stream.uniform(_BLOCK) * len(images)).long()
            tried += _BLOCK
            before = len(found)
            for image, number, drawn in zip(
                images.originals(numbers), numbers.tolist(), stream.uniform(_BLOCK, 3), strict=True
            ):
                square = _drawn(image, number, drawn)
                place = tuple(square.tolist())
                if place not in cut and (counted is None or counted(_square(image, square)) > keypoints):
                    found.append(square)
                    cut.add(place)
            step(min(len(found), count) - min(before, count))
    return Patches(images, torch.stack(found[:count]), like)


def _drawn(image: Tensor, number: int, drawn: Tensor) -> Tensor:
    """(4,) a square of an image: its side, and where it lies, from three uniform numbers."""
    height, width = image.shape[1:]
    whole = min(height, width)
    least = max(1, round(_SIDE * whole))
    side = least + int(float(drawn[0]) * (whole - least + 1))
    top, left = (int(float(u) * (room - side + 1)) for u, room in zip(drawn[1:], (height, width), strict=True))
    return torch.tensor([number, top, left, side], dtype=torch.int32)


def _square(image: Tensor, square: Tensor) -> Tensor:
    _, top, left, side = square.tolist()
    return image[:, top : top + side, left : left + side]


def _fitted(patch: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A patch in [0, 1] with so many channels, of that size."""
    channels, size = shape[0], shape[1:]
    if len(patch) != channels:
        patch = patch.mean(0, keepdim=True).expand(channels, -1, -1)
    if patch.shape[1:] == size:
        return patch.clone()
    return interpolate(patch[None], size=size, mode="bilinear", antialias=True)[0].clamp_(0, 1)


def _sift() -> Callable[[Tensor], int]:
    """From an image (c, h, w) in [0, 1] to the number of its keypoints."""
    try:
        cv2: Any = import_module("cv2")
    except ImportError:
        raise MissingDependencyError(
            "keypoints of public images are counted by OpenCV: pip install 'mixveil[covers]', or keep flat patches "
            "too (keypoints = 0)"
        ) from None
    sift = cv2.SIFT_create()

    def counted(image: Tensor) -> int:
        grey = image.numpy().mean(0)  # torch's threads beside OpenCV's would wait for each other
        return len(sift.detect((255 * grey + 0.5).astype(np.uint8), None))

    return counted
