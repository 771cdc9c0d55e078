"""What every reader of image files needs: a file's header, and one kind of error for all that can go wrong."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

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

_LIMIT = 1 << 30  # bytes of an image file: four times what the pixels that Pillow allows take unpacked


@dataclass(frozen=True)
class Header:
    """Of one image file: width and height, the kind of its pixels in words, and whether it has one channel."""

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
    """A damaged file can make a decoder raise anything: it becomes an error that names the file."""
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
    """An image file, open: a plain one, after links. A pipe that a table names would keep its reader waiting."""
    try:
        return files.open_plain(path, _LIMIT, links=True)
    except UnreadableFileError as error:
        raise UnreadableImageError(str(error)) from None


class _Quiet:
    """Decoders say nothing here, neither as warnings nor in a log: what they would say can quote a file's header. An
    image that claims to be huge is an error. Warnings are settled for all threads at once: the first to come in
    changes them, the last to leave puts them back."""

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


def every(paths: Sequence[Path], use: Callable[[int, Path], object]) -> None:
    """Call use(place, path) on all paths. Files that cannot be read are named together, in one error."""
    unreadable: list[str] = []
    beyond: PixelError | None = None
    for place, path in enumerate(paths):
        try:
            use(place, path)
        except UnreadableImageError as error:
            unreadable += error.files
        except PixelError as error:
            beyond = beyond or error
    if unreadable:
        raise UnreadableImageError(*dict.fromkeys(unreadable))
    if beyond:
        raise beyond


def unit_range(path: Path, values: Whole, bits: int, *, zero_is_white: bool = False) -> Floats:
    """Values 0…2^bits − 1 to [0, 1], where 0 is black."""
    top = 2**bits - 1
    for value in (int(values.min()), int(values.max())):
        if not 0 <= value <= top:
            raise PixelError(f"{path}: the pixel {value} is outside 0…{top}, the range of {bits} bits")
    return (top - values if zero_is_white else values).astype(np.float32) / np.float32(top)
