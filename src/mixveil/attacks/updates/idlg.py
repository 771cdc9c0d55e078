"""iDLG (Zhao et al., 2020): the labels first, off the last layer, then images alone by L-BFGS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mixveil.attacks.shared.deep_leakage import DeepLeakage
from mixveil.attacks.shared.label_counts import cannot_count, labels_of
from mixveil.core.randomness import Stream
from mixveil.core.types import Guess, View
from mixveil.core.wording.notes import Note


@dataclass(frozen=True)
class IDLG(DeepLeakage):
    """Descent on dummy images with fixed labels, as `attacks.shared.deep_leakage` has it. Labels are the view's, and
    images in their order; else they are read off the update (`update-labels`), and images sorted by class. The
    authors' rule is for one record; for several this takes counts."""

    name: ClassVar[str] = "idlg"

    def cannot(self, view: View) -> Note | None:
        return super().cannot(view) or (cannot_count(view) if view.labels is None else None)

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        target = self.target(view)
        labels = labels_of(view, target, stream.fork("labels"))
        return Guess(images=target.inside(self.closest(target, labels, stream)[0]).cpu())
