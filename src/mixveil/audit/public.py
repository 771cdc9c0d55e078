"""Rows that are read once and held in memory: those that were released, and the public data that attackers have, as
many as attacks learn more from."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mixveil.core.types import Batch, Dataset, Rows, View
from mixveil.core.wording.notes import Note, note
from mixveil.data.row_views import RowsView, Subset

_HELD = 1 << 28  # values; more rows are read whenever they are needed
_BLOCK_VALUES = 1 << 22


@dataclass(frozen=True)
class Held(RowsView):
    """The same rows, in memory."""

    x: Tensor
    y: Tensor

    @classmethod
    def of(cls, rows: Rows) -> Held:
        one, label = rows.take(torch.tensor([0]))
        x, y = one.new_empty(len(rows), *one.shape[1:]), label.new_empty(len(rows), *label.shape[1:])
        for index in torch.split(torch.arange(len(rows)), max(1, _BLOCK_VALUES // one.numel())):
            x[index], y[index] = rows.take(index)
        return cls(rows, x, y)

    def take(self, index: Tensor) -> Batch:
        return Batch(self.x[index], self.y[index])


def is_held(rows: int, values: int, classes: int) -> bool:
    """Whether so many rows, with their labels, are few enough to be held."""
    return rows * (values + classes) <= _HELD


def held(rows: Dataset) -> Dataset:
    """The same rows in memory, if they are not too many: an audit reads all of them a dozen times."""
    return Held.of(rows) if is_held(len(rows), math.prod(rows.shape), len(rows.classes)) else rows


def with_some_public(view: View, most: int) -> tuple[View, list[Note]]:
    """The view of an attacker who has public rows of at most so many values, evenly spread over all that there are; and
    what to say of it."""
    if view.public is None:
        return view, []
    values, rows = math.prod(view.releases[0].shape), len(view.public)
    some = max(2, most // values)
    public: Rows = view.public
    if some < rows:
        public = Subset(view.public, torch.linspace(0, rows - 1, some).round().long())
    if is_held(len(public), values, len(view.releases[0].classes)):
        public = Held.of(public)
    said = [note("verdict-some-public", used=some, rows=rows)] if some < rows else []
    return replace(view, public=public), said
