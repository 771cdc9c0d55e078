"""Lines that Markdown reads as something else than the middle of a sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import pages
from tests.documented import ROOT

_FENCED = re.compile(r"^ *(```+).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
_OTHER = re.compile(r"^ *(?:%|\d+\) |\+ ).*", re.MULTILINE)


def misread(text: str) -> list[str]:
    """Outside blocks of code: comments of MyST, which are left out, and lists by marks that these pages do not use."""
    return _OTHER.findall(_FENCED.sub("", text))


@pytest.mark.parametrize("page", pages.documents(), ids=lambda page: str(page.relative_to(ROOT)))
def test_no_wrapped_line_is_taken_for_something_else(page: Path) -> None:
    assert misread(page.read_text(encoding="utf-8")) == []


def test_such_lines_are_found() -> None:
    text = "guessing finds 0.2\n%). Draws of N(0,\n1) and C(1\n+ u)\n\n```\n% code\n```\n1. of a list\n"
    assert misread(text) == ["%). Draws of N(0,", "1) and C(1", "+ u)"]
