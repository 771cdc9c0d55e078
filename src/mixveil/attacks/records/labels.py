"""What the labels show: both classes of each row, and how many records of each class the party has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from mixveil.attacks.shared.base import BaseAttack
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackKind, Guess, View


@dataclass(frozen=True)
class Labels(BaseAttack):
    """The classes with a share in a row's label; where there is only one, both sources are of that class."""

    name: ClassVar[str] = "labels"
    kind: ClassVar[AttackKind] = "labels"
    linear: ClassVar[bool] = False

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        payload = view.releases[0].payload
        y = payload.take(torch.arange(len(payload))).y
        shares, classes = y.topk(min(2, y.shape[1]), dim=1)
        second = torch.where(shares[:, -1] > 0, classes[:, -1], classes[:, 0])
        return Guess(labels=torch.stack([classes[:, 0], second], dim=1))
