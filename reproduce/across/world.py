"""What all rows of the table share: the data, how they are dealt, and what is public."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mixveil.core.randomness import SeededStream
from mixveil.data.images import Images
from mixveil.data.opening import open_data
from mixveil.data.partition import partition
from mixveil.features.cache import Features
from mixveil.features.extractor import Extractor
from mixveil.features.opening import FeatureOptions
from mixveil.federated.algorithms import HeadName
from mixveil.federated.simulation.setup import PublicSetup, prepared
from mixveil.learn.fit import TrainingRecipe, steps_per_epoch

FEWEST_STEPS = 300  # of a training without rounds, as `mixveil.simulate` has it


@dataclass(frozen=True)
class Scale:
    """What is run, and how much of it.

    Attributes:
        rows: Of the training split, drawn at random, that are dealt; public: others, which are public.
        beta: Of the Dirichlet law by which each class is dealt.
        mu: Of DP-SGD, certified records and class sums; tau: of one release.
        head: Of all that is trained but by DP-SGD and on certified releases.
        rounds: Of one epoch each; epochs: of other trainings.
        updates: So many updates are attacked, of the first `few` rows of as many parties.
        images: Test images whose representations are inverted.
        steps: Of networks that attacks train, at most; mask_steps: of those that guess InstaHide's signs.
    """

    data: str = "mnist"
    rows: int = 10_000
    public: int = 2_500
    parties: int = 10
    beta: float = 0.5
    mu: float = 2.0
    tau: float = 0.1
    head: HeadName = "lenet5"
    rounds: int = 30
    epochs: int = 20
    learning_rate: float = 2e-3
    severity: float = 2.0
    updates: int = 2
    few: int = 4
    split_epochs: int = 10
    images: int = 50
    steps: int = 300
    mask_steps: int = 40
    seed: int = 0

    def plain(self) -> dict[str, Any]:
        return asdict(self)


class World:
    """The data of a scale. folder: of data sets; work: where attacks keep networks."""

    def __init__(self, scale: Scale, folder: Path | None, work: Path) -> None:
        self.scale, self.work = scale, work
        whole, self.test = (open_data(f"{scale.data}:{split}", data_dir=folder) for split in ("train", "test"))
        if len(whole) < scale.rows + scale.public:
            raise SystemExit(f"{scale.data} has {len(whole)} rows to train on, and {scale.rows} + {scale.public} asked")
        drawn = self.stream("drawn").permutation(len(whole))  # sets are often in the order of who wrote them
        self.train = held(whole.part(drawn[: scale.rows]))
        self.public = held(whole.part(drawn[scale.rows : scale.rows + scale.public]))
        self.test = held(self.test)

    @property
    def classes(self) -> int:
        return len(self.train.classes)

    @cached_property
    def parts(self) -> list[Images]:
        """Each party's images: dealt as `mixveil.simulate` deals them."""
        scale = self.scale
        stream = self.stream("partition")
        dealt = partition(self.train.labels, scale.parties, beta=scale.beta, stream=stream)
        return [self.train.part(index) for index in dealt]

    @cached_property
    def agreed(self) -> PublicSetup:
        """What is public, for methods with a μ or τ."""
        options = FeatureOptions(cache=self.work)
        loaded = options.load(Extractor())
        return prepared(options.of(self.public, loaded), loaded.digest, tau=self.scale.tau)

    def features(self, images: Images) -> Features:
        """Pixels as rows of numbers."""
        options = FeatureOptions(cache=self.work)
        return options.of(images, options.load(Extractor()))

    def stream(self, name: str) -> SeededStream:
        return SeededStream(self.scale.seed).fork(name)

    def recipe(self, rows: int) -> TrainingRecipe:
        """Of a training without rounds on so many rows."""
        scale = self.scale
        recipe = TrainingRecipe(scale.epochs, learning_rate=scale.learning_rate, seed=scale.seed)
        return replace(recipe, epochs=max(scale.epochs, -(-FEWEST_STEPS // steps_per_epoch(rows, recipe))))


def held(images: Images) -> Images:
    """The same images in memory."""
    x = pixels(images)
    return replace(images, read=lambda index: x[index])


def pixels(images: Images) -> Tensor:
    """(n, …)."""
    return torch.cat([images.take(part).x for part in torch.split(torch.arange(len(images)), 4096)])
