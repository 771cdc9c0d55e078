"""Notes between machines: what one of them says is shown only if it is a known code with figures of their types."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from typing import Any

from mixveil.core import strict_json
from mixveil.core.errors import ManifestError, RefusedError
from mixveil.core.wording.notes import Note, note
from mixveil.core.wording.sentences import sentence
from mixveil.federated.jobs.messages import printable

_TEXT = r"(?=.{1,80}$)[\w.+-]+(, [\w.+-]+)*"  # names, with commas between: no sentence of another machine is shown
_LARGEST = 1 << 53
_WHOLE = {"bytes", "count", "features", "inputs", "most", "needed", "number", "size"}
"""Figures that are whole numbers. All others that a machine may send to another are names."""


class Refusal(RefusedError):  # noqa: N818
    """What another machine asks for, or sends, is not taken. The reason may be told to it.

    Attributes:
        note: The reason, as a code with figures.
    """

    def __init__(self, code: str, **figures: Any) -> None:
        self.note = note(code, **figures)
        super().__init__(sentence(self.note))


def reason(error: Exception, code: str) -> Note:
    """Why something failed on this machine. code: of errors that are not refusals; it has `error` and `detail`."""
    if isinstance(error, Refusal):
        return error.note
    return note(code, error=type(error).__name__, detail=printable(str(error)))


def told(item: Any, known: Mapping[str, str]) -> Note:
    """A reason that another machine gave. known: the codes that it may use, with their sentences."""
    try:
        whole = strict_json.mapping("why", item)
        code = strict_json.text("code", whole.get("code"), "[a-z-]{1,60}")
        figures = strict_json.mapping("figures", whole.get("figures", {}))
        if code not in known or whole.keys() - {"code", "figures"}:
            raise ManifestError("not a reason that this version knows")
        strict_json.only(code, figures, fields_of(known[code]))
        return Note(code, {name: _figure(name, value) for name, value in figures.items()})
    except ManifestError:
        return note("no-reason-given")


def fields_of(template: str) -> set[str]:
    """The figures that a sentence mentions."""
    return {name for _, name, _, _ in Formatter().parse(template) if name}


def _figure(name: str, value: Any) -> int | str:
    if name not in _WHOLE:
        return strict_json.text(name, value, _TEXT)
    if type(value) is not int or not 0 <= value < _LARGEST:
        raise ManifestError(f"{name} must be a whole number, got {strict_json.shown(value)}")
    return value


def read(item: Any) -> Note | None:
    """A note from a file of this machine's own; a text where an earlier version wrote one."""
    if not item:
        return None
    if isinstance(item, str):
        return Note(item)
    figures = item.get("figures", {}).items()
    return Note(item["code"], {name: read(value) if isinstance(value, dict) else value for name, value in figures})
