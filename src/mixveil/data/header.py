"""Shared parts of the readers of image files: headers, and one kind of error for every failure."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from mixveil.core import files
from mixveil.core.errors import (
    MissingDependencyError,
    MixveilError,
    PixelError,
    UnreadableFileError,
    UnreadableImageError,
)

Whole = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Item = TypeVar("Item")

_LIMIT = 1 << 30  # bytes of an image file: four times the unpacked size of the most pixels that Pillow allows


@dataclass(frozen=True)
class Header:
    """The header of one image file: width and height, and format, bits and colour as a text for tables."""

    size: tuple[int, int]
    kind: str
    grey: bool


def pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise MissingDependencyError("reading image files needs Pillow: pip install 'mixveil[images]'") from None
    return Image


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn any error of a decoder into one that names the file: a damaged file can make a decoder raise anything."""
    from PIL import UnidentifiedImageError

    try:
        with quiet:
            yield
    except MixveilError:
        raise
    except FileNotFoundError:
        raise UnreadableImageError(f"{path}: does not exist") from None
    except UnidentifiedImageError:
        raise UnreadableImageError(f"{path}: not an image of a known kind") from None
    except Exception as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UnreadableImageError(f"{path}: not a readable image: {why}") from None


def plain(path: Path) -> BufferedReader:
    """Open an image file; links are followed to a plain file. A pipe in a table would keep its reader waiting."""
    try:
        return files.open_plain(path, _LIMIT, links=True)
    except UnreadableFileError as error:
        raise UnreadableImageError(str(error)) from None


class _Quiet:
    """Silences the warnings and logs of decoders, which can quote the header of a file. A decompression bomb is an
    error.

    The filters are shared by all threads: the first thread that enters sets them, the last that leaves restores them.
    """

    def __init__(self) -> None:
        self._lock, self._inside, self._stack = threading.Lock(), 0, ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._settle()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._stack.close()

    def _settle(self) -> None:
        log = logging.getLogger("pydicom")
        silent, propagate = logging.NullHandler(), log.propagate
        log.addHandler(silent)
        log.propagate = False
        self._stack.callback(setattr, log, "propagate", propagate)
        self._stack.callback(log.removeHandler, silent)
        self._stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", pillow().DecompressionBombWarning)


quiet = _Quiet()


def every(items: Iterable[Item], use: Callable[[Item], object]) -> None:
    """Call `use` on all items. One error names all files that cannot be read."""
    unreadable: list[str] = []
    beyond: PixelError | None = None
    for item in items:
        try:
            use(item)
        except UnreadableImageError as error:
            unreadable += error.files
        except PixelError as error:
            beyond = beyond or error
    if unreadable:
        raise UnreadableImageError(*dict.fromkeys(unreadable))
    if beyond:
        raise beyond


def unit_range(path: Path, values: Whole, bits: int, *, zero_is_white: bool = False) -> Floats:
    """Scale values 0…2^bits − 1 to [0, 1], where 0 is black."""
    top = 2**bits - 1
    for value in (int(values.min()), int(values.max())):
        if not 0 <= value <= top:
            raise PixelError(f"{path}: the pixel {value} is outside 0…{top}, the range of {bits} bits")
    return (top - values if zero_is_white else values).astype(np.float32) / np.float32(top)
