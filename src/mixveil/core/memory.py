"""Freed memory, kept for what comes next.

The C library gives large arrays back to the system when they are freed, and takes fresh pages for the next of the same
size. In a job of many large arrays that took a third of the time.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # mallopt's names for them
_KEPT = 1 << 28


def keep_freed() -> bool:
    """Let this process keep up to 256 MB of freed memory, and arrays of that size. False where the C library cannot."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl
        return False
    return all(mallopt(name, size) == 1 for name, size in ((_MMAP_THRESHOLD, _KEPT), (_TRIM_THRESHOLD, _KEPT)))
