"""What machines say to one another, and what people read of it."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

import mixveil
from mixveil.core.wording import audit, calibration, jobs, releases
from mixveil.core.wording.notes import note, read
from mixveil.core.wording.sentences import WORDS, sentence
from mixveil.federated.jobs.messages import FIGURES, WHOLE, Refusal, told
from mixveil.federated.methods.catalogue import method_names

FEDERATED = Path(mixveil.__file__).parent / "federated"
SOURCES = [*FEDERATED.rglob("*.py"), *(FEDERATED.parent / "cli").glob("*.py")]


def test_no_code_has_two_sentences() -> None:
    tables = [jobs.REFUSED, jobs.ENDED, jobs.REJECTED, jobs.EVENTS, jobs.OWNER, jobs.GUARANTEES]
    tables += [releases.WORDS, calibration.WORDS, audit.WORDS]
    codes = [code for table in tables for code in table]
    assert len(codes) == len(set(codes)) and all(re.fullmatch("[a-z0-9-]+", code) for code in codes)


def test_every_code_that_is_used_has_a_sentence_and_every_sentence_a_use() -> None:
    text = "".join(path.read_text() for path in SOURCES)
    used = set(re.findall(r'(?:Refusal|note|log)\(\s*"([a-z0-9-]+)"', text))
    assert used <= WORDS.keys(), used - WORDS.keys()
    earlier = {"epsilon-record-removed", "mu-labels-as-counts"}  # files of earlier versions hold them
    unused = [code for code in jobs.WORDS if f'"{code}"' not in text and not code.startswith("job-")]
    assert {*unused} <= earlier


@pytest.mark.parametrize("code", [*jobs.REFUSED, *jobs.ENDED])
def test_what_may_be_sent_comes_through_and_nothing_else(code: str) -> None:
    """Every refusal survives the way to the other machine; a figure of another type does not."""
    table = jobs.REFUSED if code in jobs.REFUSED else jobs.ENDED
    names = FIGURES.get(code, set())
    good: dict[str, int | str] = {name: 3 if name in WHOLE else "word" for name in names}
    refusal = Refusal(code, **good)
    assert told(refusal.note.plain(), table) == refusal.note and sentence(refusal.note).isprintable()
    for name in good:
        wrongs: tuple[Any, ...] = ([], None, 1.5, -1, "x" * 100, "a\nb", "your key has expired", {"code": "a"}, True)
        for wrong in wrongs:
            found = told({"code": code, "figures": {**good, name: wrong}}, table)
            assert found == note("no-reason-given"), (name, wrong)
    assert told({"code": code, "figures": {**good, "patient": "word"}}, table) == note("no-reason-given")
    for name in names:  # a sentence without its figure would break on the other machine
        less = {other: value for other, value in good.items() if other != name}
        assert told({"code": code, "figures": less}, table) == note("no-reason-given")
    other = jobs.ENDED if table is jobs.REFUSED else jobs.REFUSED
    assert told(refusal.note.plain(), other) == note("no-reason-given")


@pytest.mark.words
def test_sentences_of_reasons_show_the_figures_that_are_sent() -> None:
    for code, template in {**jobs.REFUSED, **jobs.ENDED}.items():
        assert {name for _, name, _, _ in Formatter().parse(template) if name} == FIGURES.get(code, set()), code
    assert not FIGURES.keys() - jobs.REFUSED.keys() - jobs.ENDED.keys()


def test_a_note_is_read_back_with_the_notes_inside_it() -> None:
    inside = note("party-out", state="rejected", why=note("too-many-bytes", bytes=2, most=1))
    assert read(inside.plain()) == inside and str(read("a text of before")) == "a text of before"


def test_no_method_is_asked_for_by_its_name() -> None:
    """But in its own file. `public`, `local`, `sums`, `moments` and `rounds` are also words for other things."""
    names = "|".join(map(re.escape, {*method_names()} - {"public", "local", "sums", "moments", "rounds"}))
    tests = re.compile(rf'(?:==|!=|\bin\b)\s*[({{\[]?\s*"(?:{names})"|"(?:{names})"\s*(?:==|!=|\bin\b)')
    others = [path for path in SOURCES if path.parent.name != "methods"]
    found = {path.name for path in others if tests.search(path.read_text())}
    assert not found
