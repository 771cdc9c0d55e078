"""What the breaks of InstaHide share: from rows to the records of every row and their weights, stage by stage."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from mixveil.attacks.shared import training
from mixveil.attacks.shared.base import CannotAttackError
from mixveil.attacks.shared.breaks.clusters import Clusters, clusters, common_class, in_order
from mixveil.attacks.shared.breaks.comparing import Comparer
from mixveil.attacks.shared.breaks.folded import FoldedRows
from mixveil.attacks.shared.breaks.prototypes import Placed, alike_in_places, label_weights, placed
from mixveil.attacks.shared.breaks.sign_field import PixelPrior
from mixveil.attacks.shared.demasking import Demasking, Imitation
from mixveil.attacks.shared.pool import Pool, out_of_order
from mixveil.attacks.shared.stages import STAGES, Oracle, Stage, Stages
from mixveil.attacks.shared.whitening import noise_of
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackKind, Encoder, Guess, View
from mixveil.core.wording.notes import Note, note

MOST_ROWS = 10_000
"""Rows of all releases together: every row is compared with every other."""

_MOST_VALUES = 1 << 26  # of all rows: several times as many are held at once
_LARGEST = 1e9  # of a value: squares of larger ones are no numbers any more, in float32
_GIVEN = 12  # rows of a record that are given, where clusters are


class Linked(NamedTuple):
    """What a break knows of rows.

    Attributes:
        alike: (m, m) how alike rows are.
        clusters: (n, s) some rows of every record.
        classes: (n,) of the records.
        sources: (m, s) the records of each row; −1 for none.
        weights: (m, s) theirs.
        moves: (m, s, 3) how each was moved before it was mixed.
    """

    alike: Tensor
    clusters: Tensor
    classes: Tensor
    sources: Tensor
    weights: Tensor
    moves: Tensor


class Recovered(NamedTuple):
    """images: (n, …) the records, in the data's own values; sources: (m, s) the records of each row, as far as they are
    known in the end."""

    images: Tensor
    sources: Tensor


@dataclass(frozen=True)
class Break(Demasking):
    """A break of InstaHide. oracle: the truth that some stages are given."""

    kind: ClassVar[AttackKind] = "reconstruction"
    needs: ClassVar[frozenset[str]] = frozenset({"public"})
    undoes_moves: ClassVar[bool] = False
    oracle: Oracle | None = None

    def __post_init__(self) -> None:
        """Refuse truth that no stage would take."""
        for stage in ("weights", "moves"):
            if self.given(stage) and not self.given("sources"):
                raise ArgumentError(f"given = {stage}: they are of the records of a row; give sources too")
        if self.given("moves") and not self.undoes_moves:
            raise ArgumentError(f"given = moves: the attack {self.name} does not undo moves")

    def cannot(self, view: View) -> Note | None:
        if len({release.encoder for release in view.releases}) > 1:
            return note("attack-needs-one-encoder")
        rows, values = sum(len(release.payload) for release in view.releases), math.prod(view.releases[0].shape)
        if rows > (most := min(MOST_ROWS, _MOST_VALUES // values)):
            return note("attack-needs-fewer-rows", rows=rows, most=most)
        return out_of_order(view) or super().cannot(view)

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        work = Work(self, view)
        if not bool((work.pool.x.abs() < _LARGEST).all()) or not bool((work.pool.y > 0).any(1).all()):
            raise CannotAttackError(note("attack-needs-plain-rows"))
        linked = work.linked()
        images, sources = self.recovered(work, linked)
        return Guess(images=images, sources=sources, alike=linked.alike)

    @abstractmethod
    def recovered(self, work: Work, linked: Linked) -> Recovered:
        """What comes out in the end."""

    def given(self, stage: Stage) -> bool:
        return self.oracle is not None and self.oracle.knows(stage)


class Work:
    """One run of a break on a view: rows, public images, networks, and the stages that are kept."""

    def __init__(self, attack: Break, view: View) -> None:
        self.attack, self.view, self.pool, self.known = attack, view, Pool.of(view), Imitation(view)
        self.encoder: Encoder = view.releases[0].encoder
        self.reach = self.encoder.moved if attack.undoes_moves else 0
        about, self.stream = self.known.about("rows", attack, self.encoder, **self._settings())
        self._stages = Stages(attack.name, about, attack.cache)

    def stage(self, name: str, decide: Collection[Stage], make: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """The tensors of a stage, kept or made now. decide: the stages on which the truth, if given, decides on it."""
        oracle = self.attack.oracle
        told = None if oracle is None else oracle.about(decide)
        return self._stages(name, make, reach=self.reach, oracle=told)

    def kept(self, make: Callable[[], Recovered]) -> Recovered:
        """The last stage, kept or made now."""
        return Recovered(**self.stage(f"images by {self.attack.name}", STAGES, lambda: make()._asdict()))

    def _settings(self) -> dict[str, Any]:
        pool = self.pool
        held = [pool.x, pool.y] if pool.own is None else [pool.x, pool.y, pool.own]
        return {
            "rows": training.digest(*held),
            "records": pool.records,
            **training.arithmetic(),
        }

    @property
    def rows(self) -> Tensor:
        """(m, c, h, w) as released."""
        return self.pool.x.view(-1, *self.pool.shape)

    @property
    def truth(self) -> Oracle:
        """What the oracle says; of other rows it says nothing."""
        oracle = self.attack.oracle
        if oracle is None or len(oracle.sources) != len(self.pool.x):
            raise CannotAttackError(note("attack-oracle-of-other-rows"))
        return oracle

    def linked(self) -> Linked:
        """All stages up to the records of every row, and their weights."""
        noise, reach = noise_of(self.view), self.reach
        comparer = Comparer(self.attack, self.encoder, self.pool.shape, self.known, noise, in_places=reach > 0)
        alike = self.stage("alike", STAGES[:1], lambda: {"alike": self._alike(comparer)})["alike"]
        found = Clusters(**self.stage("clusters", STAGES[:3], lambda: self._clusters(alike)._asdict()))
        told = Placed(**self.stage("sources", (*STAGES[:3], "moves"), lambda: self._placed(comparer, found)._asdict()))
        weights = label_weights(told.sources, self.pool.y, found.classes)
        if self.attack.given("weights"):
            weights = _true_weights(told.sources, self.truth, self.pool.records)  # sources are given too
        return Linked(alike, *found, told.sources, weights, told.moves)

    def logits(self, x: Tensor) -> Tensor | None:
        """(m, d) of a positive sign for every value of rows (m, d); None where no signs are hidden."""
        if not self.encoder.masked:
            return None
        network = self.attack.networks(View(self.view.releases[:1]), self.known)[self.encoder]
        return network.logits(x.view(-1, *self.pool.shape)).flatten(1)

    def folded(self, x: Tensor, sources: Tensor, weights: Tensor, *, ordered: bool) -> FoldedRows:
        """Rows (m, d) as a linear system with hidden signs. ordered: whether a row's own record comes first."""
        encoder, masked = self.encoder, self.encoder.masked
        prior, rest = self.entering
        noise = noise_variance(encoder, weights, ordered=ordered)
        return FoldedRows(x.abs() if masked else x, self.logits(x), sources, weights, noise, rest, prior)

    @cached_property
    def entering(self) -> tuple[PixelPrior, Tensor]:
        """What records are like as they enter a mixture, by public images; and (d,) the mean of covers."""
        z = self.encoder.prepare(self.known.learnt)
        rest = self.encoder.prepare(self.known.covers).mean(0) if self.encoder.covers else torch.zeros(z.shape[1])
        return PixelPrior.of(z), rest

    @property
    def _plain(self) -> Tensor | None:
        """(m,) the only record of each row, where rows hold one that their order tells: no network needs to."""
        return self.pool.own if self.pool.private == 1 and not self.reach else None

    def _alike(self, comparer: Comparer) -> Tensor:
        if (own := self._plain) is not None:
            return (own[:, None] == own).float()
        if self.attack.given("alike"):
            held = (_held(self.truth, self.pool.records) > 0).float()
            return (held @ held.T > 0).float()
        alike = alike_in_places(comparer.maps("pairs", self.rows), self.reach).cpu()
        shown = (self.pool.y > 0).float()
        return torch.where(shown @ shown.T > 0, alike, alike.min())  # records of one class are what labels agree in

    def _clusters(self, alike: Tensor) -> Clusters:
        pool = self.pool
        if pool.own is not None:
            return in_order(pool.own, pool.y, pool.records)
        if self.attack.given("clusters") or self.attack.given("sources"):  # records are numbered as the truth does
            held = _held(self.truth, pool.records)
            rows = held.topk(min(_GIVEN, int((held > 0).sum(0).min())), dim=0).indices.T
            return Clusters(rows, common_class(pool.y, rows))
        return clusters(alike.to(training.fastest()), pool.y, pool.records, pool.private)

    def _placed(self, comparer: Comparer, found: Clusters) -> Placed:
        pool, sources = self.pool, self.truth.sources if self.attack.given("sources") else None
        if sources is not None and (self.attack.given("moves") or not self.reach):
            none = torch.zeros(*sources.shape, 3, dtype=torch.int64)
            return Placed(sources, none if self.truth.moves is None or not self.reach else self.truth.moves.long())
        if (own := self._plain) is not None:
            return Placed(own[:, None].clone(), torch.zeros(len(own), 1, 3, dtype=torch.int64))
        maps = comparer.maps("prototypes", self.rows)
        return placed(maps, pool.y, found, pool.private, own=pool.own, reach=self.reach, sources=sources)


def noise_variance(encoder: Encoder, weights: Tensor, *, ordered: bool) -> Tensor:
    """(m,) of the noise in one value of rows with these weights (m, s). Where it is not known which record is a row's
    own, both orders count half."""
    if encoder.law == "none":
        return torch.zeros(len(weights), dtype=torch.float64)
    orders = [weights] if ordered else [weights, weights.flip(1)]
    return torch.stack([encoder.deviation(order).double().square() for order in orders]).mean(0)


def _held(oracle: Oracle, records: int) -> Tensor:
    """(m, n) the true weight of every record in every row."""
    there = oracle.sources >= 0
    held = torch.zeros(len(there), records + 1, dtype=torch.float64)
    held.scatter_add_(1, oracle.sources.masked_fill(~there, records), oracle.weights.double())
    return held[:, :records]


def _true_weights(sources: Tensor, oracle: Oracle, records: int) -> Tensor:
    """(m, s) the true weights of the records of each row, (m, s)."""
    there = sources >= 0
    twice = (sources[:, :, None] == sources[:, None, :]).sum(2)  # a row may hold a record two times
    return torch.where(there, _held(oracle, records).gather(1, sources.clamp(min=0)) / twice, 0)
