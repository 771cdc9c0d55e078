"""Freed memory, kept for what comes next.

The C library gives large arrays back to the system when they are freed, and takes fresh pages for the next of the same
size. In a job of many large arrays that took a third of the time. What is kept lies between what is used, and grows:
such a job gives it back between its steps.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # mallopt's names for them
_KEPT = 1 << 28


def keep_freed() -> bool:
    """Let this process keep up to 256 MB of freed memory, and arrays of that size. False where the C library cannot."""
    mallopt = _of_the_c_library("mallopt")
    if mallopt is None:
        return False
    return all(mallopt(name, size) == 1 for name, size in ((_MMAP_THRESHOLD, _KEPT), (_TRIM_THRESHOLD, _KEPT)))


def give_back() -> bool:
    """Give freed memory back to the system. False where the C library cannot."""
    trim = _of_the_c_library("malloc_trim")
    return trim is not None and trim(0) >= 0


def _of_the_c_library(name: str) -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None  # musl has neither
