"""From codes to sentences."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from typing import Any

from mixveil.core.wording import audit, calibration, jobs, models, releases
from mixveil.core.wording.notes import Note

WORDS: dict[str, str] = {**releases.WORDS, **calibration.WORDS, **audit.WORDS, **jobs.WORDS, **models.WORDS}


def sentence(told: Note | str) -> str:
    """What a note says, or a code without figures. A code of a plug-in that brought no sentence is said as it is.

    >>> sentence(Note("of-a-plug-in", {"rows": 3}))
    'of-a-plug-in (rows = 3)'
    """
    told = Note(told) if isinstance(told, str) else told
    figures = {name: sentence(value) if isinstance(value, Note) else value for name, value in told.figures.items()}
    if told.code in WORDS:
        return _Words().vformat(WORDS[told.code], (), figures)
    listed = ", ".join(f"{name} = {value}" for name, value in figures.items())
    return f"{told.code} ({listed})" if listed else told.code


def add(words: Mapping[str, str]) -> None:
    """Bring sentences for the codes of a plug-in; those that are there stay as they are."""
    for code, template in words.items():
        WORDS.setdefault(code, template)


def plural(count: int, one: str, several: str | None = None) -> str:
    """A number with its noun.

    >>> plural(1, "party", "parties"), plural(2000, "row")
    ('1 party', '2,000 rows')
    """
    return f"{count:,} {one if count == 1 else several or one + 's'}"


class _Words(Formatter):
    """Templates as `str.format` has them; `{rows:n row}` and `{parties:n party|parties}` put the noun in its number."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith("n "):
            one, _, several = format_spec[2:].partition("|")
            return plural(value, one, several or None)
        return str(super().format_field(value, format_spec))
