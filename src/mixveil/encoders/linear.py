"""What the encoders share whose rows are weighed sums of records: how rows come about, and what labels show of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.types import Batch, Rows, Trace, Visible
from mixveil.core.wording.notes import Note

_ROWS = 8192


class Linear(ABC):
    """An encoder of rows Σ_j weight[j] · prepare(source j) plus noise that depends on the weights alone."""

    linear: ClassVar[bool] = True
    masked: ClassVar[bool] = False
    moved: ClassVar[int] = 0

    @property
    @abstractmethod
    def sources(self) -> int:
        """How many records a row is made of."""

    @abstractmethod
    def prepare(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def deviation(self, weight: Tensor) -> Tensor: ...

    def possible_labels(self, y: Tensor) -> Tensor:
        """At most one class a source. That shares sum to one is checked for all releases."""
        return (y > 0).sum(1) <= self.sources

    @property
    def label_share(self) -> float:
        return 1.0

    def advice(self, records: int) -> list[Note]:
        return []

    def observation(self, trace: Trace) -> Mixtures:
        return Mixtures(self, trace)

    def visible(self, released: Rows) -> Visible | None:
        """Labels of several classes show the weights, but not which of them is the row's own: both orders count half.
        Where no label has several classes, the records of a row are taken to have equal weights."""
        share = noise = 0.0
        count = 0
        for index in torch.split(torch.arange(len(released)), _ROWS):
            y = released.take(index).y
            several = y[(y > 0).sum(1) > 1]
            if not len(several):
                continue
            share += float(several.double().square().sum())
            weights = several.topk(2, dim=1).values
            noise += float(self.deviation(torch.cat([weights, weights.flip(1)])).square().sum()) / 2
            count += len(several)
        if count:
            return Visible(share / count, noise / count)
        even = torch.full((1, self.sources), 1 / self.sources)
        return Visible(1 / self.sources, float(self.deviation(even).square()))


def unmixed(n: int) -> Trace:
    """The trace of n rows that are made of one record each."""
    checks.enough_rows(n)
    return Trace(torch.empty(n, 0, dtype=torch.int64), torch.ones(n, 1))


@dataclass(frozen=True)
class Mixtures:
    """The observation of a linear encoder."""

    encoder: Linear
    trace: Trace

    def mean(self, records: Rows, rows: Tensor) -> Batch:
        weight = self.trace.weight[rows]
        mixed, labels = torch.zeros(1, dtype=torch.float64), torch.zeros(1)
        for j, source in enumerate([rows, *self.trace.partner[rows].T]):
            x, y = records.take(source)
            mixed = mixed + self.encoder.prepare(x) * weight[:, j : j + 1].double()
            labels = labels + y * weight[:, j : j + 1]
        return Batch(mixed, labels)

    def mixture(self, records: Rows, rows: Tensor) -> Batch:
        return self.mean(records, rows)

    def mask(self, rows: Tensor) -> None:
        return None

    def moves(self, rows: Tensor) -> None:
        return None

    def deviation(self, rows: Tensor) -> Tensor:
        return self.encoder.deviation(self.trace.weight[rows])
