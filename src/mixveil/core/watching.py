"""What a long job tells its caller on the way: how far it is, and what the owner of data should know."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from mixveil.core.types import Progress
from mixveil.core.wording.notes import Note

Watch = Callable[[str, int], AbstractContextManager[Progress]]
"""Shows the progress of some work on so many rows: `with watch("encoding", 1200) as step: step(1)`."""

Warn = Callable[[Note], None]
"""Is told every warning once, before anything is entered in a ledger or written. To stop there, raise an error."""


def unwatched(what: str, total: int) -> AbstractContextManager[Progress]:
    return nullcontext(lambda _: None)


def unheard(note: Note) -> None:
    """Warnings are in the result as well."""
