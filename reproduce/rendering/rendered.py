"""Rendered tables: their lines and notes, and how much of the claims is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Line(NamedTuple):
    """claim: The number of its row in the claims. missing: Figures of the paper that have none of ours."""

    claim: int
    cells: tuple[str, ...]
    measured: bool
    missing: tuple[str, ...]


class Compared(NamedTuple):
    """A rendered table. notes: By letter, what the last column names."""

    head: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: Mapping[str, str]
    everywhere: tuple[str, ...]


@dataclass
class Notes:
    """Texts, each with a letter, in the order in which they are needed."""

    letters: dict[str, str] = field(default_factory=dict)

    def letter(self, text: str) -> str:
        return self.letters.setdefault(text, _letter(len(self.letters)))


def _letter(number: int) -> str:
    """a … z, aa, ab, …"""
    return (_letter(number // 26 - 1) if number >= 26 else "") + chr(ord("a") + number % 26)


class Counts(NamedTuple):
    """Rows of the claims: all; with a figure of ours for each of the paper's; for some of them; for none."""

    rows: int
    measured: int
    partly: int
    reasons: int

    def plus(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(self, other, strict=True)))


def counted(compared: Compared) -> Counts:
    whole = {line.claim for line in compared.lines}
    without = {line.claim for line in compared.lines if not line.measured}
    partly = {line.claim for line in compared.lines if line.missing} - without
    return Counts(len(whole), len(whole - without - partly), len(partly), len(without))


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table."""
    rows_ = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join(cell or ' ' for cell in line)} |\n" for line in rows_)
