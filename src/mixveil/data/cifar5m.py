"""CIFAR-5M: six NumPy archives of made images like CIFAR-10's, `X` (n, 32, 32, 3) of octets and `Y` (n,) labels each.

The first five are taken for training and the last one for testing: the files do not say it. Images are read as they are
asked for where an archive is not packed; a packed one is unpacked into memory, 3 GB each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mixveil.core.errors import DataFormatError, DataNotFoundError, LabelError
from mixveil.data.binary import scaled
from mixveil.data.images import Images, numbered
from mixveil.data.npz import stored_arrays

PARTS = {"train": range(5), "test": range(5, 6)}
CLASSES = 10
_SHAPE = (32, 32, 3)


def named_images(root: Path, split: str) -> Images:
    """The files of a split that are there: without some parts of the training split there are fewer images."""
    paths = [path for number in PARTS[split] if (path := root / f"cifar5m_part{number}.npz").exists()]
    if not paths:
        first = root / f"cifar5m_part{PARTS[split][0]}.npz"
        raise DataNotFoundError(f"{first} does not exist, nor another file of the split {split}")
    found = [_part(path) for path in paths]
    pixels, labels = [x for x, _ in found], np.concatenate([y for _, y in found])
    starts = np.cumsum([0, *(len(part) for part in pixels)])

    def read(index: Tensor) -> Tensor:
        rows = index.numpy()
        x = np.empty((len(rows), *_SHAPE), np.uint8)
        for part, start in zip(pixels, starts, strict=False):
            inside = (rows >= start) & (rows < start + len(part))
            x[inside] = part[rows[inside] - start]
        return scaled(x.transpose(0, 3, 1, 2))

    return Images("cifar5m", read, torch.from_numpy(labels), numbered(CLASSES), (3, 32, 32))


def _part(path: Path) -> tuple[Any, Any]:
    """Images, as an array or as rows of the file, and int64 labels."""
    arrays, _ = stored_arrays(path, rows="X", others=("Y",))
    if missing := [name for name in ("X", "Y") if name not in arrays]:
        raise DataFormatError(f"{path}: it must hold the arrays X and Y, it lacks {' and '.join(missing)}")
    x, y = arrays["X"], arrays["Y"]
    if x.shape[1:] != _SHAPE or x.dtype != np.uint8:
        raise DataFormatError(f"{path}: X must be octets of shape (n, 32, 32, 3), it is {x.dtype} of shape {x.shape}")
    if y.shape != (len(x),) or y.dtype.kind not in "iu":
        raise DataFormatError(f"{path}: Y must be {len(x)} whole numbers, it is {y.dtype} of shape {y.shape}")
    if len(y) and not 0 <= int(y.min()) <= int(y.max()) < CLASSES:
        raise LabelError(f"{path}: labels must be in 0…{CLASSES - 1}, they are in {int(y.min())}…{int(y.max())}")
    return x, np.asarray(y).astype(np.int64)
