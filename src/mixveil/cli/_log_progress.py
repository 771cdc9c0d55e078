"""How far a job is, in a log: a line now and then. A short job says nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

from mixveil.core.watching import Moment, Observe

_EVERY = 30.0  # seconds between two lines


def counted(what: str, total: int, tell: Callable[[str], None]) -> Callable[[int], None]:
    """Is called with the rows that were just done, of so many."""
    done, due = 0, time.monotonic() + _EVERY

    def step(rows: int) -> None:
        nonlocal done, due
        done += rows
        if time.monotonic() >= due:
            due = time.monotonic() + _EVERY
            tell(f"{what}: {done:,} of {total:,}")

    return step


def observed(tell: Callable[[str], None]) -> Observe:
    """Is told of every moment of a job of many steps."""
    due = time.monotonic() + _EVERY

    def watch(moment: Moment) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + _EVERY
            tell(moment.doing if moment.done is None else f"{moment.doing}: {moment.done:.0%} of all is done")

    return watch
