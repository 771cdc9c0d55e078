"""The words themselves: every sentence with figures in it, in one file for readers.

`python -m tests.golden.test_sentences` writes the file again; its diff shows what readers will read.
"""

from __future__ import annotations

from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from mixveil.core.wording.notes import Note
from mixveil.core.wording.sentences import TABLES, sentence

FILE = Path(__file__).parent / "sentences.txt"


def figures(template: str) -> dict[str, Any]:
    """A value for each figure that a sentence mentions: by its format a count, a number, or its own name."""
    given: dict[str, Any] = {}
    for _, name, spec, _ in Formatter().parse(template):
        if name:
            counted = spec is not None and (spec.startswith("n ") or spec == ",")
            given[name] = 2 if counted else 0.25 if spec else name.upper()
    return given


def written() -> str:
    whole = {code: template for table in TABLES for code, template in table.WORDS.items()}
    return "".join(f"{code}\n    {sentence(Note(code, figures(whole[code])))}\n" for code in sorted(whole))


@pytest.mark.words
def test_every_sentence_is_as_it_was_read() -> None:
    assert written() == FILE.read_text(encoding="utf-8")


if __name__ == "__main__":
    FILE.write_text(written(), encoding="utf-8")
