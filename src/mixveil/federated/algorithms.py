"""FedAvg and FedProx as pure functions: weights and a party's rows in, weights out. Nothing here sends anything.

A round: every party begins with the server's weights, trains some epochs on its own rows with a fresh
optimiser, and gives its weights back; the server takes their mean, weighed by the parties' rows. FedProx adds
μ/2‖w − w_t‖² to each party's loss, w_t being the server's weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypedDict, get_args

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError
from mixveil.core.types import Progress
from mixveil.federated.methods.base import IMAGE_HEADS
from mixveil.learn.batches import BatchSource
from mixveil.learn.fit import Head, TrainingRecipe, train_epochs
from mixveil.learn.losses import LossOf
from mixveil.learn.mlp import Classifier, Linear
from mixveil.learn.sequence_head import ImageSequence

Weights = Mapping[str, Tensor]
HeadName = Literal["linear", "mlp", "lenet5", "convnet"]

_SEEDS = 1_000_003  # between two parties'


@dataclass(frozen=True)
class Rounds:
    """How often all parties send their weights, and how many epochs each trains in between."""

    rounds: int = 50
    epochs: int = 1

    def __post_init__(self) -> None:
        checks.at_least("rounds", self.rounds, 1)
        checks.at_least("epochs", self.epochs, 1)

    def recipe(self, recipe: TrainingRecipe) -> TrainingRecipe:
        """The same recipe over the epochs of all rounds: its learning rate falls to zero over them."""
        return replace(recipe, epochs=self.rounds * self.epochs)


def new_head(
    head: str, inputs: int, classes: int, recipe: TrainingRecipe, *, shape: tuple[int, ...] | None = None
) -> Head:
    """A model with the first weights that the recipe's seed gives. shape: of rows that are images, for networks."""
    if head == "linear":
        return Linear(inputs, classes, draws=recipe.draws())
    if head == "mlp":
        return Classifier(inputs, classes, draws=recipe.draws())
    if head not in IMAGE_HEADS:
        raise ArgumentError(f"head must be one of {', '.join(get_args(HeadName))}, got {head!r:.60}")
    if shape is None or len(shape) != 3 or math.prod(shape) != inputs:
        said = "features" if shape is None else f"rows of {shape}"
        raise ArgumentError(f"head {head} takes images of (channels, height, width), not {said}: use linear or mlp")
    return ImageSequence.of(head, shape, classes, draws=recipe.draws())


def weights_of(model: Head) -> Weights:
    """All that a party sends: parameters, and the statistics of batch normalisation."""
    plain = torch.contiguous_format  # as files have them
    return {name: tensor.detach().clone(memory_format=plain) for name, tensor in model.state_dict().items()}


def size_of(weights: Weights) -> int:
    """In bytes."""
    return sum(tensor.nbytes for tensor in weights.values())


def average(parts: Iterable[tuple[Weights, int]]) -> Weights:
    """The mean of the parties' weights, each weighed by its rows: summed in float64, one party at a time."""
    sums: dict[str, Tensor] = {}
    total, kinds = 0, {}
    for weights, rows in parts:
        checks.at_least("rows", rows, 1)
        if sums and weights.keys() != sums.keys():
            raise ArgumentError(f"weights of other models: {sorted(weights.keys() ^ sums.keys())[:3]}")
        for name, tensor in weights.items():
            kinds[name] = tensor.dtype
            sums.setdefault(name, torch.zeros(tensor.shape, dtype=torch.float64)).add_(tensor, alpha=rows)
        total += rows
    if not total:
        raise ArgumentError("no weights are given")
    return {name: tensor.div_(total).to(kinds[name]) for name, tensor in sums.items()}


class _Terms(TypedDict):
    proximal: float | None
    loss: LossOf | None
    progress: Progress


def local(
    model: Head,
    weights: Weights,
    source: BatchSource,
    recipe: TrainingRecipe,
    epochs: range,
    *,
    party: int = 0,
    proximal: float | None = None,
    loss: LossOf | None = None,
    progress: Progress = lambda _: None,
) -> Weights:
    """What a party sends back: the server's weights, trained on its rows for those epochs of the recipe. model: to
    train in; what is in it is overwritten. party: its number, for draws of its own. loss: else cross-entropy."""
    model.load_state_dict(dict(weights))
    own = replace(recipe, seed=(recipe.seed + party * _SEEDS) % (1 << 64))
    own_loss = None if loss is None else loss(own)
    train_epochs(source, own, model, epochs, proximal=proximal, loss=own_loss, progress=progress)
    return weights_of(model)


def federated(
    model: Head,
    sources: Sequence[BatchSource],
    recipe: TrainingRecipe,
    rounds: Rounds,
    *,
    proximal: float | None = None,
    loss: LossOf | None = None,
    progress: Progress = lambda _: None,
) -> Iterator[Weights]:
    """The server's weights after each round: FedAvg, or FedProx with its μ. loss: of all parties; else
    cross-entropy."""
    if proximal is not None and not 0 <= proximal < math.inf:
        raise ArgumentError(f"proximal must not be negative, got {proximal:g}")
    recipe, weights = rounds.recipe(recipe), weights_of(model)
    for number in range(rounds.rounds):
        epochs = range(number * rounds.epochs, (number + 1) * rounds.epochs)

        def sent(weights: Weights = weights, epochs: range = epochs) -> Iterator[tuple[Weights, int]]:
            terms: _Terms = {"proximal": proximal, "loss": loss, "progress": progress}
            for party, source in enumerate(sources):
                yield local(model, weights, source, recipe, epochs, party=party, **terms), source.rows

        weights = average(sent())
        yield weights
