"""Results as data: one JSON format for all that is measured, with where it came from, and tables made of it.

A row is the settings of one run and the figures that came out; runs that differ in nothing but the seed are averaged.
`results.schema.json` beside this file is the format for other programs.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mixveil.core import files, strict_json
from mixveil.core.errors import DataFormatError, ManifestError, UnreadableFileError

FORMAT = "mixveil-results"
VERSION = 1
_LIMIT, _CELLS, _LARGEST = 16 << 20, 1_000_000, 1e100
Plain = str | float | int | bool | None


@dataclass(frozen=True)
class Results:
    """rows: {"settings": {…}, "figures": {…}} each."""

    title: str
    provenance: Mapping[str, Any]
    rows: tuple[Mapping[str, Mapping[str, Plain]], ...]


def provenance(settings: Mapping[str, Plain], *, device: str = "cpu") -> dict[str, Any]:
    """Where results come from: commit, versions, machine and settings."""
    git, commit = shutil.which("git"), ""
    if git is not None:
        asked = [git, "describe", "--always", "--dirty", "--abbrev=12"]
        commit = subprocess.run(  # noqa: S603
            asked, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        ).stdout.strip()
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit or "unknown",
        "versions": {"mixveil": version("mixveil"), "torch": version("torch"), "python": platform.python_version()},
        "device": device,
        "cores": os.cpu_count() or 1,
        "settings": dict(settings),
    }


def write_results(path: Path, found: Results) -> None:
    """Write them, whole or not at all; older ones of the same name are replaced."""
    whole = {
        "format": FORMAT,
        "version": VERSION,
        "title": found.title,
        "provenance": dict(found.provenance),
        "rows": [{"settings": dict(row["settings"]), "figures": dict(row["figures"])} for row in found.rows],
    }
    _parsed(whole)
    data = (json.dumps(whole, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode()
    if len(data) > _LIMIT:
        raise ManifestError(f"{path} is not written: {len(data):,} bytes of results, at most {_LIMIT:,} are read")
    files.write_whole(path, data)


def read_results(path: Path) -> Results:
    files.check_there(path, "a file of results")
    try:
        return _parsed(strict_json.parsed(files.read_small(path, _LIMIT)))
    except (UnreadableFileError, ManifestError) as error:
        raise DataFormatError(f"{path} does not hold results: {error}") from None


def _parsed(item: Any) -> Results:
    whole = strict_json.mapping("results", item)
    strict_json.only("results", whole, {"format", "version", "title", "provenance", "rows"})
    if whole["format"] != FORMAT or whole["version"] != VERSION:
        raise ManifestError(f"not results of version {VERSION}")
    known = strict_json.mapping("provenance", whole["provenance"])
    strict_json.only("provenance", known, {"time", "commit", "versions", "device", "cores", "settings"})
    for name in ("time", "commit", "device"):
        strict_json.text(name, known[name])
    for name in ("versions", "settings"):
        _check_plain(name, known[name])
    rows = []
    for row in strict_json.items("rows", whole["rows"]):
        strict_json.only("row", strict_json.mapping("row", row), {"settings", "figures"})
        for part in ("settings", "figures"):
            _check_plain(part, row[part])
        rows.append(row)
    columns = {name for row in rows for part in ("settings", "figures") for name in row[part]}
    if len(rows) * len(columns) > _CELLS:
        raise ManifestError(f"{len(rows):,} rows of {len(columns):,} columns are more than a table can hold")
    return Results(strict_json.text("title", whole["title"]), known, tuple(rows))


def _check_plain(where: str, item: Any) -> None:
    """Names, and values that can be printed in a line or averaged."""
    for name, value in strict_json.mapping(where, item).items():
        strict_json.text(f"a name in {where}", name)
        if isinstance(value, str):
            strict_json.text(f"{where}.{name}", value, r".{0,1000}")
        elif isinstance(value, int | float):
            if abs(value) > _LARGEST:
                raise ManifestError(f"{where}.{name} cannot be {strict_json.shown(value)}")
        elif value is not None:
            raise ManifestError(f"{where}.{name} cannot be {strict_json.shown(value)}")


def table(found: Results) -> list[list[str]]:
    """A heading and one line for all runs of the same settings: means, with the standard deviation over seeds."""
    settings = list(dict.fromkeys(name for row in found.rows for name in row["settings"] if name != "seed"))
    figures = list(dict.fromkeys(name for row in found.rows for name in row["figures"]))
    groups: dict[tuple[Plain, ...], list[Mapping[str, Plain]]] = {}
    for row in found.rows:
        key = tuple(row["settings"].get(name) for name in settings)
        groups.setdefault(key, []).append(row["figures"])
    lines = [[*settings, *figures, "runs"]]
    for key, runs in groups.items():
        cells = [_cell([run.get(name) for run in runs]) for name in figures]
        lines.append([*("–" if value is None else f"{value}" for value in key), *cells, str(len(runs))])
    return lines


def _cell(values: Sequence[Plain]) -> str:
    numbers = [float(value) for value in values if isinstance(value, float | int) and not isinstance(value, bool)]
    if not numbers:
        return next((str(value) for value in values if value is not None), "–")
    spread = f" ± {statistics.stdev(numbers):.2g}" if len(numbers) > 1 else ""
    return f"{statistics.fmean(numbers):.4g}{spread}"


def narrowed(lines: Sequence[Sequence[str]]) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """A table without the columns that say the same in all lines: those columns and what they say, and the others. A
    table of one line stays as it is.

    >>> narrowed([["k", "mu"], ["9", "1"], ["9", "2"]])
    ([('k', '9')], [['mu'], ['1'], ['2']])
    """
    columns = list(zip(*lines, strict=True))
    same = [len(lines) > 2 and len({*column[1:]}) == 1 for column in columns]
    kept = [column for column, alike in zip(columns, same, strict=True) if not alike]
    told = [(column[0], column[1]) for column, alike in zip(columns, same, strict=True) if alike]
    return told, [list(line) for line in zip(*kept, strict=True)]


def markdown(found: Results) -> str:
    """The table, as text that Markdown and people can read."""
    heading, *lines = table(found)
    rule = ["---"] * len(heading)
    return "\n".join("| " + " | ".join(line) + " |" for line in (heading, rule, *lines)) + "\n"
