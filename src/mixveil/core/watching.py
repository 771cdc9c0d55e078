"""What a long job tells its caller on the way: how far it is, and what the owner of data should know."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from mixveil.core.types import Progress
from mixveil.core.wording.notes import Note

Watch = Callable[[str, int], AbstractContextManager[Progress]]
"""Shows the progress of some work on so many rows: `with watch("encoding", 1200) as step: step(1)`."""


class Moment(NamedTuple):
    """What a job of many steps is doing, and how much of all is done, from 0 to 1; None: as much as before."""

    doing: str
    done: float | None = None


Observe = Callable[[Moment], None]
"""Is told of a job of many steps whenever there is something to tell."""

Warn = Callable[[Note], None]
"""Is told every warning once, before anything is entered in a ledger or written. To stop there, raise an error."""


def unwatched(what: str, total: int) -> AbstractContextManager[Progress]:
    return nullcontext(lambda _: None)


def unobserved(moment: Moment) -> None:
    """No one is told."""


def unheard(note: Note) -> None:
    """Warnings are in the result as well."""
