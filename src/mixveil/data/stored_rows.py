"""Rows of an array in a file, read when they are asked for.

They are read, not mapped: of a mapped file that is larger than memory, systems keep a megabyte in the process for every
row that is touched.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import torch

from mixveil.core.checks import rows_within
from mixveil.core.errors import ArgumentError, UnreadableFileError


class StoredRows:
    """An array of rows (n, …) that begins at some byte of a file, row after row."""

    def __init__(
        self, path: Path, file: BufferedReader, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int
    ) -> None:
        """file: open, and may be closed then; path: what errors call it."""
        self.shape, self.dtype, self.ndim = shape, dtype, len(shape)
        self._path, self._offset, self._descriptor = path, offset, os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)

    def __len__(self) -> int:
        return self.shape[0]

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"rows of {self._path} cannot go to another process: open the file there")

    def __getitem__(self, index: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """(m, …) of row numbers (m,)."""
        if index.ndim != 1 or index.dtype != np.int64:
            raise ArgumentError(f"row numbers must be a list of int64, got {index.dtype} of shape {index.shape}")
        rows_within(torch.from_numpy(index), len(self))
        found = np.empty((len(index), *self.shape[1:]), self.dtype)
        row = math.prod(self.shape[1:]) * self.dtype.itemsize
        into = found.reshape(-1).view(np.uint8).data
        for start, stop in _runs(index):
            self._read(into[start * row : stop * row], self._offset + int(index[start]) * row)
        return found

    def _read(self, into: memoryview, offset: int) -> None:
        while into:
            try:
                count = os.preadv(self._descriptor, [into], offset)
            except OSError as error:
                raise UnreadableFileError(f"{self._path} could not be read: {error.strerror}") from None
            if count == 0:
                raise UnreadableFileError(f"{self._path} became shorter while it was read")
            into, offset = into[count:], offset + count


def _runs(index: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Places in `index` from and to which row numbers follow one another."""
    breaks = (np.flatnonzero(np.diff(index) != 1) + 1).tolist()
    return zip([0, *breaks], [*breaks, len(index)], strict=True) if len(index) else iter(())
