"""Safetensors files that others wrote: the header is checked before the library opens the file."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from safetensors import safe_open

from mixveil.core import strict_json
from mixveil.core.errors import ManifestError, ShardFormatError

HEADER = 4096
"""Bytes of a header that names a few tensors."""

_DESCRIPTORS = Path("/proc/self/fd")
_LENGTH = 8  # bytes before the header
_DTYPES = "F64|F32|F16|BF16|I64|I32|I16|I8|U8|BOOL"


def check_header(file: BinaryIO, path: Path, *, limit: int = HEADER, metadata: Collection[str] = ()) -> None:
    """Refuse a file whose header is longer than `limit`, holds other metadata than `metadata`, or does not account for
    every byte. The file is left at its start."""
    size = file.seek(0, 2)
    file.seek(0)
    length = int.from_bytes(file.read(_LENGTH), "little")
    if size < _LENGTH or length > size - _LENGTH:
        raise ShardFormatError(f"{path}: not a safetensors file")
    if length > limit:
        raise ShardFormatError(f"{path}: its header has {length:,} bytes, and at most {limit:,} are allowed")
    try:
        whole = strict_json.mapping("header", strict_json.parsed(file.read(length)))
        stated = strict_json.mapping("__metadata__", whole.pop("__metadata__", {}))
        if stated.keys() - {*metadata}:
            raise ManifestError("it has metadata that a file of its kind does not have")
        ends = [_end(name, item) for name, item in whole.items()]
    except ManifestError as error:
        raise ShardFormatError(f"{path}: not a safetensors file: {error}") from None
    if max(ends, default=0) != size - _LENGTH - length:
        raise ShardFormatError(f"{path}: its header does not account for all of its {size:,} bytes")
    file.seek(0)


@contextmanager
def mapped(file: BufferedReader, path: Path) -> Iterator[Any]:
    """The memory-mapped tensors of an open file, even if another file has taken its name since it was hashed. Where a
    file cannot be opened by its descriptor, a file that was replaced or changed is refused."""
    before = _identity(os.fstat(file.fileno()))
    again = _DESCRIPTORS / str(file.fileno())
    if again.exists():
        with safe_open(again, framework="pt") as opened:
            yield opened
        return
    with safe_open(path, framework="pt") as opened:
        if _identity(path.stat()) != before:
            raise ShardFormatError(f"{path} was replaced while it was read: read it again")
        yield opened


def _identity(info: os.stat_result) -> tuple[int, ...]:
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


def _end(name: str, item: Any) -> int:
    stated = strict_json.mapping(strict_json.shown(name), item)
    strict_json.only(strict_json.shown(name), stated, {"dtype", "shape", "data_offsets"})
    strict_json.text("dtype", stated["dtype"], _DTYPES)
    offsets = strict_json.items("data_offsets", stated["data_offsets"])
    if len(offsets) != 2:
        raise ManifestError("data_offsets must be two numbers")
    return strict_json.of("data_offsets", offsets[1], int)
