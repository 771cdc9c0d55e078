"""The signs that a mask hides, as InstaHide's authors looked for them (§5.3, Figure 6): see `shared/demasking`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from mixveil.attacks.shared import model
from mixveil.attacks.shared.base import CannotAttackError
from mixveil.attacks.shared.demasking import Demasking, Imitation
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackKind, Guess, View
from mixveil.core.wording.notes import Note, note


@dataclass(frozen=True)
class Demask(Demasking):
    """The likelier sign of every value of the first release, each row by itself."""

    name: ClassVar[str] = "demask"
    kind: ClassVar[AttackKind] = "signs"
    needs: ClassVar[frozenset[str]] = frozenset({"public"})

    def cannot(self, view: View) -> Note | None:
        first = view.releases[0].encoder
        return super().cannot(view) if first.masked else note("attack-needs-mask", encoder=first.name)

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        if (why := self.cannot(view)) is not None:
            raise CannotAttackError(why)
        release = view.releases[0]
        network = self.networks(View((release,)), Imitation(view))[release.encoder]
        logits = network.logits(model.released(release).view(-1, *release.shape)).flatten(1)
        return Guess(signs=torch.where(logits > 0, 1, -1).to(torch.int8))
