"""What methods learn on: rows that are dealt to parties, and what is public; and what is said of a method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError
from mixveil.core.local_training import AugMix
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Fact, Tau
from mixveil.core.watching import unwatched
from mixveil.core.wording.notes import Note
from mixveil.data.partition import partition
from mixveil.encoders.calibration import facts_for, watched_moments
from mixveil.encoders.singular import CalibratedSingular, Singular
from mixveil.features import projection_fit
from mixveil.features.cache import Features
from mixveil.features.projection import Projection
from mixveil.features.round_settings import RoundSettings
from mixveil.federated.algorithms import HeadName, Rounds, Weights, new_head, size_of, weights_of
from mixveil.federated.methods.base import IMAGE_HEADS
from mixveil.learn.batches import BatchSource, RemixedEveryBatch
from mixveil.learn.fit import Head, TrainingRecipe, steps_per_epoch

_ROWS = 4096
_STEPS = 300  # of a training, at least


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
        bytes_up: Bytes that all parties together send; bytes_down: that they get.
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
class SimulationConfig:
    """What is simulated.

    Attributes:
        beta: Of the Dirichlet law of each class over parties; None: all are dealt alike.
        rho: The last party's rows over those of any other.
        head: What methods with a gradient train.
        rounds: Of one epoch each.
        epochs: Of trainings without rounds.
        tau: The nominal τ of one release.
        seed: Of partition, noise and training.
        severity: Of Fed-AugMix's views, in (0, 10].
    """

    parties: int
    beta: float | None = None
    rho: float = 1.0
    head: HeadName = "linear"
    rounds: int = 50
    epochs: int = 20
    batch: int = 128
    learning_rate: float = 5e-3
    tau: float = 1e-6
    seed: int = 0
    severity: float = 2.0

    def __post_init__(self) -> None:
        checks.finite_positive("tau", self.tau)
        AugMix(self.severity)  # it checks itself
        Rounds(self.rounds)
        self.recipe  # noqa: B018, it checks itself

    @property
    def recipe(self) -> TrainingRecipe:
        return TrainingRecipe(self.epochs, self.batch, learning_rate=self.learning_rate, seed=self.seed)


@dataclass(frozen=True)
class PublicSetup:
    """What all parties agree on beforehand, from public data only.

    Attributes:
        projection: Fitted on the public rows.
        encoder: Of one release at the nominal τ.
        lambda_max: The largest variance of the public rows.
        tau: The nominal τ.
        mean: (d,) of the public rows.
        norm: The median norm of the centred public rows.
        rows: (n, d) the public rows; labels: (n,) their classes.
    """

    projection: Projection
    encoder: CalibratedSingular
    lambda_max: float
    tau: float
    mean: Tensor
    norm: float
    rows: Tensor
    labels: Tensor
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Simulation:
    """What all methods learn on.

    Attributes:
        parties: Each party's rows of the same features; x: the same rows in memory.
        test: The rows to test on; test_x: the same rows in memory.
        agreed: What is public.
        head: What methods with a gradient train.
        rounds: Of methods with rounds.
        recipe: Of trainings.
        severity: Of Fed-AugMix's views.
    """

    parties: Sequence[Features]
    x: Sequence[Tensor]
    test: Features
    test_x: Tensor
    agreed: PublicSetup
    head: HeadName
    rounds: Rounds
    recipe: TrainingRecipe
    severity: float = 2.0

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

    def epochs_for(self, rows: int) -> int:
        """Of a training on so many rows, without rounds: few rows make few steps an epoch."""
        return max(self.recipe.epochs, -(-_STEPS // steps_per_epoch(rows, self.recipe)))

    @cached_property
    def head_bytes(self) -> int:
        return size_of(weights_of(self.model()))

    def model(self) -> Head:
        shape = None if self.test.extractor.names else self.test.rows.shape
        return new_head(self.head, self.test.shape[0], self.classes, self.recipe, shape=shape)

    def images(self, what: str) -> tuple[tuple[int, ...], float, float]:
        """The shape of a row that is an image, and the range of its pixels. what: needs images; features are
        refused."""
        if self.test.extractor.names:
            raise ArgumentError(f"{what} changes images, and these are features of {self.test.extractor}: no backbone")
        images = self.test.rows
        return images.shape, images.low, images.high

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


def prepared(
    public: Features,
    weights: str,
    *,
    tau: float,
    radius: float | None = None,
    settings: tuple[RoundSettings, ...] = (),
) -> PublicSetup:
    """From labelled public rows. weights: the digest of what made their features. radius: of the noise that the paper
    gives features, from `displacement`; None: from the energy of the public rows. settings: for rounds of sums."""
    target = Tau(tau, "energy" if radius is None else "displacement")
    facts = facts_for(
        target,
        public,
        public=None,
        clip=None,
        moments_of=watched_moments(SeededStream(0).fork("facts"), unwatched),
        displacement=None if radius is None else Fact(radius, "public"),
    )
    known = _held(public).float()
    mean = known.mean(0)
    norm = float(torch.linalg.vector_norm(known - mean, dim=1).median()) or 1.0
    projection = replace(projection_fit.fit(public, weights), rounds=settings)
    encoder = Singular().calibrate(target, facts)[0]
    return PublicSetup(projection, encoder, facts["lambda_max"], tau, mean, norm, known, public.labels, public.classes)


def set_up(train: Features, test: Features, agreed: PublicSetup, config: SimulationConfig) -> Simulation:
    """Deal the rows to the parties."""
    if train.classes != test.classes:
        raise ArgumentError("the rows to train on and those to test on do not have the same classes")
    if train.units is not None:
        raise ArgumentError("a simulation deals single rows: those of one unit would come to several parties")
    stream = SeededStream(config.seed).fork("partition")
    parts = partition(train.labels, config.parties, beta=config.beta, rho=config.rho, stream=stream)
    whole = _held(train)
    x = [whole[index] for index in parts]
    parties = [replace(train.part(index), read=own.__getitem__) for index, own in zip(parts, x, strict=True)]
    dealt = (parties, x, test, _held(test), agreed)
    found = Simulation(*dealt, config.head, Rounds(config.rounds), config.recipe, config.severity)
    if config.head in IMAGE_HEADS:
        found.model()  # refuses rows that the network does not take, before any method is run
    return found


def _held(features: Features) -> Tensor:
    """(n, d) all features in memory."""
    return torch.cat([features.read(index) for index in torch.split(torch.arange(len(features)), _ROWS)])
