"""Training the paper's classifier: soft cross-entropy, cosine to zero, bfloat16 on a GPU.

The rows and dropout masks of a step follow from the seed and the number of the step. A training that continues after a
kill ends as if it had never stopped, and several processes compute together what one computes alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.checkpoint import Saved
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError, TrainingError, TrainingStopped
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Batch, Progress
from mixveil.learn.batches import BatchSource
from mixveil.learn.distributed import ALONE, Group
from mixveil.learn.losses import CrossEntropy, StepLoss
from mixveil.learn.mlp import Classifier, Linear
from mixveil.learn.sequence_head import ImageSequence

Head = Classifier | Linear | ImageSequence
_FEWEST = 8  # rows of a last batch: the statistics of fewer rows say too little


@dataclass(frozen=True)
class TrainingRecipe:
    """How the classifier is trained.

    Attributes:
        batch: Rows of a step.
        optimiser: `adamw` with weight decay 1e-4, as in the paper, or `sgd` with momentum 0.9, as in its code.
        learning_rate: At the first step; it falls to zero along a cosine.
        seed: Of first weights, the order of rows and dropout masks.
    """

    epochs: int = 20
    batch: int = 128
    optimiser: Literal["adamw", "sgd"] = "adamw"
    learning_rate: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least("epochs", self.epochs, 1)
        checks.at_least("batch", self.batch, 2)
        checks.finite_positive("learning rate", self.learning_rate)
        if self.optimiser not in ("adamw", "sgd"):
            raise ArgumentError(f"optimiser must be adamw or sgd, got {self.optimiser!r}")
        SeededStream(self.seed)

    def stream(self, name: str) -> SeededStream:
        return SeededStream(self.seed).fork(name)

    def draws(self) -> DeviceStream:
        """The draws of first weights and dropout masks."""
        return DeviceStream(self.stream("draws"))

    def optimiser_of(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        if self.optimiser == "sgd":
            return torch.optim.SGD(model.parameters(), self.learning_rate, momentum=0.9, fused=True)
        return torch.optim.AdamW(model.parameters(), self.learning_rate, weight_decay=1e-4, fused=True)


def fit(
    source: BatchSource,
    recipe: TrainingRecipe,
    *,
    group: Group = ALONE,
    saved: Saved | None = None,
    progress: Progress = lambda _: None,
    on_epoch: Callable[[int, Classifier], None] = lambda epoch, model: None,
    note: Callable[[str], None] = lambda text: None,
    stop: Callable[[], bool] = lambda: False,
) -> Classifier:
    """Train the paper's classifier.

    Args:
        group: The processes that train together.
        saved: The file of the training's state; None keeps no state.
        on_epoch: Called after each epoch with its number and the model.
        note: Called with messages for the user.
        stop: Asked after every step, where a state is kept, whether to write the state and stop.
    """
    model = Classifier(source.inputs, source.classes, draws=recipe.draws(), group=group)
    training = _Training(source, recipe, model, range(recipe.epochs), group, saved)
    training.run(progress, lambda epoch: on_epoch(epoch, model.eval()), note, stop)
    return model.eval()


def train_epochs(
    source: BatchSource,
    recipe: TrainingRecipe,
    model: Head,
    epochs: range,
    *,
    proximal: float | None = None,
    loss: StepLoss | None = None,
    progress: Progress = lambda _: None,
) -> None:
    """Train a model for some epochs of a recipe on rows in memory, with a fresh optimiser.

    proximal: μ of an additional loss μ/2‖w − w₀‖², where w₀ are the weights at the start. loss: else cross-entropy.
    """
    model.draws = recipe.draws()
    training = _Training(source, recipe, model, epochs, in_memory=True, proximal=proximal, loss=loss)
    training.run(progress)


def steps_per_epoch(rows: int, recipe: TrainingRecipe) -> int:
    return _batches_of(rows, recipe)[2]


def rates(rows: int, recipe: TrainingRecipe, epochs: range) -> tuple[float, ...]:
    """The learning rate of every step of some epochs of a recipe, on so many rows."""
    each = steps_per_epoch(rows, recipe)
    return tuple(_rate(recipe, step, recipe.epochs * each) for step in range(epochs.start * each, epochs.stop * each))


def _rate(recipe: TrainingRecipe, step: int, steps: int) -> float:
    return recipe.learning_rate * (1 + math.cos(math.pi * step / steps)) / 2


def _batches_of(rows: int, recipe: TrainingRecipe) -> tuple[int, int, int]:
    """The rows of a batch, the rows of a smaller last batch (0: there is none), and the batches of an epoch."""
    batch = min(recipe.batch, checks.enough_rows(rows))
    whole, rest = divmod(rows, batch)
    last = rest if rest >= _FEWEST else 0
    return batch, last, whole + (last > 0)


class _Training:
    def __init__(
        self,
        source: BatchSource,
        recipe: TrainingRecipe,
        model: Head,
        epochs: range,
        group: Group = ALONE,
        saved: Saved | None = None,
        *,
        in_memory: bool = False,
        proximal: float | None = None,
        loss: StepLoss | None = None,
    ) -> None:
        self.source, self.recipe, self.model, self.epochs = source, recipe, model, epochs
        self.group, self.saved, self.in_memory, self.proximal = group, saved, in_memory, proximal
        self.loss = loss or CrossEntropy(group.size)
        self.start = [] if proximal is None else [parameter.detach().clone() for parameter in model.parameters()]
        self.batch, self.last, self.per_epoch = _batches_of(source.rows, recipe)
        if (self.last or self.batch) < group.size:
            raise ArgumentError(f"{group.size} processes cannot share a batch of {self.last or self.batch} rows")
        self.steps = recipe.epochs * self.per_epoch
        self.optimiser = recipe.optimiser_of(self.model)

    def run(
        self,
        progress: Progress,
        on_epoch: Callable[[int], None] = lambda epoch: None,
        note: Callable[[str], None] = lambda text: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        done = 0 if self.saved is None else self.saved.load(self.model, self.optimiser, self.steps)
        if done:
            note(f"going on after step {done:,} of {self.steps:,}")
            progress(sum(self._rows(step) for step in range(done)))
        model: torch.nn.Module = self.model
        if self.group.size > 1:
            model = torch.nn.parallel.DistributedDataParallel(self.model)
        for step, batch in self._batches(max(done, self.epochs.start * self.per_epoch)):
            loss = self._step(model, step, batch)
            progress(self._rows(step))
            epoch, place = divmod(step + 1, self.per_epoch)
            if place == 0:
                _check(loss, epoch)
                on_epoch(epoch)
            if self.saved is not None and self.group.leads and step + 1 < self.steps:
                stops = stop()
                if stops or self.saved.due():
                    _check(loss, epoch + 1)
                    self.saved.save(self.model, self.optimiser, step + 1)
                if stops:
                    raise TrainingStopped(f"stopped after step {step + 1:,} of {self.steps:,}; the state is kept")

    def _rows(self, step: int) -> int:
        """The rows of a step, over all processes."""
        return self.last if self.last and (step + 1) % self.per_epoch == 0 else self.batch

    def _step(self, model: torch.nn.Module, step: int, batch: Batch) -> Tensor:
        self.model.train()
        self.model.draws.restart(step)
        for settings in self.optimiser.param_groups:
            settings["lr"] = _rate(self.recipe, step, self.steps)
        loss = self.loss(model, batch, step, self._rows(step))
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.proximal is not None:
            draw_back(self.model.parameters(), self.start, self.proximal)
        self.optimiser.step()
        return loss.detach()

    def _batches(self, start: int) -> Iterator[tuple[int, Batch]]:
        """This process's share of every batch from a step on. A thread fetches the next batch during a step, unless all
        rows are in memory, where a thread costs more than it saves."""
        shares = self._shares(start)
        if self.in_memory:
            yield from ((step, self.source.batch(index, step)) for step, index in shares)
            return

        def fetch() -> tuple[int, Batch] | None:
            share = next(shares, None)
            return None if share is None else (share[0], self.source.batch(share[1], share[0]))

        with ThreadPoolExecutor(1) as ahead:
            coming = ahead.submit(fetch)
            while (fetched := coming.result()) is not None:
                coming = ahead.submit(fetch)
                yield fetched

    def _shares(self, start: int) -> Iterator[tuple[int, Tensor]]:
        """Steps from `start` on, with the rows of this process. An epoch takes every row once, in random order, except
        a rest that is too small for a batch."""
        for epoch in range(start // self.per_epoch, self.epochs.stop):
            order = self.recipe.stream(f"epoch {epoch}").permutation(self.source.rows)
            for place in range(self.per_epoch):
                step, first = epoch * self.per_epoch + place, place * self.batch
                if step >= start:
                    yield step, self.group.own(order[first : first + self._rows(step)])


def draw_back(parameters: Iterable[torch.nn.Parameter], starts: Iterable[Tensor], proximal: float) -> None:
    """Add the gradient of μ/2‖w − w₀‖², μ(w − w₀), to the gradients."""
    with torch.no_grad():
        for parameter, start in zip(parameters, starts, strict=True):
            if parameter.grad is not None:
                parameter.grad.add_(parameter - start, alpha=proximal)


def _check(loss: Tensor, epoch: int) -> None:
    if not math.isfinite(float(loss)):
        raise TrainingError(f"the loss is {float(loss)} in epoch {epoch}: try a smaller learning rate")
