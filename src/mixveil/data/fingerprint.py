"""By what an image is known, however it was read: which of its pixels, at full size, are brighter than others.

Files of the same image differ in how they scale it (12 bits in DICOM, the same 12 bits in a PNG of 16), in where they
keep its channels, in whether grey is stored as colour, and in what is black. None of that changes the order of its
pixels' values, but for its direction. Images that differ in brightness or contrast alone are taken for one: they count
too much, never too little. An image that was resized or retouched is another one: copies of that kind nobody finds
here."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mixveil.core.types import Dataset

_BLOCK_VALUES = 1 << 20
_PART = 1 << 16
_FEW, _BACK = 64, (1, 3)


def pixels(image: Tensor) -> bytes:
    """For each value of an image whether it is larger or smaller than one and than three values before it, turned so
    that the first difference is upwards: some files store black as white. Of very small or blank images the values
    themselves, to 16 bits: their order says too little."""
    values = image.numpy()
    if values.ndim == 3 and len(values) not in (1, 3) and values.shape[2] in (1, 3):
        values = values.transpose(2, 0, 1)
    if values.ndim == 3 and len(values) == 3 and (values[0] == values[1]).all() and (values[0] == values[2]).all():
        values = values[:1]
    flat = values.ravel()
    if flat.size >= _FEW:
        signs = np.concatenate([(flat[b:] > flat[:-b]).astype(np.int8) - (flat[b:] < flat[:-b]) for b in _BACK])
        first = signs[np.argmax(signs != 0)]
        if first:
            return bytes(signs * first)
    return bytes(np.rint(flat * np.float32(65535)).astype(np.int64))


def old_pixels(image: Tensor) -> bytes:
    """By what ledgers of version 1 know an image: its values, as its file scales them."""
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
