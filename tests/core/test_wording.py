"""Codes and sentences: figures are filled in, plurals are right, no code has two sentences."""

from __future__ import annotations

import re

import pytest

from mixveil.core.wording.notes import note
from mixveil.core.wording.sentences import TABLES, WORDS, sentence


def test_no_code_has_two_sentences() -> None:
    codes = [code for table in TABLES for code in table.WORDS]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("code", sorted(WORDS))
def test_codes_are_codes(code: str) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*(\.[a-z0-9-]+)*", code)


def test_figures_and_notes_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WORDS, "outer", "{count:n party|parties} waited: {why}.")
    monkeypatch.setitem(WORDS, "inner", "{rows:n row}")
    assert sentence(note("outer", count=1, why=note("inner", rows=2000))) == "1 party waited: 2,000 rows."
    told = note("outer", count=1, why=note("inner", rows=1)).plain()
    assert told == {"code": "outer", "figures": {"count": 1, "why": {"code": "inner", "figures": {"rows": 1}}}}
