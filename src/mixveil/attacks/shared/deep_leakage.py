"""Deep leakage from gradients (Zhu et al., 2019): the images whose gradient is, by squares, what a party sent.

Both attacks that do this, with labels unknown and with labels known, descend by L-BFGS on second derivatives of the
network. Those of ReLU are zero almost everywhere: behind it the descent often stops early. The authors put sigmoids in
its place, and took pooling out. Nothing is changed here: on networks with ReLU these attacks show less than is there,
and `invgrad` shows more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from mixveil.attacks.shared.updates import UpdateAttack, UpdateTarget
from mixveil.core import checks
from mixveil.core.randomness import Stream
from mixveil.core.types import OfUpdates, View
from mixveil.core.wording.notes import Note, note
from mixveil.features.stacked.local_steps import Rows, gradients

_TINY = 1e-30


@dataclass(frozen=True)
class DeepLeakage(UpdateAttack):
    """Descent by L-BFGS on the distance of gradients.

    Attributes:
        steps: Of L-BFGS, at most, each with a search along its line.
        restarts: From other noise, at most, while the distance is more than `enough`.
        enough: Of the squared size of the gradient: a start that comes so close is the last.
    """

    steps: int = 300
    restarts: int = 4
    enough: ClassVar[float] = 1e-6

    def __post_init__(self) -> None:
        checks.at_least("steps", self.steps, 1)
        checks.at_least("restarts", self.restarts, 0)

    def cannot(self, view: View) -> Note | None:
        why = super().cannot(view)
        settings = view.releases[0].envelope.settings
        if why or not isinstance(settings, OfUpdates) or settings.training is None:
            return why
        told = settings.training
        if told.optimiser != "sgd":
            return note("update-needs-sgd", optimiser=told.optimiser)
        if len(told.rates) != 1 or told.batch < told.rows:
            return note("update-of-several-steps", steps=len(told.rates), batch=told.batch, rows=told.rows)
        return None

    def closest(self, target: UpdateTarget, labels: Tensor | None, stream: Stream) -> tuple[Tensor, Tensor]:
        """(rows, *shape) images and (rows, classes) their soft labels, of the first party: the closest of all starts.
        labels: (rows,) where they are known; else they are looked for as well."""
        found = None
        for number in range(1 + self.restarts):
            drawn = stream.fork(f"start {number}")
            images = drawn.uniform(1, target.rows, *target.shape) * (target.high - target.low) + target.low
            scores = drawn.normal(1, target.rows, target.classes)
            now = self._descended(target, images.to(target.device), scores.to(target.device), labels)
            if found is None or now[0] < found[0]:
                found = now
            if found[0] < self.enough:
                break
        return (found or now)[1:]

    def _descended(
        self, target: UpdateTarget, images: Tensor, scores: Tensor, labels: Tensor | None
    ) -> tuple[float, Tensor, Tensor]:
        """The distance, images and soft labels at the end. A descent that leaves all numbers is infinitely far."""
        weights = {name: value.double() for name, value in target.before.items()}
        wanted = {name: value.double() for name, value in target.gradient.items()}
        size = sum(value.square().sum() for value in wanted.values()) + _TINY
        known = None if labels is None else torch.nn.functional.one_hot(labels, target.classes).double()[None]
        images, scores = images.clone().requires_grad_(), scores.clone().requires_grad_()
        looked_for = [images, scores] if known is None else [images]

        def soft() -> Tensor:
            return scores.softmax(-1) if known is None else known

        def distance() -> Tensor:
            made = gradients(target.net, weights, Rows(images, soft()), differentiable=True)
            return sum((made[name] - wanted[name]).square().sum() for name in made) / size  # type: ignore[return-value]

        def closure() -> Tensor:
            apart = distance()
            for value, slope in zip(looked_for, torch.autograd.grad(apart, looked_for), strict=True):
                value.grad = slope.contiguous()
            return apart.detach()

        # The tolerances are far below what float32 keeps of a gradient.
        settings: dict[str, Any] = {
            "tolerance_grad": 1e-12,
            "tolerance_change": 1e-16,
            "line_search_fn": "strong_wolfe",
        }
        optimiser = torch.optim.LBFGS(looked_for, max_iter=self.steps, max_eval=4 * self.steps, **settings)
        optimiser.step(closure)  # type: ignore[no-untyped-call]
        apart = float(distance().detach())
        bad = not (math.isfinite(apart) and bool(images.isfinite().all()))
        found = torch.zeros_like(images) if bad else images.detach()
        return math.inf if bad else apart, found[0], soft().detach()[0].nan_to_num()
