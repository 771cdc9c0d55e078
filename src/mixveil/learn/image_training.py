"""Training a network on images from its first weights: SGD with momentum, a rate that falls in steps; on a GPU a step
is one CUDA graph. Without another task it is a ResNet-18 as InstaHide's paper trains it (App. E), with soft
cross-entropy, batches of 128, and bfloat16 on a GPU.

Rows of a step follow from the seed and the number of the epoch. A training that continues after a kill ends as if it
had never stopped, up to rounding on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mixveil.core import checks
from mixveil.core.checkpoint import Saved
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError, TooFewRowsError, TrainingError, TrainingStopped
from mixveil.core.first_weights import started
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Progress
from mixveil.learn.epochs import EpochSource
from mixveil.learn.resnet import WIDTH, ResNet18

Measure = Callable[[int, Any], dict[str, Any]]
_FEWEST = 8  # rows of a last batch: the statistics of fewer rows say too little
_BEFORE = 3  # steps before a graph is recorded: libraries choose and load their kernels in them


@dataclass(frozen=True)
class SgdRecipe:
    """How a network is trained by SGD.

    Attributes:
        batch: Rows of a step.
        learning_rate: Divided by ten after each of the epochs in `falls`.
        seed: Of first weights and the order of rows.
    """

    epochs: int = 30
    falls: tuple[int, ...] = ()
    batch: int = 128
    learning_rate: float = 0.1
    weight_decay: float = 1e-4
    momentum: float = 0.9
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least("epochs", self.epochs, 1)
        checks.at_least("batch", self.batch, _FEWEST)
        checks.finite_positive("learning rate", self.learning_rate)
        if self.weight_decay < 0 or not math.isfinite(self.weight_decay):
            raise ArgumentError(f"weight decay must be 0 or positive, got {self.weight_decay}")
        if not 0 <= self.momentum < 1:
            raise ArgumentError(f"momentum must be in [0, 1), got {self.momentum}")
        object.__setattr__(self, "falls", tuple(self.falls))
        if wrong := [fall for fall in self.falls if type(fall) is not int or fall < 0]:
            raise ArgumentError(f"falls must be whole numbers of epochs, got {wrong[0]!r:.60}")
        SeededStream(self.seed)

    def stream(self, name: str) -> SeededStream:
        return SeededStream(self.seed).fork(name)

    def rate(self, epoch: int) -> float:
        """In an epoch, counted from 0."""
        return self.learning_rate * 0.1 ** sum(epoch >= fall for fall in self.falls)


@dataclass(frozen=True)
class ImageRecipe(SgdRecipe):
    """How a ResNet-18 is trained. width: channels of the network's first stage."""

    width: int = WIDTH

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.at_least("width", self.width, 1)


class Task(NamedTuple):
    """What is trained, and on what.

    Attributes:
        net: With its first weights, on the device of the images.
        loss: Of (m, colours, height, width) images and (m, classes) soft labels, by the network: a scalar.
        low_precision: Whether steps run in bfloat16 on a GPU.
    """

    net: nn.Module
    loss: Callable[[nn.Module, Tensor, Tensor], Tensor]
    low_precision: bool


def _resnet18(source: EpochSource, recipe: SgdRecipe) -> Task:
    draws = DeviceStream(recipe.stream("first weights"))
    width = recipe.width if isinstance(recipe, ImageRecipe) else WIDTH
    net = started(ResNet18(source.classes, width), draws, source.device)
    return Task(net, lambda net, x, y: cross_entropy(net(x).float(), y), low_precision=True)


def fit_images(
    source: EpochSource,
    recipe: ImageRecipe,
    *,
    saved: Saved | None = None,
    progress: Progress = lambda _: None,
    measure: Measure = lambda epoch, model: {},
    note: Callable[[str], None] = lambda text: None,
    stop: Callable[[], bool] = lambda: False,
    graph: bool = True,
    compiled: bool = False,
) -> tuple[ResNet18, list[dict[str, Any]]]:
    """Train a ResNet-18. Returns it and its learning curve: epoch, loss and what `measure` returned after the epoch.

    Args:
        saved: The file of the training's state; None keeps no state.
        measure: Called after each epoch with its number, from 1, and the model, which it may evaluate.
        note: Called with messages for the user.
        stop: Asked after every step, where a state is kept, whether to write the state and stop.
        graph: On a GPU, whether steps are recorded once and then replayed.
        compiled: Whether torch.compile makes the network's kernels, which takes a compiler and a minute.
    """
    training = ImageTraining(
        source, recipe, saved=saved, measure=measure, note=note, stop=stop, graph=graph, compiled=compiled
    )
    for rows in training.steps():
        progress(rows)
    return cast(ResNet18, training.model).eval(), training.curve


class ImageTraining:
    """One training, step by step, so that several can take turns on one GPU: each has a CUDA stream of its own.

    task: what is trained; a ResNet-18, if none is given."""

    def __init__(
        self,
        source: EpochSource,
        recipe: SgdRecipe,
        *,
        task: Callable[[EpochSource, SgdRecipe], Task] = _resnet18,
        saved: Saved | None = None,
        measure: Measure = lambda epoch, model: {},
        note: Callable[[str], None] = lambda text: None,
        stop: Callable[[], bool] = lambda: False,
        graph: bool = True,
        compiled: bool = False,
    ) -> None:
        self.source, self.recipe, self.saved = source, recipe, saved
        self.measure, self.note, self.stop = measure, note, stop
        self.device = source.device
        self.on_gpu = self.device.type == "cuda"
        if source.rows < _FEWEST:
            raise TooFewRowsError(f"a training needs at least {_FEWEST} rows, got {source.rows}")
        self.batch = min(recipe.batch, source.rows)
        whole, rest = divmod(source.rows, self.batch)
        self.last = rest if rest >= _FEWEST else 0
        self.per_epoch = whole + (self.last > 0)
        self.total = recipe.epochs * self.per_epoch
        self.curve: list[dict[str, Any]] = []
        self._stream = torch.cuda.Stream(self.device) if self.on_gpu else None  # type: ignore[no-untyped-call]
        self._graph = _Graph(self, self._stream) if self._stream is not None and graph else None
        with self._own():
            self.task = task(source, recipe)
            self.model = self.task.net
            self.net = cast(nn.Module, torch.compile(self.model)) if compiled else self.model
            rate, momentum, decay = recipe.learning_rate, recipe.momentum, recipe.weight_decay
            self.optimiser = torch.optim.SGD(self.model.parameters(), rate, momentum=momentum, weight_decay=decay)
            self.order = torch.zeros(source.rows, dtype=torch.int64, device=self.device)
            self.place = torch.zeros(1, dtype=torch.int64, device=self.device)
            self.loss = torch.zeros((), device=self.device)
            self._within = torch.arange(self.batch, device=self.device)
        self._part = 0.0  # of an epoch's loss, before the training was stopped in it
        self.x: Tensor | None = None
        self.y: Tensor | None = None

    @property
    def rows(self) -> int:
        """Of all steps together."""
        return sum(self._rows(step) for step in range(self.total))

    def steps(self) -> Iterator[int]:
        """Train, and say after each step how many rows it had."""
        done = 0 if self.saved is None else self.saved.load(self.model, self.optimiser, self.total)
        if done:
            self._resume()
            self.note(f"going on after step {done:,} of {self.total:,}")
            yield sum(self._rows(step) for step in range(done))
        if self.on_gpu:
            torch.cuda.synchronize(self.device)  # what the caller made on another stream is there
        for epoch in range(done // self.per_epoch, self.recipe.epochs):
            first = done % self.per_epoch if epoch == done // self.per_epoch else 0
            with self._own():
                self._begin(epoch, first)
            for place in range(first, self.per_epoch):
                step = epoch * self.per_epoch + place
                with self._own():
                    self._step(step)
                    if place + 1 == self.per_epoch:
                        self._end(epoch)
                    self._keep(step)
                yield self._rows(step)

    @property
    def _brief(self) -> bool:
        """Whether steps run in bfloat16."""
        return self.on_gpu and self.task.low_precision

    def _own(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def _begin(self, epoch: int, first: int) -> None:
        x, y = self.source.epoch(epoch)
        if self.x is None or self.y is None:  # a graph reads from fixed places
            kind = torch.bfloat16 if self._brief else torch.float32
            self.x = torch.empty(x.movedim(1, -1).shape, dtype=kind, device=self.device)  # channels last
            self.y = torch.empty(y.shape, device=self.device)
        self.x.copy_(x.movedim(1, -1))
        self.y.copy_(y)
        order = self.recipe.stream(f"epoch {epoch}").permutation(self.source.rows)
        self.order.copy_(order, non_blocking=True)
        self.place.fill_(first * self.batch)
        self.loss.fill_(self._part)
        self._part = 0.0
        self.model.train()
        for settings in self.optimiser.param_groups:
            settings["lr"] = self.recipe.rate(epoch)

    def _step(self, step: int) -> None:
        full = self._rows(step) == self.batch
        if self._graph is not None and full:
            self._graph.step()
        else:
            self.update(self._within if full else self._within[: self.last])

    def update(self, within: Tensor) -> None:
        """One step of the optimiser, on the rows from the current place on. Nothing waits for the device."""
        if self.x is None or self.y is None:
            return
        rows = self.order[self.place + within]
        net = self.net if len(rows) == self.batch else self.model
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._brief):
            loss = self.task.loss(net, self.x[rows].movedim(-1, 1), self.y[rows])
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.place += len(within)
        self.loss += loss.detach() * len(within)

    def _resume(self) -> None:
        """The curve up to here, and the loss of the epoch that was stopped."""
        if self.saved is not None and self.saved.measured:
            *self.curve, last = self.saved.measured
            self._part = float(last["part"])

    def _rows(self, step: int) -> int:
        return self.last if self.last and (step + 1) % self.per_epoch == 0 else self.batch

    def _end(self, epoch: int) -> None:
        loss = float(self.loss) / int(self.place)
        _check(loss, epoch + 1)
        found = self.measure(epoch + 1, self.model.eval())
        self.curve.append({"epoch": epoch + 1, "loss": loss, **found})

    def _keep(self, step: int) -> None:
        if self.saved is None or step + 1 == self.total:
            return
        stops = self.stop()
        if stops or self.saved.due():
            _check(float(self.loss), step // self.per_epoch + 1)
            inside = step % self.per_epoch + 1 < self.per_epoch
            self.saved.measured = [*self.curve, {"part": float(self.loss) if inside else 0.0}]
            self.saved.save(self.model, self.optimiser, step + 1)
        if stops:
            raise TrainingStopped(f"stopped after step {step + 1:,} of {self.total:,}; the state is kept")


class _Graph:
    """Full steps as a CUDA graph. It is recorded again when the rate falls, which is a part of it."""

    def __init__(self, training: ImageTraining, stream: torch.cuda.Stream) -> None:
        self.training, self.stream = training, stream
        self.before, self.rate = _BEFORE, math.nan
        self.graph: torch.cuda.CUDAGraph | None = None

    def step(self) -> None:
        training = self.training
        rate = training.optimiser.param_groups[0]["lr"]
        if self.before > 0:
            self.before -= 1
            training.update(training._within)
            return
        if self.graph is None or rate != self.rate:
            self.graph, self.rate = torch.cuda.CUDAGraph(), rate
            with torch.cuda.graph(self.graph, stream=self.stream):  # recorded, not run
                training.update(training._within)
        self.graph.replay()


def _check(loss: float, epoch: int) -> None:
    if not math.isfinite(loss):
        raise TrainingError(f"the loss is {loss} in epoch {epoch}: try a smaller learning rate")


@torch.no_grad()
def probabilities(model: ResNet18, x: Tensor, rows: int = 2048) -> Tensor:
    """(n, classes) of (n, colours, height, width), on its device."""
    parts = []
    for part in torch.split(x, rows):
        with torch.autocast(x.device.type, torch.bfloat16, enabled=x.device.type == "cuda"):
            scores = model(part.contiguous(memory_format=torch.channels_last))
        parts.append(torch.softmax(scores.float(), 1))
    return torch.cat(parts)


def averaged(model: ResNet18, encodings: Iterable[Tensor]) -> Tensor:
    """(n, classes) the mean of the probabilities of several encodings of the same images, (n, colours, h, w) each."""
    found = [probabilities(model, x) for x in encodings]
    return torch.stack(found).mean(0)
