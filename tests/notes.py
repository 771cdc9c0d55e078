"""Looking for notes in tests: by code and figures, never by sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from mixveil.core.wording import notes
from mixveil.core.wording.notes import Note


def every(notes: Iterable[Note | None]) -> Iterator[Note]:
    """All notes, and those within them."""
    for told in notes:
        if told is not None:
            yield told
            yield from every(inside for inside in told.figures.values() if isinstance(inside, Note))


def codes(notes: Iterable[Note | None]) -> set[str]:
    return {told.code for told in every(notes)}


def holds(notes: Iterable[Note | None], code: str, **figures: Any) -> bool:
    """Whether a note of this code, with these figures among its own, is told."""
    return any(told.code == code and figures.items() <= dict(told.figures).items() for told in every(notes))


def read(plain: Iterable[dict[str, Any]]) -> list[Note]:
    """Notes from JSON."""
    return [notes.read(told) for told in plain]
