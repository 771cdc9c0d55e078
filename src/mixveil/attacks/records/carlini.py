"""The break of Carlini et al. 2021 ("Is private learning possible with instance encoding?"), end to end.

1. Absolute values: random signs hide nothing else.
2. A network says how alike every two rows are; rows of one record are dense parts of that graph (`comparing`,
   `clusters`).
3. A second network compares every row with the rows of each record; the cheapest assignment that labels agree with says
   which records are in which rows (`prototypes`, `assignment`).
4. Labels show the weights, in equal parts where two records are of one class.
5. All rows together are a noisy linear system with hidden signs, in which public images are noise (`folded`).
6. Colours are set right by what the same recovery does to public images (`recolour`).

What differs from the published attack is said in these modules: rows pass networks once, not in pairs; the system is
solved by its likelihood, from demasked rows. Where the order of rows shows which of them are of one record, as in
several releases of the same data, step 2 is not needed. Where nothing is masked, the same steps solve plain mixtures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from mixveil.attacks.shared.breaks.breaking import Break, Linked, Recovered, Work
from mixveil.attacks.shared.breaks.encodings import encodings
from mixveil.attacks.shared.breaks.folded import solved
from mixveil.attacks.shared.breaks.recolour import recoloured
from mixveil.attacks.shared.breaks.refining import refined

_TRIED = 100  # public images, at most, on which colours are learned
_ROWS = 5000
_PAIR = 2


@dataclass(frozen=True)
class Carlini(Break):
    """Every record, from all rows of all releases together."""

    name: ClassVar[str] = "carlini"

    def recovered(self, work: Work, linked: Linked) -> Recovered:
        return work.kept(lambda: self._recovered(work, linked))

    def _recovered(self, work: Work, linked: Linked) -> Recovered:
        pool, stream = work.pool, work.stream.fork("solved")
        rows = work.folded(pool.x, linked.sources, linked.weights, ordered=pool.own is not None)
        if self.given("signs") and work.truth.signs is not None:
            rows = replace(rows, size=pool.x.abs() * work.truth.signs, logits=None)
        if pool.private == _PAIR and not self.given("sources"):
            rows = refined(rows, pool.y, linked.classes, pool.own, stream.fork("refined"))
        found = work.encoder.restore(solved(rows, pool.records, stream)).view(-1, *pool.shape)
        return Recovered(recoloured(found, *self._tried(work), work.stream.fork("colours")), rows.sources)

    def _tried(self, work: Work) -> tuple[Tensor, Tensor]:
        """Public images that were recovered in the same way from as many encodings, and these images themselves."""
        encoder, stream = work.encoder, work.stream.fork("tried")
        images = work.known.held[: min(_TRIED, work.pool.records)]
        times = max(1, min(len(work.pool.x) // work.pool.records, _ROWS // len(images)))
        made = encodings(encoder, work.known, images, times, stream)
        rows = work.folded(made.rows.flatten(1).double(), made.sources, made.weights, ordered=True)
        return encoder.restore(solved(rows, len(images), stream.fork("solved"))).view(images.shape), images
