"""The commands of the documentation run as written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import Run
from tests.docs import pages
from tests.documented import ROOT, commands, run_as_written

WITH_COMMANDS = [
    page for page in pages.documents() if page.is_relative_to(pages.DOCS) and "\n$ " in page.read_text(encoding="utf-8")
]


@pytest.mark.words
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_run_as_written(
    page: Path, run: Run, tmp_path: Path, own_state_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every `$ mixveil …`, in order, in a folder of their own, with scikit-learn's digits and no network."""
    assert run_as_written(page, run, tmp_path, own_state_folder, monkeypatch) == len(commands(page))


def test_commands_are_found_with_their_environment_and_their_further_lines(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```\n$ A=1 B=$PWD/b mixveil data list \\\n    --json\nmixveil not run\nnorth$ mixveil join x\n```\n"
    )
    assert [(found.given, found.words.split()) for found in commands(page)] == [
        (("A=1", "B=$PWD/b"), ["data", "list", "--json"])
    ]


@pytest.mark.words
def test_output_is_compared_but_for_numbers(
    run: Run, tmp_path: Path, own_state_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```\n$ mixveil ledger\nNothing … yet.\n$ mixveil ledger --budget 3\nThe standing budget is μ = 7.\n```\n"
    )
    assert [found.shown for found in commands(page)] == [("Nothing", "yet."), ("The standing budget is μ = #",)]
    assert run_as_written(page, run, tmp_path, own_state_folder, monkeypatch) == 2
    page.write_text("```\n$ mixveil ledger --budget 3\nThe standing budget is ε = 3.\n```\n")
    with pytest.raises(AssertionError, match="does not print"):
        run_as_written(page, run, tmp_path, own_state_folder, monkeypatch)


def test_a_command_that_fails_is_seen(
    run: Run, tmp_path: Path, own_state_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text("$ mixveil verify nowhere\n")
    with pytest.raises(AssertionError, match="mixveil verify nowhere"):
        run_as_written(page, run, tmp_path, own_state_folder, monkeypatch)
    page.write_text("$ rm -r release\n")
    monkeypatch.setattr("tests.documented.ROOT", tmp_path)
    with pytest.raises(AssertionError, match=r"page\.md: begin lines that are not run"):
        commands(page)
