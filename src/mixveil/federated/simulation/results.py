"""The results of a simulation: a row a method, the file that keeps them, and methods beside one another.

The file is written after every method, so that a simulation that was stopped goes on with those that are left.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mixveil.core import files, strict_json
from mixveil.core.errors import DataFormatError, ManifestError, OutputError, UnreadableFileError
from mixveil.core.wording import notes
from mixveil.federated.methods.catalogue import METHODS, method_named
from mixveil.federated.simulation.setup import Outcome, Point
from mixveil.report import results

FORMAT = "mixveil-simulation"
VERSION = 1
_LIMIT = 64 << 20

Job = tuple[str, float | None]
"""A method, and the μ that it is run at, where it is run at one."""


@dataclass(frozen=True)
class Row:
    """One method; mu: the guarantee that it was run at, where it is run at one."""

    method: str
    mu: float | None
    outcome: Outcome

    def plain(self) -> dict[str, Any]:
        outcome = asdict(self.outcome)
        outcome["curve"] = [list(point) for point in self.outcome.curve]
        outcome["guarantee"] = self.outcome.guarantee.plain()
        return {"method": self.method, "mu": self.mu, **outcome, "commit": _commit()}


@cache
def _commit() -> str:
    return str(results.provenance({})["commit"])


class Kept:
    """The file of a simulation, rewritten after every method. about: what it is a simulation of; the file of another is
    refused."""

    def __init__(self, path: Path | None, about: dict[str, Any]) -> None:
        self.path, self.about = path, json.loads(json.dumps(about))
        self.rows: list[dict[str, Any]] = []
        self.counts: list[list[int]] = []  # of each party's rows of each class
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        found = read_simulation(path)
        if found["settings"] != self.about:
            other = found["settings"]
            differ = sorted(key for key in {*other, *self.about} if other.get(key) != self.about.get(key))
            raise OutputError(
                f"{path} is of another simulation, with other {', '.join(differ)}: name another file, or remove it"
            )
        self.rows, self.counts = list(found["rows"]), found["counts"]

    def has(self, job: Job) -> bool:
        return any((row["method"], row["mu"]) == job for row in self.rows)

    def add(self, row: Row) -> None:
        self.rows.append(row.plain())
        if self.path is not None:
            text = json.dumps(self.whole(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
            files.write_whole(self.path, text.encode(), 0o600)  # unprotected figures of private rows

    def whole(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "provenance": results.provenance({}),
            "settings": self.about,
            "counts": self.counts,
            "rows": self.rows,
        }


def read_simulation(path: Path) -> dict[str, Any]:
    """A simulation's file; every row as it must be."""
    files.check_there(path, "the file of a simulation")
    try:
        whole = strict_json.mapping("simulation", strict_json.parsed(files.read_small(path, _LIMIT)))
        strict_json.only("simulation", whole, {"format", "version", "provenance", "settings", "counts", "rows"})
        if whole["format"] != FORMAT or whole["version"] != VERSION:
            raise ManifestError(f"not a simulation of version {VERSION}")
        strict_json.mapping("settings", whole["settings"])
        for own in strict_json.items("counts", whole["counts"]):
            for count in strict_json.items("counts", own):
                if type(count) is not int or not 0 <= count < 1 << 48:
                    raise ManifestError(f"a count cannot be {strict_json.shown(count)}")
        for row in strict_json.items("rows", whole["rows"]):
            _check_row(strict_json.mapping("row", row))
    except (UnreadableFileError, ManifestError) as error:
        raise DataFormatError(f"{path} does not hold a simulation: {error}") from None
    return dict(whole)


def _check_row(row: Any) -> None:
    row.pop("title", None)  # of files that an earlier version wrote
    strict_json.only("row", row, {"method", "mu", "commit", *Outcome.__dataclass_fields__})
    for name in ("method", "commit"):
        strict_json.text(name, row[name])
    _check_guarantee(row["guarantee"])
    if row["method"] not in METHODS.all():
        raise ManifestError(f"no method is called {strict_json.shown(row['method'])}")
    if row["mu"] is not None:
        strict_json.figure("mu", row["mu"])
    for name, value in strict_json.mapping("chosen", row["chosen"]).items():
        strict_json.number(name, value)
    for name in ("accuracy", "bytes_up", "bytes_down", "messages", "seconds"):
        _measured(name, row[name])
    for point in strict_json.items("curve", row["curve"]):
        if not isinstance(point, list) or len(point) != len(Point._fields):
            raise ManifestError("a point of the curve must have bytes, messages, seconds and accuracy")
        for value in point:
            _measured("curve", value)


def _check_guarantee(item: Any) -> None:
    """A code with numbers; a text, where an earlier version wrote one."""
    if isinstance(item, str):
        strict_json.text("guarantee", item)
        return
    figures = strict_json.mapping("guarantee", item).get("figures", {})
    strict_json.text("guarantee", item.get("code"), "[a-z0-9-]{1,60}")
    for name, value in strict_json.mapping("figures", figures).items():
        strict_json.number(name, value)


def readable(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows for people: with titles, guarantees as sentences, and whether they are levels to compare with."""
    found = []
    for row in rows:
        method = method_named(row["method"])
        told = {"title": method.title, "baseline": method.baseline, "guarantee": str(notes.read(row["guarantee"]))}
        found.append({**row, **told})
    return found


def _measured(name: str, value: Any) -> None:
    """Something that was counted or timed."""
    if strict_json.number(name, value):
        strict_json.figure(name, value)


@dataclass(frozen=True)
class Compared:
    """A method that sends once, or twice, beside one with rounds.

    Attributes:
        at_bytes: The other's accuracy after as many bytes; None: it has not finished a round by then.
        bytes_ratio: Bytes of the other until it has the same accuracy, over its own; None: it never has.
        seconds_ratio: The same of seconds.
    """

    method: str
    mu: float | None
    other: str
    accuracy: float
    at_bytes: float | None
    bytes_ratio: float | None
    seconds_ratio: float | None


def compared(rows: Sequence[dict[str, Any]]) -> list[Compared]:
    """Every method of one or two steps beside every one with rounds, by their curves."""
    found = []
    for row in rows:
        if method_named(row["method"]).in_rounds or not row["curve"]:
            continue
        own = Point(*row["curve"][0])
        for other in rows:
            if not method_named(other["method"]).in_rounds or other["mu"] not in (None, row["mu"]):
                continue
            points = [Point(*point) for point in other["curve"]]
            before = [point.accuracy for point in points if point.bytes <= own.bytes]
            reached = next((point for point in points if point.accuracy >= own.accuracy), None)
            found.append(
                Compared(
                    row["method"],
                    row["mu"],
                    other["method"],
                    own.accuracy,
                    before[-1] if before else None,
                    reached.bytes / own.bytes if reached and own.bytes else None,
                    reached.seconds / own.seconds if reached and own.seconds else None,
                )
            )
    return found
