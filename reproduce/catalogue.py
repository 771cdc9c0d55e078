"""What there is to make again: the one list of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from reproduce.entries import BEYOND, ENTRIES
from reproduce.entry import NAMES, Entry

ROOT = Path(__file__).parent


def of_paper(paper: str) -> dict[str, Entry]:
    return {entry.table: entry for entry in ENTRIES if entry.paper == paper}


def provenance(folder: str, file: str) -> dict[str, str]:
    """Time, commit and device of a stored file."""
    told: dict[str, str] = json.loads((ROOT / folder / file).read_text(encoding="utf-8"))["provenance"]
    return told


def measured(folder: str, files: tuple[str, ...]) -> str:
    """The day of the last measurement."""
    return provenance(folder, files[0])["time"][:10] if files else "–"


def listed() -> list[tuple[str, ...]]:
    """The one list: paper, table, command, last measured, where the result lies."""
    lines: list[tuple[str, ...]] = [("paper", "table", "what", "command", "measured", "result")]
    for entry in ENTRIES:
        where = (
            f"reproduce/{entry.paper}/{entry.results[0]}" if entry.results else "not kept: it shows a data set's images"
        )
        when = measured(entry.paper, entry.results)
        lines.append((NAMES[entry.paper], entry.table, entry.title, f"{entry.command} --quick|--full", when, where))
    for item in BEYOND:
        name, when = NAMES.get(item.folder, item.folder), measured(item.folder, (item.results,))
        lines.append((name, "–", item.title, item.command, when, f"reproduce/{item.folder}/{item.results}"))
    return lines


def aligned(lines: Sequence[tuple[str, ...]]) -> str:
    """Columns under one another."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "".join(
        "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() + "\n" for line in lines
    )
