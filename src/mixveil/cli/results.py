"""`mixveil results`: a table of what was measured."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mixveil.cli._common import AsJson, escape, out, print_json, say

if TYPE_CHECKING:
    from mixveil.report.results import Results


def results(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A file of results.")],
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the table as CSV and nothing else.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show results as a table, averaged over seeds, with where they came from. In a pipe the table is Markdown."""
    from mixveil.core.errors import ArgumentError
    from mixveil.report.results import markdown, read_results, table

    if as_csv and as_json:
        raise ArgumentError("--csv or --json: one of the two")
    found = read_results(path)
    if as_json:
        heading, *lines = table(found)
        rows = [dict(zip(heading, line, strict=True)) for line in lines]
        print_json({"title": found.title, "rows": rows, "provenance": dict(found.provenance)})
        return
    if as_csv:
        csv.writer(sys.stdout, lineterminator="\n").writerows(table(found))
        return
    say(f"[bold]{escape(found.title)}[/]")
    if out.is_terminal:
        _show(found)
    else:
        for line in markdown(found).splitlines():
            say(escape(line))
    say("")
    known = found.provenance
    say(f"[dim]{escape(str(known['time']))}, commit {escape(str(known['commit']))}, {escape(str(known['device']))}[/]")


def _show(found: Results) -> None:
    """A table where it fits the terminal; else a paragraph for each line."""
    from mixveil.report.results import narrowed, table

    same, lines = narrowed(table(found))
    if same:
        say(f"In all lines: {escape(', '.join(f'{name} {value}' for name, value in same))}")
    if lines and _width(lines) <= out.width:
        out.print(_grid(lines))
        return
    heading, *rest = lines or [[]]
    for line in rest:
        say(
            "• "
            + escape(", ".join(f"{name} {value}" for name, value in zip(heading, line, strict=True) if value != "–"))
        )


def _width(lines: Sequence[Sequence[str]]) -> int:
    """Of a table with its rules."""
    from rich.cells import cell_len

    return sum(max(map(cell_len, column)) + 3 for column in zip(*lines, strict=True)) + 1


def _grid(lines: Sequence[Sequence[str]]) -> object:
    from rich.table import Table

    heading, *rest = lines
    made = Table(*map(escape, heading))
    for line in rest:
        made.add_row(*map(escape, line))
    return made
