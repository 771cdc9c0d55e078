"""From codes to sentences."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from string import Formatter
from typing import Any

from mixveil.core.wording import (
    audit,
    calibration,
    cards,
    challenges,
    data,
    jobs,
    learning,
    ledger,
    releases,
    split,
    updates,
)
from mixveil.core.wording.notes import Note

TABLES = (releases, cards, calibration, audit, challenges, jobs, data, ledger, learning, split, updates)
WORDS: dict[str, str] = {code: words for table in TABLES for code, words in table.WORDS.items()}


def sentence(told: Note | str) -> str:
    """What a note says, or a code without figures. A code of a plug-in that brought no sentence is said as it is.

    >>> sentence(Note("of-a-plug-in", {"rows": 3}))
    'of-a-plug-in (rows = 3)'
    """
    told = Note(told) if isinstance(told, str) else told
    figures = {name: sentence(value) if isinstance(value, Note) else value for name, value in told.figures.items()}
    if told.code in WORDS:
        with suppress(KeyError, ValueError, TypeError):  # a file or machine of another version may have other figures
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


def times(factor: float) -> str:
    """A factor in words.

    >>> times(8.21), times(5_400_000), times(3e13)
    ('8.2 times', 'about 5.4 million times', 'about 3e+13 times')
    """
    if factor < 999.95:
        return f"{factor:.1f} times"
    for unit, word in ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if unit * 0.9995 <= factor < unit * 999.5:
            shown = factor / unit
            return f"about {shown:.{1 if shown < 9.95 else 0}f} {word} times"
    return f"about {factor:.2g} times"


class _Words(Formatter):
    """Templates as `str.format` has them; `{rows:n row}` and `{parties:n party|parties}` put the noun in its number,
    and `{factor:times}` says a factor. Lists are said with commas between."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, list | tuple):
            return ", ".join(map(str, value))
        if format_spec.startswith("n "):
            one, _, several = format_spec[2:].partition("|")
            return plural(value, one, several or None)
        if format_spec == "times":
            return times(value)
        return str(super().format_field(value, format_spec))
