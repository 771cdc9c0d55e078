"""A process that is told to end ends, whatever it is doing."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

STOPPED = 143
"""The exit code of a process that was told to end: 128 and the number of SIGTERM."""

PATIENCE = 10.0
"""Seconds in which what is half written is removed."""


def end_when_told(seconds: float = PATIENCE) -> None:
    """On SIGTERM the main thread raises SystemExit, so that what is half written is removed. Other packages swallow it
    in callbacks and destructors: the process ends after so many seconds all the same, and at once if told again."""

    def end(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        end_within(seconds)
        if threading.main_thread().is_alive():  # else it is ending already, in callbacks of `atexit`
            sys.exit(STOPPED)

    signal.signal(signal.SIGTERM, end)


def end_within(seconds: float = PATIENCE) -> None:
    """End this process after so many seconds, unless it has ended by itself."""

    def end() -> None:
        time.sleep(seconds)
        os._exit(STOPPED)

    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the kernel's, once the interpreter is gone and no thread runs
    signal.setitimer(signal.ITIMER_REAL, 2 * seconds)
    threading.Thread(target=end, daemon=True).start()
