"""What the figures of a simulation say: which method is best at which promise, which is worse than staying alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mixveil.core.wording.notes import Note, note, read
from mixveil.federated.methods.catalogue import method_named

ALONE = "local"

Figures = Sequence[Mapping[str, Any]]
"""Rows of a simulation, as its file has them."""


def verdict(rows: Figures, tested: int) -> tuple[Note, ...]:
    """The best method at each μ and without one, then every method that is worse than each party alone. tested: on how
    many rows; differences within their chance are said to be so."""
    methods = [row for row in rows if not method_named(row["method"]).baseline]
    told = []
    for mu in sorted({row["mu"] for row in methods if row["mu"] is not None}):
        told.append(_best([row for row in methods if row["mu"] == mu], tested, "best-at-mu", mu=mu))
    unpromised = [row for row in methods if row["mu"] is None]
    if unpromised:
        told.append(_best(unpromised, tested, "best-without-guarantee"))
    told += _beside_alone(methods, next((row for row in rows if row["method"] == ALONE), None), tested)
    if len({read(row["guarantee"]).code for row in methods if row["mu"] is not None}) > 1:
        told.append(note("promises-differ"))
    return tuple(told)


def chance(first: float, second: float, tested: int) -> float:
    """Two standard errors of the difference of two accuracies on so many rows, as if each had rows of its own: on the
    same rows two methods mostly err together, and the real error is smaller.

    >>> round(chance(0.9, 0.9, 10_000), 4)
    0.0085
    """
    return 2 * math.sqrt((first * (1 - first) + second * (1 - second)) / tested)


def of_row(row: Mapping[str, Any]) -> Note:
    """A method, with the μ that it was run at."""
    if row["mu"] is None:
        return note("method-named", method=row["method"])
    return note("method-at-mu", method=row["method"], mu=row["mu"])


def _near(row: Mapping[str, Any], other: Mapping[str, Any], tested: int) -> bool:
    first, second = float(row["accuracy"]), float(other["accuracy"])
    return abs(first - second) <= chance(first, second, tested)


def _best(rows: Figures, tested: int, code: str, **promise: float) -> Note:
    best = max(rows, key=lambda row: row["accuracy"])
    others = [row["method"] for row in rows if row is not best and _near(row, best, tested)]
    figures = {**promise, "method": best["method"], "accuracy": best["accuracy"]}
    return note(f"{code}-by-chance", **figures, others=others) if others else note(code, **figures)


def _beside_alone(methods: Figures, alone: Mapping[str, Any] | None, tested: int) -> list[Note]:
    """Methods beside the mean accuracy of parties that stay alone."""
    if alone is None:
        return [note("local-not-compared")] if methods else []
    level, near = alone["accuracy"], [row for row in methods if _near(row, alone, tested)]
    told = [
        note("worse-than-local", which=of_row(row), points=100 * (level - row["accuracy"]), local=level)
        for row in methods
        if row["accuracy"] < level and row not in near
    ]
    if near:
        told.append(note("as-local-by-chance", methods=_listed(near), local=level))
    return told


def _listed(rows: Figures) -> list[str]:
    """Each method once, with all its μ."""
    mus: dict[str, list[str]] = {}
    for row in rows:
        mus.setdefault(row["method"], []).extend([] if row["mu"] is None else [f"{row['mu']:g}"])
    return [f"{name} (μ = {', '.join(at)})" if at else name for name, at in mus.items()]
