"""What attacks on updates share: what a server sees of a party's part of a round.

The server sent the weights `before` and gets the weights `after`. It knows network, loss and learning rates; what it
does not know are the rows, and in which order they came. In a job it chose the seed of that order, too: which rows
share a step it could compute, and no attack here does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.attacks.shared import training
from mixveil.attacks.shared.base import BaseAttack, CannotAttackError
from mixveil.core.errors import ArgumentError
from mixveil.core.local_training import LocalTraining
from mixveil.core.types import AttackKind, OfUpdates, View
from mixveil.core.wording.notes import Note, note
from mixveil.features.stacked.network import Stacked

MOST_ROWS = 8
"""That one update is inverted to. It is where these attacks end, not what updates of more rows would hide: weights that
a server made for it show single rows of hundreds (Boenisch et al., 2021), and no attack here does that."""

_KIND = "updates"
_BEFORE, _AFTER = "before.", "after."


@dataclass(frozen=True)
class UpdateTarget:
    """What is attacked: k updates of parties that trained in the same way, on rows of their own.

    Attributes:
        before, after: (k, …) weights by name, on the device.
        net: The network.
        classes: How many it tells apart.
        shape: Of one row; low, high: the range of its values.
        labels: (k, rows) of each party's rows, where attackers know them.
    """

    before: Mapping[str, Tensor] = field(repr=False)
    after: Mapping[str, Tensor] = field(repr=False)
    net: Stacked
    training: LocalTraining
    classes: int
    shape: tuple[int, ...]
    low: float = 0.0
    high: float = 1.0
    labels: Tensor | None = None

    @property
    def clients(self) -> int:
        return len(next(iter(self.before.values())))

    @property
    def device(self) -> torch.device:
        return next(iter(self.before.values())).device

    @property
    def rows(self) -> int:
        """Of each party."""
        return self.training.rows

    @property
    def gradient(self) -> dict[str, Tensor]:
        """(k, …) by name: the weights' way over the sum of learning rates. Of one step of plain SGD it is the gradient;
        of several, about their mean."""
        total = sum(self.training.rates) or 1.0
        return {name: (self.before[name] - self.after[name]) / total for name in self.before}

    def inside(self, images: Tensor) -> Tensor:
        """Images with all values in their range."""
        return images.clamp(self.low, self.high)


class UpdateAttack(BaseAttack):
    """An attack on one party's update of one round. It needs the network, and how the party trained.

    Attributes:
        most_rows: Of a party that is attacked.
    """

    kind: ClassVar[AttackKind] = "reconstruction"
    payload: ClassVar[str] = _KIND
    linear: ClassVar[bool] = False
    most_rows: ClassVar[int | None] = MOST_ROWS

    def cannot(self, view: View) -> Note | None:
        missing = super().cannot(view)
        if missing is not None:
            return missing
        kinds = [release.envelope.kind for release in view.releases]
        if any(kind != _KIND for kind in kinds):
            return note("attack-needs-updates", kind=next(kind for kind in kinds if kind != _KIND))
        settings = view.releases[0].envelope.settings
        if not isinstance(settings, OfUpdates) or settings.training is None:
            return note("attack-needs-training")
        try:
            net = settings.network()
            if net is None:
                return note("attack-needs-layers")
            Stacked(net)
        except ArgumentError:
            return note("attack-needs-layers")
        if self.most_rows is not None and settings.training.rows > self.most_rows:
            return note("update-of-many-rows", rows=settings.training.rows, most=self.most_rows)
        return None

    def target(self, view: View, device: torch.device | None = None) -> UpdateTarget:
        """What is attacked, on the fastest device: the first release."""
        why = self.cannot(view)
        if why is not None:
            raise CannotAttackError(why)
        device = training.fastest() if device is None else device
        release = view.releases[0]
        settings = release.envelope.settings
        if not isinstance(settings, OfUpdates) or settings.training is None:
            raise ArgumentError("this attack needs an update whose training is stated")
        net = settings.network()
        if net is None:
            raise ArgumentError("this attack needs an update of a sequence of layers")
        tensors: Mapping[str, Tensor] = release.payload
        before, after = (
            {n.removeprefix(part): t[None].to(device) for n, t in tensors.items() if n.startswith(part)}
            for part in (_BEFORE, _AFTER)
        )
        labels = None if view.labels is None else view.labels[None].to(device)
        return UpdateTarget(
            before,
            after,
            Stacked(net),
            settings.training,
            len(release.classes),
            settings.shape,
            settings.low,
            settings.high,
            labels,
        )
