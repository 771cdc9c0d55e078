"""Looking for notes in tests: by code and figures, never by sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import unescape
from typing import Any

from mixveil.core.wording import notes, sentences
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


def shows(text: str, code: str, **figures: Any) -> bool:
    """Whether a terminal or a page shows the sentence of this code, whatever it is, with these figures and any
    others."""
    said, formatter = "", sentences._Words()
    for literal, name, spec, conversion in formatter.parse(sentences.WORDS[code]):
        said += re.escape(" ".join(f"x{literal}x".split())[1:-1])
        if name in figures:
            value = str(figures[name]) if isinstance(figures[name], Note) else figures[name]
            said += re.escape(formatter.format_field(repr(value) if conversion == "r" else value, spec or ""))
        elif name is not None:
            said += ".*?"
    return re.search(said, " ".join(unescape(text).split())) is not None
