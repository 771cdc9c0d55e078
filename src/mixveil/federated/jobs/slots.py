"""So many at a time, and none for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Slots:
    """So many large things are under way at a time. One that takes longer than so many seconds gives its slot back: it
    does not keep the others waiting."""

    def __init__(self, count: int, seconds: float) -> None:
        self._free, self._seconds = threading.Semaphore(count), seconds

    @contextmanager
    def held(self) -> Iterator[None]:
        self._free.acquire()
        once = iter([self._free.release])

        def release() -> None:
            for free in once:
                free()

        timer = threading.Timer(self._seconds, release)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            release()
