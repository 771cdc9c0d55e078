"""Views of a data set: a subset of its rows, or the same rows with something changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.types import Batch, Dataset, Rows


@dataclass(frozen=True)
class RowsView:
    """The same rows. A subclass overrides what it changes; everything else is forwarded to `rows`.

    Only `take` and the length exist where `rows` is not a whole `Dataset`.
    """

    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, index: Tensor) -> Batch:
        return self.rows.take(index)

    @property
    def _dataset(self) -> Dataset:
        return cast(Dataset, self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._dataset.shape

    @property
    def classes(self) -> tuple[str, ...]:
        return self._dataset.classes

    @property
    def low(self) -> float:
        return self._dataset.low

    @property
    def high(self) -> float:
        return self._dataset.high

    @property
    def declared(self) -> bool:
        return self._dataset.declared

    @property
    def units(self) -> tuple[str, ...] | None:
        return self._dataset.units

    def originals(self, index: Tensor) -> Sequence[Tensor]:
        return self._dataset.originals(index)


@dataclass(frozen=True)
class Subset(RowsView):
    """The rows of `index`, (m,) int64, in its order."""

    index: Tensor

    def __len__(self) -> int:
        return len(self.index)

    def take(self, index: Tensor) -> Batch:
        return self.rows.take(self.index[checks.rows_within(index, len(self))])

    @property
    def units(self) -> tuple[str, ...] | None:
        units = self._dataset.units
        return None if units is None else tuple(units[row] for row in self.index.tolist())

    def originals(self, index: Tensor) -> Sequence[Tensor]:
        return self._dataset.originals(self.index[checks.rows_within(index, len(self))])


@dataclass(frozen=True)
class OnDevice(RowsView):
    """The same rows, brought to a device as they are taken. Their labels stay in memory."""

    device: torch.device

    def take(self, index: Tensor) -> Batch:
        x, y = self.rows.take(index)
        return Batch(x.to(self.device), y.cpu())


@dataclass(frozen=True)
class InMemoryRows:
    """The rows of one batch."""

    batch: Batch

    def __len__(self) -> int:
        return len(self.batch.y)

    def take(self, index: Tensor) -> Batch:
        return Batch(self.batch.x[index], self.batch.y[index])
