"""What methods learn on, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.core.wording.notes import Note
from mixveil.encoders.singular import CalibratedSingular
from mixveil.features.cache import Features
from mixveil.features.projection import Projection
from mixveil.federated.algorithms import HeadName, Rounds, Weights, new_head, size_of, weights_of
from mixveil.learn.batches import BatchSource, RemixedEveryBatch
from mixveil.learn.fit import Head, TrainingRecipe

_ROWS = 4096


class Point(NamedTuple):
    """After so many bytes either way, messages and seconds: which share of the test rows was named right."""

    bytes: int
    messages: int
    seconds: float
    accuracy: float


@dataclass(frozen=True)
class Outcome:
    """What a method reaches, costs and promises.

    Attributes:
        accuracy: The share of test rows that the model names right, in the end.
        bytes_up: Bytes that all parties together send.
        bytes_down: Bytes that all parties together get.
        messages: Messages either way.
        seconds: Of all parties and the server one after the other, on this machine.
        guarantee: What is promised of a record.
        chosen: Settings that the method found by itself.
        curve: A point after each round, where there are rounds.
    """

    accuracy: float
    bytes_up: int
    bytes_down: int
    messages: int
    seconds: float
    guarantee: Note
    chosen: dict[str, float] = field(default_factory=dict)
    curve: tuple[Point, ...] = ()


@dataclass(frozen=True)
class Simulation:
    """What all methods learn on.

    Attributes:
        parties: Each party's rows of the same features.
        x: The same rows in memory.
        test: The rows to test on.
        test_x: The same rows in memory.
        projection: Fitted on public data.
        encoder: Of one release, calibrated on public data to the nominal τ.
        lambda_max: The largest variance of the public rows.
        tau: The nominal τ.
        scale: Mean and median norm of the public rows.
        public: Labels of the public rows, where they have the same classes, and the rows.
        head: What methods with a gradient train.
        rounds: Of methods with rounds.
        recipe: Of trainings.
    """

    parties: Sequence[Features]
    x: Sequence[Tensor]
    test: Features
    test_x: Tensor
    projection: Projection
    encoder: CalibratedSingular
    lambda_max: float
    tau: float
    scale: tuple[Tensor, float]
    public: tuple[Tensor | None, Tensor]
    head: HeadName
    rounds: Rounds
    recipe: TrainingRecipe

    @property
    def classes(self) -> int:
        return len(self.parties[0].classes)

    @property
    def rows(self) -> int:
        return sum(len(part) for part in self.parties)

    @property
    def counts(self) -> list[list[int]]:
        """How many rows of each class each party has."""
        return [part.labels.bincount(minlength=self.classes).tolist() for part in self.parties]

    @cached_property
    def head_bytes(self) -> int:
        return size_of(weights_of(self.model()))

    def model(self) -> Head:
        return new_head(self.head, self.test.shape[0], self.classes, self.recipe)

    def clear(self, party: int, rows: Tensor | None = None) -> BatchSource:
        """The rows of a party as they are, or some of them."""
        x, labels = self.x[party], self.parties[party].labels
        if rows is not None:
            x, labels = x[rows], labels[rows]
        return RemixedEveryBatch(x, labels, self.classes, None)

    def accuracy(self, model: Head, weights: Weights | None = None) -> float:
        if weights is not None:
            model.load_state_dict(dict(weights))
        return share_right(model.eval(), self.test_x, self.test.labels)


@torch.no_grad()
def share_right(model: Callable[[Tensor], Tensor], x: Tensor, labels: Tensor) -> float:
    named = [model(part.float()).argmax(1) for part in torch.split(x, _ROWS)]
    return float(torch.cat(named).eq(labels).double().mean())
