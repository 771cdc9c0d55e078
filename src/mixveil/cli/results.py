"""`mixveil results`: a table of what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mixveil.cli._common import AsJson, escape, print_json, say


def results(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A file of results.")],
    as_json: AsJson = False,
) -> None:
    """Show results as a table, averaged over seeds, with where they came from."""
    from mixveil.report.results import markdown, read_results, table

    found = read_results(path)
    if as_json:
        heading, *lines = table(found)
        rows = [dict(zip(heading, line, strict=True)) for line in lines]
        print_json({"title": found.title, "rows": rows, "provenance": dict(found.provenance)})
        return
    say(f"[bold]{escape(found.title)}[/]")
    for line in markdown(found).splitlines():
        say(escape(line))
    say("")
    known = found.provenance
    say(f"[dim]{escape(str(known['time']))}, commit {escape(str(known['commit']))}, {escape(str(known['device']))}[/]")
