"""`mixveil results`, in a pipe, on terminals, and as CSV."""

from __future__ import annotations

import csv
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from mixveil.cli import _common
from mixveil.report.results import Results, provenance, write_results
from tests.command import Run, refused

ROWS: tuple[dict[str, Any], ...] = tuple(
    {"settings": {"protocol": name, "mu": mu, "data": "digits"}, "figures": {"accuracy": 0.5 + mu / 10, "k": 9}}
    for name in ("sums", "two-step, [bold]")
    for mu in (1.0, 2.0)
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_results(tmp_path / "r.json", Results("A title", provenance({}), ROWS))
    return tmp_path / "r.json"


def test_in_a_pipe_it_is_markdown_and_csv_is_csv(run: Run, file: Path) -> None:
    assert "| sums | 1.0 | digits | 0.6 | 9 | 1 |" in run("results", file).out
    lines = list(csv.reader(StringIO(run("results", file, "--csv").out)))
    assert lines[0] == ["protocol", "mu", "data", "accuracy", "k", "runs"] and len(lines) == 5
    assert lines[4] == ["two-step, [bold]", "2.0", "digits", "0.7", "9", "1"]
    assert refused(run("results", file, "--csv", "--json"), "ArgumentError")


def test_a_terminal_gets_what_fits_it(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is the same in all lines is said once; a table that is too wide becomes paragraphs."""
    monkeypatch.setattr(type(_common.out), "is_terminal", True)
    for width in (80, 30):
        monkeypatch.setattr(_common.out, "_width", width)
        shown = run("results", file).out
        assert "In all lines: data digits, k 9, runs 1" in shown and shown.count("digits") == 1
        assert ("│" in shown) == (width == 80) and ("• protocol sums, mu 1.0, accuracy 0.6" in shown) == (width == 30)
        assert "two-step, [bold]" in shown
