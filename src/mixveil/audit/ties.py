"""Records that no attack can tell apart by their values: copies of one image, and strangers whose few numbers coincide.

An attack that names one of t such strangers has been right by 1/t: what it may expect if it chooses among them by
chance. The row of a copy holds the same image, and is right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from mixveil.audit.self_test import same
from mixveil.core.types import Dataset, Rows
from mixveil.data.fingerprint import fingerprint
from mixveil.data.row_views import RowsView
from mixveil.theory.moments import blocks

FEW_NUMBERS = 4
"""Rows of fewer numbers coincide by chance, above all where they are clipped."""

_AT_ONCE = 256
_BLOCK_VALUES = 1 << 24


@dataclass(frozen=True)
class Ties:
    """Which of n records have equal values, and which of these are copies of an image.

    Attributes:
        equal: (n,) the number of the first record with the same values.
        worth: (n,) what any of the records with these values is worth as an answer: the share of them that are copies
            of the record itself, or are it.
        chance: The share of records that naming one record gets right.
    """

    equal: Tensor
    worth: Tensor
    chance: float

    @classmethod
    def of(cls, records: Rows, values: Tensor) -> Ties:
        """values: (n, …) of the first n records."""
        equal = same(values)
        copies, several = equal.clone(), equal.bincount(minlength=len(equal))[equal] > 1
        if values.dim() < 4 and bool(several.any()):
            tied = several.nonzero()[:, 0]
            prints = of_images(records, tied.tolist())
            first: dict[tuple[int, bytes], int] = {}
            for row, own in zip(tied.tolist(), prints or [b""] * len(tied), strict=True):
                copied = prints is not None or values[0].numel() >= FEW_NUMBERS
                copies[row] = first.setdefault((int(equal[row]), own), row) if copied else row
        alike, copied_by = (numbers.bincount(minlength=len(equal))[numbers].double() for numbers in (equal, copies))
        return cls(equal, copied_by / alike, float(copied_by.mean()) / len(equal))

    def right(self, rows: Tensor) -> float:
        """How many records are said to be in their own row, or in that of a copy. rows: (n,) −1 for none."""
        there = (rows >= 0) & self.equal[rows.clamp(min=0)].eq(self.equal)
        return math.fsum(self.worth[there].tolist())

    def likeliest(self, links: Tensor) -> float:
        """The same by scores (n, n) of rows: of those that score alike any may be chosen."""
        found = 0.0
        for some in torch.split(torch.arange(len(links)), max(1, _BLOCK_VALUES // links.shape[1])):
            first = links[some] == links[some].amax(1, keepdim=True)
            own = first & self.equal[None].eq(self.equal[some, None])
            found += math.fsum((own.sum(1).double() / first.sum(1).clamp(min=1) * self.worth[some]).tolist())
        return found


def pairs_right(guess: Tensor, truth: Tensor, values: Tensor, labels: Tensor) -> float:
    """How many of (m, 2) pairs of candidates are right, in any order, −1 for none; of t that are as good, one is right
    by 1/t. values (c, …), labels (c,): all that the candidates are told apart by."""
    equal = same(values)
    kinds = equal * (int(labels.max()) + 1) + labels.long()
    count = kinds.bincount().double()
    said, right = (kinds[pairs.clamp(min=0)].sort(1).values for pairs in (guess.cpu(), truth))
    one, other = count[right].unbind(1)
    as_good = torch.where(right[:, 0] == right[:, 1], one * (one - 1) / 2, one * other)
    hits = (guess.cpu() >= 0).all(1) & (said == right).all(1)
    return math.fsum((1 / as_good[hits]).tolist())


def of_images(rows: Rows, index: Sequence[int]) -> list[bytes] | None:
    """The fingerprints of the images behind some rows; None where there are none."""
    inner = rows
    while isinstance(inner, RowsView):
        inner = inner.rows
    if not hasattr(inner, "originals"):
        return None
    prints: list[bytes] = []
    for some in torch.split(torch.tensor(index, dtype=torch.int64), _AT_ONCE):
        prints += map(fingerprint, cast(Dataset, rows).originals(some))
    return prints


class Known:
    """Recognises private rows: images by their pixels, other rows by their values and, where these are equal, by the
    images behind them. Where no images are there, few numbers that are equal show nothing."""

    def __init__(self, rows: Dataset) -> None:
        self._rows, self._images = rows, len(rows.shape) > 1
        self._few = math.prod(rows.shape) < FEW_NUMBERS
        self._with: dict[bytes, list[int]] = {}
        for number, row in enumerate(row for block in blocks(rows) for row in block):
            self._with.setdefault(fingerprint(row), []).append(number)
        self._prints: dict[bytes, list[bytes] | None] = {}

    @property
    def copies(self) -> int:
        """How many of the private rows are copies of others."""
        return sum(len(rows) - self._different(value) for value, rows in self._with.items() if len(rows) > 1)

    def among(self, rows: Rows) -> list[bool]:
        """Which of other rows are private ones."""
        values = [fingerprint(row) for block in blocks(rows) for row in block]
        found = [value in self._with for value in values]
        equal = [number for number, there in enumerate(found) if there]
        if not self._images and equal:
            prints = of_images(rows, equal)
            for place, number in enumerate(equal):
                behind = self._behind(values[number])
                if prints is None or behind is None:
                    found[number] = not self._few
                else:
                    found[number] = prints[place] in behind
        return found

    def _different(self, value: bytes) -> int:
        """How many different records have this value."""
        if self._images:
            return 1
        behind = self._behind(value)
        return len(set(behind)) if behind is not None else len(self._with[value]) if self._few else 1

    def _behind(self, value: bytes) -> list[bytes] | None:
        """The fingerprints of the images behind the records with this value."""
        if value not in self._prints:
            self._prints[value] = of_images(self._rows, self._with[value])
        return self._prints[value]
