"""Inverting gradients (Geiping et al., 2020): the smooth images whose update points where the party's update points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.attacks.shared.label_counts import cannot_count, labels_of
from mixveil.attacks.shared.matching import Descent, Found, descend
from mixveil.attacks.shared.updates import UpdateAttack, UpdateTarget
from mixveil.core import checks
from mixveil.core.randomness import Stream
from mixveil.core.types import Guess, View
from mixveil.core.wording.notes import Note


@dataclass(frozen=True)
class InvGrad(UpdateAttack):
    """Descent as `attacks.shared.matching` has it, from several starts of noise: the one that fits best is kept. Labels
    are the view's, and images in their order; else they are read off the update, and images sorted by class. It does
    not know of Fed-AugMix.

    Attributes:
        tv: ζ. The paper of Fed-AugMix has 1e-6 and 2,500 steps; more finds better images of digits and photographs.
        coarse: The share of steps that take local steps as one: quicker, and worse where rates are high.
    """

    name: ClassVar[str] = "invgrad"
    steps: int = 1000
    restarts: int = 2
    rate: float = 0.1
    tv: float = 1e-3
    coarse: float = 0.0

    def __post_init__(self) -> None:
        checks.at_least("restarts", self.restarts, 1)
        self.descent  # noqa: B018, it checks itself

    @property
    def descent(self) -> Descent:
        return Descent(self.steps, self.rate, self.tv, coarse=self.coarse)

    def cannot(self, view: View) -> Note | None:
        return super().cannot(view) or (cannot_count(view) if view.labels is None else None)

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        target = self.target(view)
        labels = labels_of(view, target, stream.fork("labels"))
        y = torch.nn.functional.one_hot(labels, target.classes).float()[None].to(target.device)
        return Guess(images=self.found(target, y, stream).images[0].double().cpu())

    def found(self, target: UpdateTarget, y: Tensor, stream: Stream) -> Found:
        """Of every party, with soft labels y (k, b, classes): the best of all starts, which come one after another, as
        weights of many parties at once do not stay in a processor's cache."""
        seen = without_views(target)
        tries = [descend(seen, start, y, self.descent) for start in _starts(target, self.restarts, stream)]
        return best(tries)


def without_views(target: UpdateTarget) -> UpdateTarget:
    """As if parties did not use Fed-AugMix."""
    return replace(target, training=replace(target.training, augmix=None))


def best(tries: Sequence[Found]) -> Found:
    """Of several tries for each party, the one that fits best."""
    misfit, images = torch.stack([one.misfit for one in tries]), torch.stack([one.images for one in tries])
    which = misfit.argmin(0)
    party = torch.arange(misfit.shape[1], device=which.device)
    return Found(images[which, party], misfit[which, party])


def _starts(target: UpdateTarget, times: int, stream: Stream) -> Tensor:
    """(times, k, rows, …) noise about the middle of the range."""
    drawn = stream.fork("starts").normal(times, target.clients, target.rows, *target.shape).float()
    middle, spread = (target.low + target.high) / 2, (target.high - target.low) / 4
    return target.inside((middle + spread * drawn).to(target.device))
