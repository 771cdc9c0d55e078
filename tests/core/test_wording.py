"""Codes and sentences: figures are filled in, plurals are right, no code has two sentences."""

from __future__ import annotations

import re
from string import Formatter

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


_FIELDS = {
    code: [(part[1], part[2] or "") for part in Formatter().parse(words) if part[1]] for code, words in WORDS.items()
}
_COUNTED = [
    (name, spec) for fields in _FIELDS.values() for name, spec in fields if spec.startswith("n ") or spec == ","
]
_NAMES = {name for name, _ in _COUNTED}
_FORMS = [spec[2:].partition("|") for _, spec in _COUNTED if spec != ","]
_SINGULAR = {one.split()[0] for one, _, _ in _FORMS}
_PLURAL = {(several or one + "s").split()[0] for one, _, several in _FORMS} - _SINGULAR
_SEVERAL = {
    "features-too-large",
    "members-with-units",
    "model-mu-record-at-several",
    "model-mu-record-at-several-shared",
    "model-mu-unit-at-several",
    "model-mu-unit-at-several-shared",
}  # said of two or more only


@pytest.mark.words
@pytest.mark.parametrize("code", sorted(set(WORDS) - _SEVERAL))
def test_one_of_anything_is_said_in_the_singular(code: str) -> None:
    given = {name: 1 if name in _NAMES else 0.5 if spec else "X" for name, spec in _FIELDS[code]}
    told = sentence(note(code, **given))
    assert not re.search(rf"\b1 ({'|'.join(sorted(_PLURAL))})\b", told), told
    assert not re.search(r"\b1 (\w+ ){0,5}(of [\d,]+ )?(are|were|(?<!may )have|wait|agree|hold)\b", told), told
