"""Know nothing: every record is guessed to be the mean. An attack that does not beat this learned nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mixveil.attacks.shared import model
from mixveil.attacks.shared.base import BaseAttack
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackKind, Guess, View


@dataclass(frozen=True)
class KnowNothing(BaseAttack):
    """The mean of public data, or else of the release."""

    name: ClassVar[str] = "prior"
    kind: ClassVar[AttackKind] = "prior"
    linear: ClassVar[bool] = False

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        prior = model.prior_of(view)
        n = len(view.releases[0].payload)
        return Guess(images=prior.mean.view(view.releases[0].shape).expand(n, *view.releases[0].shape))
