"""The commands of the papers' tables: the list, quick versions, and what is refused."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest
from reproduce.entries import BEYOND, ENTRIES
from reproduce.entry import NAMES, PAPERS

from mixveil.report.results import read_results
from reproduce import __main__ as everything
from reproduce import catalogue, running


def test_the_list_has_every_table_with_its_command_and_its_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["reproduce"])
    everything.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(ENTRIES) + len(BEYOND)
    for entry in ENTRIES:
        (line,) = [line for line in lines if f"{entry.command} --quick|--full" in line]
        assert line.startswith(NAMES[entry.paper]) and entry.title in line
        for file in entry.results[:1]:
            assert f"reproduce/{entry.paper}/{file}" in line
            assert catalogue.provenance(entry.paper, file)["time"][:10] in line
    assert {entry.paper for entry in ENTRIES} == set(PAPERS)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_table_has_a_quick_version_and_scripts(paper: str) -> None:
    tables = catalogue.of_paper(paper)
    assert set(import_module(f"reproduce.quick.{paper}").TABLES) == set(tables)
    for entry in tables.values():
        assert entry.quick and entry.needs and entry.full


class Parsed(Exception):  # noqa: N818
    """A script took its arguments."""


@pytest.mark.parametrize("paper", PAPERS)
def test_scripts_take_what_full_tables_ask_of_them(paper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parse = ArgumentParser.parse_args
    out, taken = tmp_path / "found.json", list[Namespace]()

    def parsed(parser: ArgumentParser) -> None:
        taken.append(parse(parser))
        raise Parsed

    run = running.run_module
    monkeypatch.setattr(ArgumentParser, "parse_args", parsed)
    monkeypatch.setenv("MIXVEIL_DATA", "")

    def tried(name: str, words: Sequence[str]) -> None:
        with pytest.raises(Parsed):
            run(name, words)

    monkeypatch.setattr(running, "run_module", tried)
    for entry in catalogue.of_paper(paper).values():
        taken.clear()
        running.full(entry, out, tmp_path)
        assert len(taken) == len(entry.full)
        assert any(getattr(asked, "out", None) == out for asked in taken), entry.name
        for asked in taken:
            written = getattr(asked, "out", None) or out
            assert not running.stored(written), (entry.name, written)


def test_without_a_table_the_tables_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    running.main("singular", [])
    said = capsys.readouterr().out
    assert all(entry.title in said for entry in catalogue.of_paper("singular").values())


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["7", "--quick"], "invalid choice: '7'"),
        (["1"], "say --quick"),
        (["1", "--quick", "--full"], "not allowed with"),
        (["1", "--full"], "name their folder with --data"),
        (["1", "--quick", "--out", str(catalogue.ROOT / "singular" / "table1.json")], "among the measurements"),
    ],
)
def test_what_cannot_be_asked_for_ends_with_2_and_says_why(
    words: list[str], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MIXVEIL_DATA", raising=False)
    before = (catalogue.ROOT / "singular" / "table1.json").read_bytes()
    with pytest.raises(SystemExit) as ended:
        running.main("singular", words)
    assert ended.value.code == 2
    assert why in capsys.readouterr().err
    assert (catalogue.ROOT / "singular" / "table1.json").read_bytes() == before


def test_all_quick_tables_are_not_written_over_the_stored_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["reproduce", "--quick", "--out", str(catalogue.ROOT / "singular")])
    with pytest.raises(SystemExit) as ended:
        everything.main()
    assert ended.value.code == 2


def test_a_quick_table_is_the_same_again_and_says_what_it_is(tmp_path: Path) -> None:
    entry = catalogue.of_paper("instahide")["4"]
    made = [tmp_path / name for name in ("one.json", "two.json", "other.json")]
    for path, seed in zip(made, (0, 0, 1), strict=True):
        running.quick(entry, path, seed)
    one, two, other = (read_results(path) for path in made)
    assert one.rows == two.rows and len(one.rows) == 70
    assert [row["figures"] for row in other.rows] != [row["figures"] for row in one.rows]
    assert one.title.startswith("Quick, not comparable with the paper: ")
    assert one.provenance["settings"]["set-up"] == entry.quick and one.provenance["commit"]


def test_the_command_writes_a_quick_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "made" / "table1.json"
    running.main("instahide", ["1", "--quick", "--out", str(out), "--seed", "3"])
    rows = {(row["settings"]["attack"], row["settings"]["k"]): row["figures"] for row in read_results(out).rows}
    assert str(out) in capsys.readouterr().out
    shared = rows["inner-product", 2]
    assert float(shared["nearest row shares an image"] or 0) > 10 * float(shared["chance"] or 0)  # published: it works
    assert all(row["settings"]["seed"] == 3 for row in read_results(out).rows)


def test_full_runs_the_scripts_with_the_file_and_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[str, list[str]]]()
    monkeypatch.setattr(running, "run_module", lambda name, words: asked.append((name, list(words))))
    monkeypatch.setenv("MIXVEIL_DATA", "")
    out = tmp_path / "made" / "found.json"
    running.main("mixcon", ["5", "--full", "--data", str(tmp_path), "--out", str(out)])
    work = ["--data-dir", str(tmp_path), "--work", str(out.with_suffix("")) + "-work"]
    assert asked[0][0] == "reproduce.mixcon.images" and asked[0][1][-4:] == work
    assert asked[1] == ("reproduce.mixcon.images", ["tables", "--out", str(out), *work])
