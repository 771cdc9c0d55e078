"""A part of a larger set: some of its rows, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from torch import Tensor

from mixveil import checks
from mixveil.types import Batch, Dataset, Rows


@dataclass(frozen=True)
class Part:
    """The rows of `index`; where the whole is a Dataset, so is the part."""

    rows: Rows
    index: Tensor

    def __len__(self) -> int:
        return len(self.index)

    def take(self, index: Tensor) -> Batch:
        return self.rows.take(self.index[checks.rows_within(index, len(self))])

    @property
    def shape(self) -> tuple[int, ...]:
        return cast(Dataset, self.rows).shape

    @property
    def classes(self) -> tuple[str, ...]:
        return cast(Dataset, self.rows).classes

    @property
    def low(self) -> float:
        return cast(Dataset, self.rows).low

    @property
    def high(self) -> float:
        return cast(Dataset, self.rows).high

    @property
    def declared(self) -> bool:
        return cast(Dataset, self.rows).declared

    @property
    def units(self) -> tuple[str, ...] | None:
        units = cast(Dataset, self.rows).units
        return None if units is None else tuple(units[row] for row in self.index.tolist())

    def originals(self, index: Tensor) -> Sequence[Tensor]:
        return cast(Dataset, self.rows).originals(self.index[checks.rows_within(index, len(self))])
