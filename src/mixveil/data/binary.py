"""The binary formats of MNIST's kind (IDX) and of CIFAR-10/100: one memory-mapped file, or several."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mixveil.core import files
from mixveil.core.errors import DataFormatError, DataNotFoundError, UnreadableFileError
from mixveil.data.images import Images, numbered

Octets = npt.NDArray[np.uint8]

_LARGEST, _LABELS = 16 << 30, 64 << 20  # bytes of a mapped file, and of labels, which are read into memory
_BLOCK = 1 << 20


def named_images(root: Path, split: str) -> Images:
    """MNIST, FashionMNIST, CIFAR-10 or CIFAR-100: the folder has the name of the set."""
    if root.name == "cifar100":
        return _cifar(root.name, [root / f"{split}.bin"], label_bytes=2, classes=100)
    if root.name == "cifar10":
        names = [f"data_batch_{i}.bin" for i in range(1, 6)] if split == "train" else ["test_batch.bin"]
        return _cifar(root.name, [root / name for name in names], label_bytes=1, classes=10)
    prefix = {"train": "train", "test": "t10k"}[split]
    return _idx(root.name, root / f"{prefix}-images-idx3-ubyte", root / f"{prefix}-labels-idx1-ubyte")


def _idx(name: str, images: Path, labels: Path) -> Images:
    """A pair of IDX files: images (n, h, w) and labels (n,) of ten classes, both of octets."""
    pixels, marks = idx_array(images, _LARGEST), idx_array(labels, _LABELS)
    if pixels.ndim != 3 or marks.ndim != 1 or len(pixels) != len(marks):
        raise DataFormatError(
            f"{images}: shape {pixels.shape} does not go with labels of shape {marks.shape} in {labels}"
        )

    def read(index: Tensor) -> Tensor:
        return scaled(pixels[index.numpy()])[:, None]

    return Images(name, read, torch.from_numpy(marks.astype(np.int64)), numbered(10), (1, *pixels.shape[1:]))


def idx_array(path: Path, limit: int) -> Octets:
    """An IDX file of octets: memory-mapped, or unpacked where it is gzipped. limit: its bytes, unpacked."""
    packed = path.with_name(path.name + ".gz")
    if not path.exists() and packed.exists():
        path = packed
    if not path.exists():
        raise DataNotFoundError(f"{path} does not exist")
    data = _unpacked(path, limit) if path.suffix == ".gz" else _mapped(path, limit)
    if len(data) < 4 or tuple(data[:3]) != (0, 0, 8):
        raise DataFormatError(f"{path}: not an IDX file of octets (it must start with 00 00 08)")
    offset = 4 + 4 * int(data[3])
    if len(data) < offset:
        raise DataFormatError(f"{path}: {len(data)} bytes are too few for an IDX header of {offset}")
    shape = tuple(int(size) for size in np.frombuffer(data[4:offset].tobytes(), ">u4"))
    if len(data) != offset + math.prod(shape):
        raise DataFormatError(f"{path}: {len(data)} bytes do not hold an IDX array of shape {shape}")
    return data[offset:].reshape(shape)


def _cifar(name: str, parts_of: Sequence[Path], *, label_bytes: int, classes: int) -> Images:
    """CIFAR's records: label bytes (the last one counts), then 3,072 bytes in (3, 32, 32) order."""
    record = label_bytes + 3072
    parts = []
    for path in parts_of:
        if not path.exists():
            raise DataNotFoundError(f"{path} does not exist")
        data = _mapped(path, _LARGEST)
        if len(data) == 0 or len(data) % record:
            raise DataFormatError(f"{path}: {len(data)} bytes are not a whole number of {record}-byte records")
        parts.append(data.reshape(-1, record))
    labels = np.concatenate([part[:, label_bytes - 1] for part in parts]).astype(np.int64)
    starts = np.cumsum([0, *(len(part) for part in parts)])

    def read(index: Tensor) -> Tensor:
        rows = index.numpy()
        pixels = np.empty((len(rows), 3072), np.uint8)
        for part, start in zip(parts, starts, strict=False):
            inside = (rows >= start) & (rows < start + len(part))
            pixels[inside] = part[rows[inside] - start, label_bytes:]
        return scaled(pixels).view(-1, 3, 32, 32)

    return Images(name, read, torch.from_numpy(labels), numbered(classes), (3, 32, 32))


def scaled(pixels: Octets) -> Tensor:
    """Octets 0…255 to float32 in [0, 1]."""
    return torch.from_numpy(np.ascontiguousarray(pixels)).float().div_(255)


def _mapped(path: Path, limit: int) -> Octets:
    with plain_file(path, limit) as file:
        if file.seek(0, 2) == 0:
            raise DataFormatError(f"{path}: the file is empty")
        return np.memmap(file, np.uint8, mode="r")


def _unpacked(path: Path, limit: int) -> Octets:
    """Unpacked block by block: a small file can unpack to any number of bytes."""
    data = bytearray()
    try:
        with plain_file(path, limit) as file, gzip.GzipFile(fileobj=file) as unpacked:
            packed = file.seek(0, 2)
            file.seek(0)
            while block := unpacked.read(_BLOCK):
                data += block
                files.check_unfolded(path, packed, len(data))
                if len(data) > limit:
                    raise DataFormatError(f"{path}: it unpacks to more than {limit:,} bytes")
    except (OSError, EOFError, zlib.error) as error:
        raise DataFormatError(f"{path}: not a gzip file: {error}") from None
    except UnreadableFileError as error:
        raise DataFormatError(str(error)) from None
    return np.frombuffer(data, np.uint8)


def plain_file(path: Path, limit: int | None = None) -> BufferedReader:
    """Open a data file of at most `limit` bytes; links are followed to a plain file."""
    try:
        return files.open_plain(path, limit, links=True)
    except UnreadableFileError as error:
        raise DataFormatError(str(error)) from None
