"""What all pages share: templates that escape what they are given, and load nothing."""

from __future__ import annotations

from importlib.resources import files as resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from mixveil.core.checks import LONGEST_NAME
from mixveil.core.errors import one_line
from mixveil.core.wording.notes import Note, read
from mixveil.core.wording.sentences import sentence


def environment() -> Environment:
    made = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, loader=FunctionLoader(_source)
    )
    made.filters["figure"] = figure
    made.filters["sentence"] = said
    made.filters["quoted"] = quoted
    return made


def said(plain: Note | str | dict[str, Any]) -> str:
    """The sentence of a note, of a code, or of a note as JSON has it.

    >>> said({"code": "attack-broken", "figures": {"attack": "x", "why": {"code": "no-number"}}})
    'x is broken, so that what it found here shows nothing: its guess is not a number.'
    """
    return sentence(read(plain) if isinstance(plain, dict) else plain)


def quoted(name: str) -> str:
    """A name that another party chose, shortened, and in quotes: what it says, it says itself.

    >>> print(quoted("north"), quoted("it's signed"))
    'north' "it's signed"
    """
    return repr(one_line(name, LONGEST_NAME))


def figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def amount(count: float) -> str:
    """Bytes for people.

    >>> amount(0), amount(999), amount(25_600), amount(3.2e9)
    ('0 B', '999 B', '25.6 kB', '3.2 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _source(name: str) -> str:
    return (resources("mixveil.report") / name).read_text(encoding="utf-8")
