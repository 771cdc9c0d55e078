"""Which public images are in a row? As InstaHide's authors searched for them (§5.3, Figure 8): the row is demasked, and
every public image is ranked by how similar the two look.

SSIM compares place by place: it finds the very patches that were mixed in, and of whole images hardly those of which a
patch was cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from mixveil.attacks.shared import model
from mixveil.attacks.shared.alike import Comparison
from mixveil.attacks.shared.covers import covers_of, without_covers
from mixveil.attacks.shared.demasking import Demasking, Imitation, seen
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackKind, Guess, View
from mixveil.core.wording.notes import Note


@dataclass(frozen=True)
class DemaskSearch(Demasking):
    """SSIM of every row of the first release with every cover."""

    name: ClassVar[str] = "demask-search"
    kind: ClassVar[AttackKind] = "covers"
    needs: ClassVar[frozenset[str]] = frozenset({"covers"})

    def cannot(self, view: View) -> Note | None:
        return without_covers(view) or super().cannot(view)

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        release, covers = view.releases[0], covers_of(view)
        patches = covers.take(torch.arange(len(covers))).x
        networks = self.networks(View((release,)), Imitation(view)) if release.encoder.masked else {}
        rows = seen(model.released(release).view(-1, *release.shape), release.encoder, networks)
        return Guess(covers=torch.cat([alike for _, alike in Comparison.of(view).in_parts(rows, patches)]))
