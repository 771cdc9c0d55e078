"""Finding images that look alike, in time that grows with their number, not with its square."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

Hashes = npt.NDArray[np.uint64]
Thumbs = npt.NDArray[np.float16]

SIDE = 16
_FLAT = 0.01  # of the contrast of a thumbnail: smaller steps between neighbours do not count
_BITS = 12  # of 64 that may differ
_WINDOW = 8
_DIFFERENCE = 0.02  # of the pixel range, on average
_PART = 0.15  # of the contrast: faint images must agree more closely
_CHUNK = 65_536


def look(image: Tensor) -> tuple[int, Thumbs]:
    """A 64-bit difference hash and a grey thumbnail of an image (channels, height, width) in [0, 1]."""
    grey = image.mean(0, keepdim=True)[None]
    small = adaptive_avg_pool2d(grey, (8, 9))[0, 0]
    rises = small[:, 1:] - small[:, :-1] > _FLAT * (small.max() - small.min())
    number = int.from_bytes(np.packbits(rises.numpy()).tobytes(), "big")
    thumb: Thumbs = adaptive_avg_pool2d(grey, SIDE).flatten().to(torch.float16).numpy()
    return number, thumb


def groups(hashes: Hashes, thumbs: Thumbs) -> list[list[int]]:
    """Groups of two or more images that look alike. Every image is close to one other of its group.

    The hashes are sorted eight times, each time starting from another of their bytes, and each is compared with the few
    that follow it. Candidates are verified on the thumbnails. Some pairs can be missed.
    """
    parents = list(range(len(hashes)))
    brightness = thumbs.mean(1, dtype=np.float32)
    for byte in range(8):
        turned = np.roll(hashes.astype(">u8").view(np.uint8).reshape(-1, 8), -byte, axis=1)
        order = np.lexsort((brightness, np.ascontiguousarray(turned).view(">u8")[:, 0]))
        for step in range(1, min(_WINDOW, len(order) - 1) + 1):
            left, right = order[:-step], order[step:]
            roots = np.array([_root(parents, place) for place in range(len(parents))])
            new = (roots[left] != roots[right]) & (_differing_bits(hashes[left], hashes[right]) <= _BITS)
            left, right = left[new], right[new]
            for start in range(0, len(left), _CHUNK):
                a, b = left[start : start + _CHUNK], right[start : start + _CHUNK]
                same = _look_alike(thumbs[a], thumbs[b])
                for one, other in zip(a[same].tolist(), b[same].tolist(), strict=True):
                    parents[_root(parents, other)] = _root(parents, one)
    found: dict[int, list[int]] = {}
    for place in range(len(parents)):
        found.setdefault(_root(parents, place), []).append(place)
    return [members for members in found.values() if len(members) > 1]


def _differing_bits(a: Hashes, b: Hashes) -> npt.NDArray[np.int64]:
    bits: npt.NDArray[np.int64] = np.unpackbits((a ^ b).view(np.uint8).reshape(-1, 8), axis=1).sum(1, dtype=np.int64)
    return bits


def _look_alike(a: Thumbs, b: Thumbs) -> npt.NDArray[np.bool_]:
    one, other = a.astype(np.float32), b.astype(np.float32)
    difference = np.abs(one - other).mean(1)
    contrast = np.minimum(_contrast(one), _contrast(other))
    alike: npt.NDArray[np.bool_] = (difference <= _DIFFERENCE) & (difference <= _PART * contrast)
    return alike


def _contrast(thumbs: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    contrast: npt.NDArray[np.float32] = np.abs(thumbs - thumbs.mean(1, keepdims=True)).mean(1)
    return contrast


def _root(parents: list[int], place: int) -> int:
    while parents[place] != place:
        parents[place] = parents[parents[place]]
        place = parents[place]
    return place
