"""Docstrings as Markdown, and the checks of what pages say of formats."""

from __future__ import annotations

import doctest

import pytest
from docs.generate import formats, markdown
from docs.generate.formats_exchanged import MANIFEST
from docs.generate.formats_fields import fields_of
from docs.generate.pages import filled, without_empty_patterns

from tests.documented import ROOT


def test_a_docstring_becomes_markdown() -> None:
    text = (
        "What it does, in [0, 1).\n\n    x = a * b\n\n"
        "Args:\n    one, two: Both of\n        them.\n    three: `a_b*`\n\n"
        "1. first\n2. second\nAnd so on.\n\n>>> 1 + 1\n2\n"
    )
    assert markdown.docstring(text) == (
        "What it does, in \\[0, 1).\n\n```text\nx = a * b\n```\n\n"
        "**Args**\n\n- `one`, `two`: Both of them.\n- `three`: `a_b*`\n\n"
        "1. first\n2. second\n\nAnd so on.\n\n```pycon\n>>> 1 + 1\n2\n```"
    )


def test_tables_keep_their_columns() -> None:
    assert markdown.table(["a|b", "c"], [["`x|y`", "z"]]) == "| a\\|b | c |\n| --- | --- |\n| `x\\|y` | z |"


def test_examples_of_docstrings() -> None:
    assert doctest.testmod(markdown) == (0, 1)


def test_a_field_that_the_page_does_not_name_stops_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fields_of(MANIFEST.made) == {*MANIFEST.fields}
    fewer = {name: words for name, words in MANIFEST.fields.items() if name != "certified"}
    monkeypatch.setattr("docs.generate.formats.EXCHANGED", (MANIFEST._replace(fields=fewer),))
    with pytest.raises(LookupError, match="the same fields: certified"):
        formats.formats()


def test_patterns_without_pages_are_left_out() -> None:
    page = ROOT / "docs" / "do" / "index.md"
    tree = "```{toctree}\n:glob:\n\nnone*\n../learn*\n../learning*\nindex*\n```\n"
    assert without_empty_patterns(f"A\n\n{tree}\nB\n", page) == "A\n\n```{toctree}\n:glob:\n\n../learn*\n```\n\nB\n"
    assert without_empty_patterns("A\n\n```{toctree}\n:glob:\n\nnone*\n```\n\nB\n", page) == "A\n\n\nB\n"


def test_an_unknown_part_of_a_page_stops_the_build() -> None:
    with pytest.raises(KeyError):
        filled("<!-- made from the code: nothing -->\n")
