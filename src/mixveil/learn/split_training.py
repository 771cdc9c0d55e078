"""Training both halves of a split network together, with a loss that adjusts how far representations lie apart:

    L = cross-entropy + λ · penalty(h(x), labels)

where the penalty is MixCon's or UniCon's (`theory.separability`), or none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from mixveil.core.checkpoint import Saved
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError, TrainingError
from mixveil.core.first_weights import started
from mixveil.core.types import Batch
from mixveil.learn.epochs import EpochSource, moved
from mixveil.learn.image_training import ImageTraining, Measure, SgdRecipe, Task
from mixveil.theory import separability

Penalty = Literal["none", "mixcon", "unicon"]


@dataclass(frozen=True)
class SplitRecipe(SgdRecipe):
    """How a split network is trained.

    Attributes:
        penalty: On how far representations lie apart.
        weight: Its weight λ.
        beta: β of MixCon, which keeps representations from falling together.
        normalised: Whether the penalty looks at representations that are scaled to norm 1, as the paper does in
            practice. What the client sends is not scaled.
        augmented: Whether images are moved by up to four pixels and mirrored, differently in every epoch.
    """

    epochs: int = 20
    batch: int = 64
    learning_rate: float = 0.01
    weight_decay: float = 0.0
    penalty: Penalty = "mixcon"
    weight: float = 1.0
    beta: float = 1e-4
    normalised: bool = True
    augmented: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.penalty not in get_args(Penalty):
            raise ArgumentError(f"penalty must be one of {', '.join(get_args(Penalty))}, got {self.penalty!r:.60}")
        for name, value in (("weight", self.weight), ("beta", self.beta)):
            if isinstance(value, bool | str) or not 0 <= value < math.inf:
                raise ArgumentError(f"{name} must be 0 or positive, and finite, got {value!r:.60}")

    def loss(self, h: Tensor, labels: Tensor) -> Tensor | None:
        """λ times the penalty of representations (m, …) with class numbers (m,); None where there is none."""
        if self.penalty == "none" or self.weight == 0:
            return None
        if self.penalty == "unicon":
            return self.weight * separability.unicon(h, labels, normalised=self.normalised)
        return self.weight * separability.mixcon(h, labels, self.beta, normalised=self.normalised)


class SplitNetwork(nn.Module):
    """g ∘ h."""

    def __init__(self, client: nn.Sequential, server: nn.Sequential) -> None:
        super().__init__()
        self.client, self.server = client, server

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.server(self.client(x))
        return scores


class LabelledRows:
    """(n, …) values in memory with class numbers (n,), the same in every epoch, or images that are moved and mirrored
    before each by draws of their own."""

    def __init__(self, x: Tensor, labels: Tensor, classes: int, augment: DeviceStream | None = None) -> None:
        if augment is not None and x.dim() != 4:
            raise ArgumentError(f"only images can be moved and mirrored, got rows of {tuple(x.shape[1:])}")
        self.rows, self.classes, self.device = len(x), classes, x.device
        self._x, self._y, self._augment = x, one_hot(labels.to(x.device), classes).float(), augment

    def epoch(self, number: int) -> Batch:
        if self._augment is None:
            return Batch(self._x, self._y)
        self._augment.restart(number)
        return Batch(moved(self._x, self._augment), self._y)


def begun(
    client: nn.Sequential,
    server: nn.Sequential,
    x: Tensor,
    labels: Tensor,
    classes: int,
    recipe: SplitRecipe,
    *,
    start: Callable[[nn.Module, DeviceStream, torch.device], nn.Module] = started,
    saved: Saved | None = None,
    measure: Measure = lambda epoch, model: {},
    note: Callable[[str], None] = lambda text: None,
    stop: Callable[[], bool] = lambda: False,
) -> ImageTraining:
    """A training of both halves in place, on (n, …) values with class numbers (n,), on their device: its `steps` train.
    First weights are drawn again. The other arguments are those of `image_training.fit_images`.

    start: Draws first weights, as `core.first_weights.started` does.
    """
    augment = DeviceStream(recipe.stream("augmentation")) if recipe.augmented else None

    def task(source: EpochSource, _: SgdRecipe) -> Task:
        draws = DeviceStream(recipe.stream("first weights"))
        net = start(SplitNetwork(client, server), draws, source.device)
        return Task(net, lambda net, rows, y: _loss(net, rows, y, recipe), low_precision=False)

    source = LabelledRows(x, labels, classes, augment)
    return ImageTraining(source, recipe, task=task, saved=saved, measure=measure, note=note, stop=stop)


def ended(training: ImageTraining) -> list[dict[str, Any]]:
    """The learning curve of a training that went through all its steps; its network is in eval mode then. One that is
    not finite is refused."""
    training.model.eval()
    if not all(bool(tensor.isfinite().all()) for tensor in training.model.state_dict().values()):
        raise TrainingError("the trained halves are not finite: use a smaller learning rate or weight")
    return training.curve


def _loss(net: nn.Module, x: Tensor, y: Tensor, recipe: SplitRecipe) -> Tensor:
    h = net.get_submodule("client")(x)
    loss = cross_entropy(net.get_submodule("server")(h), y)
    penalty = recipe.loss(h, y.argmax(1))
    return loss if penalty is None else loss + penalty
