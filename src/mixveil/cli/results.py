"""`mixveil results`: a table of what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mixveil.cli._common import AsJson, escape, out, print_json


def results(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A file of results.", show_default=False)],
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
    out.print(f"[bold]{escape(found.title)}[/]", soft_wrap=True)
    for line in markdown(found).splitlines():
        out.print(escape(line), soft_wrap=True)
    out.print()
    known = found.provenance
    out.print(
        f"[dim]{escape(str(known['time']))}, commit {escape(str(known['commit']))}, {escape(str(known['device']))}[/]"
    )
