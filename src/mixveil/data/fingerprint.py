"""One way to recognise an image, however it was read: by the order of its pixel values at full size.

Files of the same image differ in their scale (12 bits in DICOM, the same 12 bits in a PNG of 16), in where they keep
the channels, in whether they store grey as colour, and in whether 0 is black or white. None of that changes the order
of the pixel values, except its direction. Images that differ only in brightness or contrast count as the same image:
the ledger then charges too much, never too little. A resized or retouched image counts as another image.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mixveil.core.types import Dataset

BYTES = 8
"""The length of a fingerprint."""

_BLOCK_VALUES = 1 << 20
_CHUNK = 1 << 16
_FEW, _STEPS_BACK = 64, (1, 3)


def pixels(image: Tensor) -> bytes:
    """The order of an image's values: whether each is larger or smaller than the values one and three places before it.

    The signs are turned so that the first difference is upwards, since some files store black as white. Very small and
    blank images, whose order says too little, give their values to 16 bits instead.
    """
    values = image.numpy()
    if values.ndim == 3 and len(values) not in (1, 3) and values.shape[2] in (1, 3):
        values = values.transpose(2, 0, 1)
    flat = _grey_once(values).ravel()
    if flat.size >= _FEW:
        signs = np.concatenate([(flat[b:] > flat[:-b]).astype(np.int8) - (flat[b:] < flat[:-b]) for b in _STEPS_BACK])
        first = signs[np.argmax(signs != 0)]
        if first:
            return bytes(signs * first)
    return bytes(np.rint(flat * np.float32(65535)).astype(np.int64))


def old_pixels(image: Tensor) -> bytes:
    """How a ledger of version 1 recognises an image: by its values, as the file scales them."""
    return bytes(np.rint(_grey_once(image.numpy()) * np.float32(65535)).astype(np.uint16).tobytes())


def fingerprint(image: Tensor) -> bytes:
    """The fingerprint of one image (channels, height, width) in [0, 1].

    A reader who has the image can recognise it by its fingerprint; no reader can compute the image from it.
    """
    return hashlib.blake2b(pixels(image), digest_size=BYTES).digest()


def fingerprints(images: Dataset) -> Tensor:
    """(n, 8) uint8: the fingerprint of each original image."""
    octets = bytearray()
    for index in torch.split(torch.arange(len(images)), max(1, _BLOCK_VALUES // math.prod(images.shape))):
        for image in images.originals(index):
            octets += fingerprint(image)
    whole = torch.frombuffer(octets, dtype=torch.uint8) if octets else torch.empty(0, dtype=torch.uint8)
    return whole.view(-1, BYTES)


def among(known: Tensor, own: Tensor) -> int:
    """How many of the `own` fingerprints are among the `known` ones.

    A stranger may have sent the known ones, and many of them: they are looked up chunk by chunk, without a copy.
    """
    mine, times = np.unique(_numbers(own), return_counts=True)
    shared = np.zeros(len(mine), bool)
    theirs = _numbers(known)
    for start in range(0, len(theirs) if len(mine) else 0, _CHUNK):
        chunk = theirs[start : start + _CHUNK]
        place = np.minimum(np.searchsorted(mine, chunk), len(mine) - 1)
        shared[place[mine[place] == chunk]] = True
    return int(times[shared].sum())


def _grey_once(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """One channel where a file stores grey as three equal ones."""
    if values.ndim == 3 and len(values) == 3 and (values[0] == values[1]).all() and (values[0] == values[2]).all():
        return values[:1]
    return values


def _numbers(prints: Tensor) -> npt.NDArray[np.uint64]:
    return prints.contiguous().numpy().view(np.uint64).reshape(-1)
