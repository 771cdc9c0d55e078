"""All results as one page that loads nothing: a table of each, and its plots. Every figure comes from the JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import jsonschema

from benchmarks.plots import log_plot
from benchmarks.record import HERE, RESULTS, Plain
from mixveil.core import files

Result = dict[str, Any]
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --line: #d0d7de; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #14181d; --line: #3a424b; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 1rem auto; }
body { padding: 0 1rem; max-width: 76rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
svg { max-width: 100%; height: auto; } svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
"""


def results(folder: Path) -> list[Result]:
    """Those of a folder, in the order of their names; one that is not of the format raises."""
    schema = json.loads((HERE / "result.schema.json").read_text())
    found = []
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text())
        jsonschema.validate(result, schema)
        found.append(result)
    return found


def page(found: Sequence[Result]) -> str:
    sections = "".join(_section(result) for result in found)
    contents = " · ".join(f'<a href="#{escape(r["name"])}">{escape(r["name"])}</a>' for r in found)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Benchmarks</title><style>{_STYLE}</style><h1>Benchmarks</h1><p>{contents}</p>{sections}</html>\n"
    )


def _section(result: Result) -> str:
    drawn = "".join(_plot(plot, result["rows"]) for plot in result["plots"])
    name, rows = escape(result["name"]), result["rows"]
    return (
        f'<h2 id="{name}">{name}</h2><p>{escape(origin(result))}</p>{drawn}'
        f"<details><summary>{len(rows)} row{'s' * (len(rows) != 1)}</summary>"
        f'<div class="scroll">{_table(rows)}</div></details>'
    )


def origin(result: Result) -> str:
    """Where a result comes from, and how it was measured, in lines that a reader can check."""
    machine, load, how = result["machine"], result["load"], dict(result["settings"])
    parts = [
        f"{result['time']}, commit {result['commit']}",
        f"{machine['device']}; {machine['processor'] or 'processor not recorded'}, {machine['cores'] or '?'} cores"
        + (f", {machine['memory_gb']:g} GB" if machine["memory_gb"] else ""),
        f"load {load['before']:g} before, {load['after']:g} after" if load else "load not recorded",
        f"{how.pop('statistic')} of {how.pop('repetitions')} after {how.pop('warm_up')} to warm up",
        *(f"{name} {shown(value)}" for name, value in how.items()),
        ", ".join(f"{name} {version}" for name, version in result["versions"].items()),
    ]
    return "; ".join(parts)


def _plot(plot: Result, rows: Sequence[Result]) -> str:
    """Rows without a positive figure have no place on logarithmic axes; a plot without any is left out."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if all(row.get(name) == value for name, value in plot.get("only", {}).items()):
            x, y = row.get(plot["x"]), row.get(plot["y"])
            if x and y and x > 0 and y > 0:
                curves.setdefault(str(row[plot["curve"]]), []).append((float(x), float(y)))
    return f"<p>{log_plot(plot['title'], plot['x'], plot['y'], curves)}</p>" if curves else ""


def _table(rows: Sequence[Result]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    heading = "".join(f"<th>{escape(name)}</th>" for name in columns)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(shown(row.get(name)))}</td>" for name in columns) + "</tr>" for row in rows
    )
    return f"<table><tr>{heading}</tr>{lines}</table>"


def shown(value: Plain) -> str:
    """A value as a cell.

    >>> [shown(value) for value in (None, True, 1000000, 0.123456, "text")]
    ['–', 'yes', '1,000,000', '0.1235', 'text']
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else value


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of results")
    parser.add_argument("--out", type=Path, default=HERE / "results.html")
    chosen = parser.parse_args()
    found = results(chosen.results)
    files.write_whole(chosen.out, page(found).encode())
    sys.stdout.write(f"{chosen.out}: {len(found)} results\n")


if __name__ == "__main__":
    main()
