"""What pages are made of: the papers' figures, our stored results, and texts on set-ups and on what is missing."""

from __future__ import annotations

import csv
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mixveil.report.results import Results, read_results

ROOT = Path(__file__).parents[1]
"""The folder `reproduce`."""

Claim = Mapping[str, str]
Row = Mapping[str, Any]


def claims(paper: str, file: str) -> list[Claim]:
    """A table of a paper, a row each."""
    with (ROOT / paper / "claims" / file).open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@functools.cache
def results(paper: str, file: str) -> Results:
    """A file of results of a paper's folder."""
    return read_results(ROOT / paper / file)


def rows(paper: str, file: str, **wanted: Any) -> list[Row]:
    """Settings and figures, in one mapping each, of the rows that have these settings."""
    return [
        {**row["settings"], **row["figures"]}
        for row in results(paper, file).rows
        if all(row["settings"].get(name) == value for name, value in wanted.items())
    ]


@functools.cache
def texts() -> dict[str, Any]:
    """`reasons.json`: why a figure is missing, and what differs in a set-up."""
    found: dict[str, Any] = json.loads((ROOT / "reasons.json").read_text(encoding="utf-8"))
    return found


def matches(row: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a row has these values. A list names several that will do."""
    return all(
        row.get(name) in value if isinstance(value, list) else row.get(name) == value for name, value in wanted.items()
    )
