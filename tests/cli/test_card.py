"""`mixveil card`: the page and its folder, JSON, and what it refuses as `verify` does."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.command import Run, flip


@pytest.fixture
def release(run: Run, small: Path) -> Path:
    made = run("encode", small, "--mu", 1, "--party", "north", "--recipient", "a server", "--out", "r")
    assert made.code == 0, made.err
    return small.parent / "r"


def test_the_card_lies_beside_the_release(run: Run, release: Path) -> None:
    done = run("card", "r", "--note", "audits/2026")
    assert done.code == 0 and done.out.splitlines()[-1].endswith("r.card/card.html")
    folder = release.parent / "r.card"
    assert sorted(path.name for path in folder.iterdir()) == ["card.html", "card.json"]
    whole = json.loads((folder / "card.json").read_text())
    assert (whole["note"], whole["release"]["recipient"], whole["ledger"]) == ("audits/2026", None, None)
    assert run("verify", "r").err == ""  # the release is as it was
    again = run("card", "r")
    assert again.code == 2 and "r.card exists already" in again.err
    (release / "more.txt").write_text("x")
    named = run("card", "r/", "--out", "named", "--ledger")
    assert named.code == 0 and "more.txt" in named.err
    assert stat.S_IMODE((release.parent / "named").stat().st_mode) == 0o700
    private = json.loads((release.parent / "named" / "card.json").read_text())
    assert (private["release"]["recipient"], private["ledger"]["mu"]) == ("a server", 1.0)
    assert private["leaves"]["not_part_of_it"] == 1


def test_json_writes_nothing_unless_a_folder_is_named(run: Run, release: Path) -> None:
    before = {path.name for path in release.parent.iterdir()}
    shown = run("card", "r", "--json", "--recipient", "another")
    assert shown.code == 0 and not shown.err and {path.name for path in release.parent.iterdir()} == before
    assert shown.json["format"] == "mixveil-release-card" and shown.json["release"]["recipient"] == "another"
    assert run("card", "r", "--json", "--out", "c").json["release"]["id"] == shown.json["release"]["id"]
    assert (release.parent / "c" / "card.html").exists()


@pytest.mark.parametrize("words", [("damaged",), ("nothing",), ("small.npz",)], ids=" ".join)
def test_what_verify_refuses_is_refused_alike(run: Run, small: Path, words: tuple[str]) -> None:
    assert run("encode", small, "--mu", 1, "--out", "damaged", "--seed", 1).code == 0
    flip(small.parent / "damaged" / "shard-00000.safetensors")
    before = sorted(small.parent.rglob("*"))
    checked, made = run("verify", *words, "--json"), run("card", *words, "--json", "--out", "card")
    assert checked.code and (made.code, made.json, made.err) == (checked.code, checked.json, checked.err)
    assert sorted(small.parent.rglob("*")) == before


def test_a_note_of_two_lines_is_refused(run: Run, release: Path) -> None:
    done = run("card", "r", "--note", "one\ntwo", "--json")
    assert done.code == 2 and done.json["error"]["type"] == "ArgumentError"
