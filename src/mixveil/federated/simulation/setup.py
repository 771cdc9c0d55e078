"""What methods learn on, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.core.types import Progress
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
    """accuracy: the share of test rows that the model names right, in the end; bytes_up, bytes_down: of all parties
    together, from and to them; messages: either way; seconds: of all parties and the server one after the other, on
    this machine; guarantee: in words, what is promised of a record; chosen: settings that the method found by itself;
    curve: after each round, where there are rounds."""

    accuracy: float
    bytes_up: int
    bytes_down: int
    messages: int
    seconds: float
    guarantee: str
    chosen: dict[str, float] = field(default_factory=dict)
    curve: tuple[Point, ...] = ()


@dataclass(frozen=True)
class Scene:
    """What all methods learn on: parties' rows of the same features, the test rows, a projection fitted on public data,
    and settings. x: of each party, as `parties` would read them; encoder: of one-shot, calibrated on public data, whose
    largest variance is lambda_max, to a nominal τ; scale: mean and median norm of the public rows; public: their
    labels, where they have the same classes, and themselves."""

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
    found = [model(part.float()).argmax(1) for part in torch.split(x, _ROWS)]
    return float(torch.cat(found).eq(labels).double().mean())


Method = Callable[[Scene, float, Progress], Outcome]
"""Of a scene, at a μ where it has one."""
