"""Figures: the paper's, ours, and what is between them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from reproduce.rendering.stored import Claim, Row

NONE = "–"


class Value(NamedTuple):
    """A figure; its spread; and the best of what it is the mean of."""

    mean: float
    spread: float | None = None
    best: float | None = None

    def shown(self, digits: int) -> str:
        spread = "" if self.spread is None else f" ± {self.spread:.{digits}f}"
        best = "" if self.best is None else f" ({self.best:.{digits}f})"
        return f"{self.mean:.{digits}f}{spread}{best}"

    def minus(self, other: Value, digits: int) -> str:
        best = "" if self.best is None or other.best is None else f" ({signed(self.best - other.best, digits)})"
        return f"{signed(self.mean - other.mean, digits)}{best}"


def signed(value: float, digits: int) -> str:
    """With its sign; 0 has none.

    >>> signed(-0.004, 2), signed(0.5, 1)
    ('0.00', '+0.5')
    """
    return f"{abs(value):.{digits}f}" if abs(value) < 0.5 * 10**-digits else f"{value:+.{digits}f}"


class Ours(NamedTuple):
    """Where a figure of ours lies.

    Attributes:
        title: The head of its column.
        rows: All runs of a claim, by variant; they differ in the seed alone.
        names: Of the mean, of the spread and of the best; "" for none.
        factor: By which ours are multiplied to be as the paper's.
    """

    title: str
    rows: Callable[[Claim, str], list[Row]]
    names: tuple[str, ...]
    factor: float = 1.0

    def value(self, found: Sequence[Row]) -> Value | None:
        parts: list[float | None] = []
        for name in (*self.names, "", "")[:3]:
            known = [self.factor * float(row[name]) for row in found if name and row.get(name) is not None]
            parts.append(statistics.fmean(known) if known else None)
        if parts[0] is None:
            return None
        alone = [self.factor * float(row[self.names[0]]) for row in found if row.get(self.names[0]) is not None]
        spread = statistics.stdev(alone) if len(alone) > 1 and len(self.names) == 1 else parts[1]
        return Value(parts[0], spread, parts[2])


class Figure(NamedTuple):
    """A column of a paper's table.

    Attributes:
        title: With its unit.
        claimed: Columns of the claims, in the order of `Ours.names`; none where the paper has no such figure.
        digits: After the point.
    """

    title: str
    claimed: tuple[str, ...]
    ours: tuple[Ours, ...]
    digits: int = 2

    def paper(self, claim: Claim) -> Value | None:
        parts = [float(claim[name]) if name and claim[name] else None for name in (*self.claimed, "", "")[:3]]
        return None if parts[0] is None else Value(parts[0], *parts[1:])

    def published(self, claim: Claim) -> str:
        """As the paper has it, digit by digit."""
        mean, spread, best = (claim[name] if name else "" for name in (*self.claimed, "", "")[:3])
        return f"{mean}{spread and f' ± {spread}'}{best and f' ({best})'}" if mean else NONE
