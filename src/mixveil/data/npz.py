"""NumPy archives: arrays `x` (n, …) and `y` (n,), and optionally `classes` (names), `range` (low, high) and others."""

from __future__ import annotations

import ast
import math
import struct
import zipfile
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mixveil.core import files
from mixveil.core.errors import DataFormatError, LabelError, UnreadableFileError
from mixveil.data.images import MOST_CLASSES, Images, inferred_classes, numbered
from mixveil.data.stored_rows import StoredRows

_WIDEST = 1e30
_KNOWN = ("x", "y", "classes", "range")
_LARGEST = 256 << 20  # bytes of other arrays than x
_HEADER, _ENCRYPTED, _BLOCK = 10_000, 1, 1 << 20

Array = npt.NDArray[Any]


def npz_images(path: Path, *, unit: str | None = None) -> Images:
    """The images of an archive. Octets are scaled to [0, 1]; floats must lie in `range`, by default [0, 1].

    unit: the name of a further array of n texts or whole numbers, the unit of each row. Nothing is unpickled.
    """
    arrays, further = _load(path, unit)
    for name in ("x", "y"):
        if name not in arrays:
            raise DataFormatError(
                f"{path}: it must hold the arrays x and y, it holds {', '.join([*arrays, *further]) or 'none'}"
            )
    x, y = arrays["x"], arrays["y"]
    if x.ndim < 2 or y.ndim != 1 or len(x) != len(y):
        raise DataFormatError(f"{path}: x of shape {x.shape} and y of shape {y.shape} are not n images and n labels")
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise DataFormatError(f"{path}: x must be of octets or floats, it is {x.dtype}")
    if y.dtype.kind not in "iu":
        raise LabelError(f"{path}: y must be of whole numbers, it is {y.dtype}")
    if len(y) and int(y.max()) > np.iinfo(np.int64).max:
        raise LabelError(f"{path}: {int(y.max())} cannot be a label: number the classes from 0")
    shape = (1, *x.shape[1:]) if x.ndim == 3 else x.shape[1:]  # grey images without a channel of their own
    low, high = _range(path, arrays.get("range"), x.dtype)
    labels = torch.from_numpy(np.asarray(y).astype(np.int64))
    names = arrays.get("classes")
    if names is None:
        classes = numbered(inferred_classes(path.stem, labels))
    elif names.ndim == 1 and names.dtype.kind == "U" and 0 < len(names) <= MOST_CLASSES:
        classes = tuple(names.tolist())
    else:
        raise DataFormatError(
            f"{path}: classes must be a list of at most {MOST_CLASSES:,} names, it is {names.dtype} of shape "
            f"{names.shape}"
        )

    def read(index: Tensor) -> Tensor:
        rows = torch.from_numpy(x[index.numpy()].astype(np.float32, copy=False)).view(len(index), *shape)
        return rows.div_(255) if x.dtype == np.uint8 else rows

    units = None if unit is None else _units(path, arrays, further, unit, len(y))
    return Images(path.stem, read, labels, classes, shape, low, high, units=units, declared=names is not None)


def _units(path: Path, arrays: dict[str, Array], further: list[str], unit: str, rows: int) -> tuple[str, ...]:
    if unit not in further:
        raise DataFormatError(f"{path}: no array {unit!r} of units: besides x and y it has {further or 'none'}")
    array = arrays[unit]
    if array.shape != (rows,) or array.dtype.kind not in "Uiu":
        raise DataFormatError(
            f"{path}: {unit} must be {rows} texts or whole numbers, it is {array.dtype} of shape {array.shape}"
        )
    units = tuple(str(value).strip() for value in array.tolist())
    if empty := [str(row) for row, value in enumerate(units) if not value]:
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


def _load(path: Path, unit: str | None) -> tuple[dict[str, Any], list[str]]:
    """The arrays that are used, and the names of all but the known ones."""
    found, names = stored_arrays(path, rows="x", others=[*_KNOWN, *([] if unit is None else [unit])])
    return found, [name for name in names if name not in _KNOWN]


def stored_arrays(path: Path, *, rows: str, others: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Arrays of an archive, and the names of all that it holds. Nothing is unpickled. Any error of the reader becomes a
    DataFormatError.

    rows: the name of the array that may be large: its rows stay in the file, if they can. others: names of small ones.
    """
    try:
        with files.open_plain(path, links=True) as raw, zipfile.ZipFile(raw) as archive:
            entries = [entry for entry in archive.infolist() if entry.filename.endswith(".npy")]
            names = [entry.filename.removesuffix(".npy") for entry in entries]
            if len(set(names)) != len(names):
                raise ValueError("two arrays have the same name")
            found = {
                name: _member(path, raw, archive, entry, None if name == rows else _LARGEST)
                for name, entry in zip(names, entries, strict=True)
                if name == rows or name in others
            }
            return found, names
    except Exception as error:
        why = str(error) or type(error).__name__
        if isinstance(error, UnreadableFileError):
            raise DataFormatError(why) from None
        raise DataFormatError(f"{path}: not a NumPy archive of plain arrays: {why}") from None


def _member(
    path: Path, raw: BufferedReader, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, limit: int | None
) -> Array | StoredRows:
    """An array of the archive. limit: of its bytes; without one only its rows are read, when they are asked for, where
    it is stored uncompressed and row after row. Nothing is mapped: a map of a file that becomes shorter kills.

    The size in its header is checked against the file before any memory is allocated.
    """
    name, stored = entry.filename, entry.compress_type == zipfile.ZIP_STORED
    if entry.flag_bits & _ENCRYPTED or not (stored or entry.compress_type == zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name} is encrypted, or packed in a way that NumPy does not use")
    with archive.open(entry) as file:
        shape, fortran, dtype = _header(name, file)
        begin, size = file.tell(), math.prod(shape) * dtype.itemsize
        if begin + size != entry.file_size or (stored and entry.compress_size != entry.file_size):
            raise ValueError(
                f"{name} of shape {shape} and {dtype} takes {size:,} bytes, it has {entry.file_size - begin:,}"
            )
        if limit is not None and size > limit:
            raise ValueError(f"{name} has {size:,} bytes, only x may have more than {limit:,}")
        if fortran:
            _check_held(path, name, size)
        if fortran or not stored or not size or limit is not None:
            files.check_unfolded(path, entry.compress_size, size)
            return _unpacked(file, size).view(dtype).reshape(shape, order="F" if fortran else "C")
    raw.seek(entry.header_offset + 26)  # a local header: 30 bytes, then the name and an extra field of these sizes
    name_size, extra_size = struct.unpack("<HH", raw.read(4))
    return StoredRows(path, raw, shape, dtype, entry.header_offset + 30 + name_size + extra_size + begin)


def _check_held(path: Path, name: str, size: int) -> None:
    """Refuse an array in Fortran order that would fill the memory: a row lies all over the file there, so that the
    array is read whole."""
    if size > (most := files.half_of_memory()):
        raise UnreadableFileError(
            f"{path}: {name} has {size:,} bytes in Fortran order, and half of this machine's memory is {most:,}: save "
            f"it with np.ascontiguousarray(x), which is read row by row"
        )


def _header(name: str, file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type of an array. An array of Python objects is refused."""
    version = np.lib.format.read_magic(file)
    length = int.from_bytes(file.read(2 if version == (1, 0) else 4), "little")
    if version not in ((1, 0), (2, 0), (3, 0)) or length > _HEADER:
        raise ValueError(f"{name} has a header of {length:,} bytes, version {version}")
    try:
        stated = ast.literal_eval(file.read(length).decode("utf-8" if version == (3, 0) else "latin-1").strip())
        descr, fortran, shape = (stated.pop(key) for key in ("descr", "fortran_order", "shape"))
        right = not stated and type(descr) is str and type(fortran) is bool and type(shape) is tuple
        dtype = np.dtype(descr if right else None)
    except Exception:  # brackets without end, names, no dictionary, …
        right = False
    if not right or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"the header of {name} is not one of an array")
    if dtype.hasobject or not dtype.itemsize:
        raise ValueError(f"{name} holds Python objects, or nothing")
    return shape, fortran, dtype


def _unpacked(file: IO[bytes], size: int) -> npt.NDArray[np.uint8]:
    """The bytes of an array. Reading to the end compares its checksum."""
    data = np.empty(size, np.uint8)
    place = 0
    while block := file.read(_BLOCK):
        if place + len(block) > size:
            raise ValueError("an array is longer than its header says")
        data[place : place + len(block)] = np.frombuffer(block, np.uint8)
        place += len(block)
    if place != size:
        raise ValueError("an array is shorter than its header says")
    return data
