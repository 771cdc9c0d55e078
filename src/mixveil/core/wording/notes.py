"""A note: something to tell, as a code and figures. Manifests, audits and jobs carry notes; people read sentences.

A code is stable and is what tests and programs compare. Its sentence may change at any time, and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Note:
    """Something to tell. code: lower case, digits and hyphens; figures: what the sentence mentions, by name: text,
    numbers, or notes within the note."""

    code: str
    figures: Mapping[str, Any] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        inside = {name: value.plain() if isinstance(value, Note) else value for name, value in self.figures.items()}
        return {"code": self.code, **({"figures": inside} if inside else {})}

    def __str__(self) -> str:
        from mixveil.core.wording.sentences import sentence

        return sentence(self)


def note(code: str, **figures: Any) -> Note:
    return Note(code, figures)


def read(item: Mapping[str, Any] | str) -> Note:
    """The note that `plain` turned into JSON, from a file that this program wrote; a text, where an earlier version
    wrote one."""
    if isinstance(item, str):
        return Note(item)
    figures = item.get("figures", {}).items()
    return Note(item["code"], {name: read(value) if isinstance(value, dict) else value for name, value in figures})
