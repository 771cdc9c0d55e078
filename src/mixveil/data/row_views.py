"""Data sets made of others: some rows of a larger one, or the same rows seen differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from torch import Tensor

from mixveil.core import checks
from mixveil.core.types import Batch, Dataset, Rows


@dataclass(frozen=True)
class RowsView:
    """What it does not say itself, the rows inside say; all of it only where they are a Dataset."""

    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def _inside(self) -> Dataset:
        return cast(Dataset, self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._inside.shape

    @property
    def classes(self) -> tuple[str, ...]:
        return self._inside.classes

    @property
    def low(self) -> float:
        return self._inside.low

    @property
    def high(self) -> float:
        return self._inside.high

    @property
    def declared(self) -> bool:
        return self._inside.declared

    @property
    def units(self) -> tuple[str, ...] | None:
        return self._inside.units

    def originals(self, index: Tensor) -> Sequence[Tensor]:
        return self._inside.originals(index)


@dataclass(frozen=True)
class Subset(RowsView):
    """The rows of `index`, in its order."""

    index: Tensor

    def __len__(self) -> int:
        return len(self.index)

    def take(self, index: Tensor) -> Batch:
        return self.rows.take(self.index[checks.rows_within(index, len(self))])

    @property
    def units(self) -> tuple[str, ...] | None:
        units = self._inside.units
        return None if units is None else tuple(units[row] for row in self.index.tolist())

    def originals(self, index: Tensor) -> Sequence[Tensor]:
        return self._inside.originals(self.index[checks.rows_within(index, len(self))])


@dataclass(frozen=True)
class InMemoryRows:
    """Rows in memory."""

    batch: Batch

    def __len__(self) -> int:
        return len(self.batch.y)

    def take(self, index: Tensor) -> Batch:
        return Batch(self.batch.x[index], self.batch.y[index])
