"""By what an image is known, however it was read: its pixels at full size, grey in colour counted as grey.

An image that was resized, or changed by one pixel, is another one: copies of that kind nobody finds here."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mixveil.types import Dataset

_BLOCK_VALUES = 1 << 20
_PART = 1 << 16


def pixels(image: Tensor) -> bytes:
    """An image's values, to 16 bits. Grey that is stored as colour is the same image, however it is shaped."""
    values = image.numpy()
    if values.ndim == 3 and len(values) == 3 and (values[0] == values[1]).all() and (values[0] == values[2]).all():
        values = values[:1]
    return np.rint(values * np.float32(65535)).astype(np.uint16).tobytes()


def fingerprints(images: Dataset) -> Tensor:
    """(n, 8) octets: who holds an image can tell whether it is among these, nobody else learns of it."""
    found = bytearray()
    for index in torch.split(torch.arange(len(images)), max(1, _BLOCK_VALUES // math.prod(images.shape))):
        for image in images.originals(index):
            found += hashlib.blake2b(pixels(image), digest_size=8).digest()
    return torch.frombuffer(found, dtype=torch.uint8).view(-1, 8) if found else torch.empty(0, 8, dtype=torch.uint8)


def among(known: Tensor, own: Tensor) -> int:
    """How many of one's own fingerprints are among the known ones. The latter may be a stranger's, and many: they are
    looked up part by part, without a copy of them."""
    mine, times = np.unique(_numbers(own), return_counts=True)
    found = np.zeros(len(mine), bool)
    theirs = _numbers(known)
    for start in range(0, len(theirs) if len(mine) else 0, _PART):
        part = theirs[start : start + _PART]
        place = np.minimum(np.searchsorted(mine, part), len(mine) - 1)
        found[place[mine[place] == part]] = True
    return int(times[found].sum())


def _numbers(prints: Tensor) -> npt.NDArray[np.uint64]:
    return prints.contiguous().numpy().view(np.uint64).reshape(-1)
