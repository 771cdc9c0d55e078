"""A small MNIST in files."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

RNG = np.random.default_rng(0)


def idx_bytes(array: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def make_mnist(folder: Path, n: int = 5) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    folder.mkdir(parents=True)
    pixels = RNG.integers(0, 256, (n, 4, 3), dtype=np.uint8)
    labels = (np.arange(n) % 10).astype(np.uint8)
    for prefix in ("train", "t10k"):
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(idx_bytes(pixels))
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
    return pixels
