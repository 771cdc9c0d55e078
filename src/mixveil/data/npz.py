"""NumPy archives: arrays `x` (n, …) and `y` (n,), and optionally `classes` (names), `range` (low, high) and others."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mixveil.data.images import Images, inferred_classes, numbered
from mixveil.errors import DataFormatError, LabelError

_WIDEST = 1e30

Array = npt.NDArray[Any]


def npz_images(path: Path, *, unit: str | None = None) -> Images:
    """Octets are scaled to [0, 1]; floats must lie in `range`, by default [0, 1]. Never unpickles.

    unit: the name of a further array, of n texts or whole numbers: whose each row is.
    """
    arrays = _load(path)
    for name in ("x", "y"):
        if name not in arrays:
            raise DataFormatError(f"{path}: it must hold the arrays x and y, it holds {', '.join(arrays) or 'none'}")
    x, y = arrays["x"], arrays["y"]
    if x.ndim < 2 or y.ndim != 1 or len(x) != len(y):
        raise DataFormatError(f"{path}: x of shape {x.shape} and y of shape {y.shape} are not n images and n labels")
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise DataFormatError(f"{path}: x must be of octets or floats, it is {x.dtype}")
    if y.dtype.kind not in "iu":
        raise LabelError(f"{path}: y must be of whole numbers, it is {y.dtype}")
    if len(y) and int(y.max()) > np.iinfo(np.int64).max:
        raise LabelError(f"{path}: {int(y.max())} cannot be a label: number the classes from 0")
    if x.ndim == 3:  # grey images without a channel of their own
        x = x[:, None]
    low, high = _range(path, arrays.get("range"), x.dtype)
    labels = torch.from_numpy(np.asarray(y).astype(np.int64))
    names = arrays.get("classes")
    if names is None:
        classes = numbered(inferred_classes(path.stem, labels))
    elif names.ndim == 1 and names.dtype.kind == "U" and len(names):
        classes = tuple(names.tolist())
    else:
        raise DataFormatError(f"{path}: classes must be a list of names, it is {names.dtype} of shape {names.shape}")

    def read(index: Tensor) -> Tensor:
        rows = torch.from_numpy(x[index.numpy()].astype(np.float32))
        return rows.div_(255) if x.dtype == np.uint8 else rows

    units = None if unit is None else _units(path, arrays, unit, len(y))
    return Images(
        path.stem, read, labels, classes, tuple(x.shape[1:]), low, high, units=units, declared=names is not None
    )


def _units(path: Path, arrays: dict[str, Array], unit: str, rows: int) -> tuple[str, ...]:
    further = [name for name in arrays if name not in ("x", "y", "classes", "range")]
    if unit not in further:
        raise DataFormatError(f"{path}: no array {unit!r} of units: besides x and y it has {further or 'none'}")
    array = arrays[unit]
    if array.shape != (rows,) or array.dtype.kind not in "Uiu":
        raise DataFormatError(
            f"{path}: {unit} must be {rows} texts or whole numbers, it is {array.dtype} of shape {array.shape}"
        )
    units = tuple(str(value).strip() for value in array.tolist())
    empty = [str(row) for row, value in enumerate(units) if not value]
    if empty:
        raise DataFormatError(f"{path}: {unit} is empty in {len(empty)} rows: {', '.join(empty[:20])}")
    return units


def _range(path: Path, given: Array | None, dtype: np.dtype[Any]) -> tuple[float, float]:
    if given is None:
        return 0.0, 1.0
    numbers = given.shape == (2,) and given.dtype.kind in "iuf"
    if dtype == np.uint8 or not numbers or not -_WIDEST < given[0] < given[1] < _WIDEST:
        raise DataFormatError(
            f"{path}: range must be two numbers within ±{_WIDEST:g}, low < high, beside an x of floats"
        )
    return float(given[0]), float(given[1])


def _load(path: Path) -> dict[str, Array]:
    try:
        with zipfile.ZipFile(path) as archive:
            return {
                entry.filename.removesuffix(".npy"): _member(path, archive, entry)
                for entry in archive.infolist()
                if entry.filename.endswith(".npy")
            }
    except (zipfile.BadZipFile, ValueError, struct.error, EOFError) as error:
        raise DataFormatError(f"{path}: not a NumPy archive of plain arrays: {error}") from None


def _member(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Array:
    """An array of the archive: memory-mapped where it is stored uncompressed, read where it is not."""
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = reader(file)
        header = file.tell()
    if dtype.hasobject:
        raise ValueError(f"{entry.filename} holds Python objects")
    if entry.compress_type != zipfile.ZIP_STORED or 0 in shape:
        with archive.open(entry) as file:
            array: Array = np.lib.format.read_array(file, allow_pickle=False)
            return array
    with path.open("rb") as raw:  # a local header: 30 bytes, then the name and an extra field of these sizes
        raw.seek(entry.header_offset + 26)
        name_size, extra_size = struct.unpack("<HH", raw.read(4))
    offset = entry.header_offset + 30 + name_size + extra_size + header
    return np.memmap(path, dtype, mode="r", offset=offset, shape=shape, order="F" if fortran else "C")
