"""What an update shows of labels: how many records of each class the party trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mixveil.attacks.shared.label_counts import cannot_count, label_counts
from mixveil.attacks.shared.updates import UpdateAttack
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackKind, Guess, View
from mixveil.core.wording.notes import Note


@dataclass(frozen=True)
class UpdateLabels(UpdateAttack):
    """Counts of classes off the last dense layer, as `attacks.shared.label_counts` has it: exact for one record, and
    for small batches at weights that were not trained; else about right. An update is of a set, so nothing is said of
    an order."""

    name: ClassVar[str] = "update-labels"
    kind: ClassVar[AttackKind] = "labels"
    most_rows: ClassVar[int | None] = None

    def cannot(self, view: View) -> Note | None:
        return super().cannot(view) or cannot_count(view)

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        return Guess(counts=label_counts(view, self.target(view), stream))
