"""The best linear attacker who has some of the records already: they subtract these and solve for the rest.

Known records leave the rows that they are in; their noise stays. The more neighbours of a record along the pairing are
known, the less covers it: an attacker who knows all other records sees it in two rows under noise alone
(`theory/bayes.known_risk`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from mixveil.attacks.records.lmmse import Columns, row_noises, solved_along, unmixed
from mixveil.attacks.shared import model
from mixveil.attacks.shared.base import BaseAttack, mixes_covers
from mixveil.attacks.shared.model import MixingMatrix
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackBound, AttackKind, Guess, KnownRecords, View
from mixveil.core.wording.notes import Note


@dataclass(frozen=True)
class KnownRecordsAttack(BaseAttack):
    """From all rows of all releases, with the pairing and some of the records known; those are given back."""

    name: ClassVar[str] = "known"
    kind: ClassVar[AttackKind] = "reconstruction"
    needs: ClassVar[frozenset[str]] = frozenset({"traces", "known"})
    bound: ClassVar[AttackBound | None] = "linear-known"

    def cannot(self, view: View) -> Note | None:
        return super().cannot(view) or mixes_covers(view)

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        if view.known is None:
            raise ArgumentError("this attack needs known records")
        solver = Solver(view)
        _check(view.known, solver.mixings[0].records, view.releases[0].shape)
        return Guess(images=solver.images(view.known))

    def knowing(self, view: View, *, stream: Stream) -> Callable[[KnownRecords, Tensor], Tensor]:
        solver = Solver(view)  # what does not depend on the known records is made once
        return solver.wanted


class Solver:
    """The linear problem of a view, to be solved for one set of known records after another."""

    def __init__(self, view: View) -> None:
        self.view, self.traces, self.prior = view, model.traces_of(view), model.prior_of(view)
        self.mixings = MixingMatrix.of(self.traces)
        self.entries = [model.entry_of(view, t, self.prior) for t in range(len(self.traces))]
        self.seen = [model.coordinates(r, e, self.prior) for r, e in zip(view.releases, self.entries, strict=True)]

    def images(self, known: KnownRecords) -> Tensor:
        """(n, …) of the records that have rows."""
        n, images = len(self.seen[0]), known.images.double()
        inside = known.records < n
        unknown = torch.ones(n, dtype=torch.bool)
        unknown[known.records[inside]] = False
        found = torch.empty(n, *images.shape[1:], dtype=torch.float64)
        found[known.records[inside]] = images[inside]
        found[unknown] = self.wanted(known, unknown.nonzero()[:, 0])
        return found

    def wanted(self, known: KnownRecords, wanted: Tensor) -> Tensor:
        """(m, …) of the wanted ones among the records that are not known."""
        return self.prior.images(self.view, self.coordinates(known, wanted))

    def coordinates(self, known: KnownRecords, wanted: Tensor) -> Tensor:
        """(m, k) of the wanted ones."""
        if not len(wanted):
            return self.seen[0][:0]
        hidden = torch.ones(self.mixings[0].records, dtype=torch.bool)
        hidden[known.records] = False
        parts = [self._without(t, known, hidden) for t in range(len(self.traces))]
        mixings, seen, noises = (list(column) for column in zip(*parts, strict=True))
        solve = solved_along if len(parts) == 1 and self.mixings[0].paired else unmixed
        found = solve(mixings, seen, noises, [e.gain for e in self.entries], self.prior.variance)
        place = _places(hidden)[wanted]
        return found if torch.equal(place, torch.arange(len(found))) else found[place]

    def _without(self, t: int, known: KnownRecords, hidden: Tensor) -> tuple[MixingMatrix, Columns, Columns]:
        """Release t without what is known: the mixing of unknown records, the rows that hold any, and their noise."""
        release, entry, mixing = self.view.releases[t], self.entries[t], self.mixings[t]
        rows = hidden[mixing.source].any(1)
        source, weight, taken = mixing.source[rows], mixing.weight[rows], []
        number = torch.zeros(len(hidden), dtype=torch.int64)
        number[known.records] = torch.arange(len(known.records))
        for place, share in zip(source.T, weight.T, strict=True):
            given = (~hidden[place]).nonzero()[:, 0]
            held = self._entered(t, known.images, number[place[given]])
            taken.append((given, held.mul_(share[given, None])))
        left = weight * hidden[source]
        noise = row_noises(release, weight, self.prior, entry, bent=left)
        places = torch.where(hidden[source], _places(hidden)[source], -1)
        return MixingMatrix(places, left, int(hidden.sum())), _Rest(self.seen[t], rows.nonzero()[:, 0], taken), noise

    def _entered(self, t: int, images: Tensor, index: Tensor) -> Tensor:
        """(m, k) of some images, as they enter release t."""
        release, entry, directions = self.view.releases[t], self.entries[t], self.prior.directions
        found = self.seen[t].new_empty(len(index), self.seen[t].shape[1])
        for part in model.in_parts(len(index), found.shape[1]):
            found[part] = directions.coordinates(release.encoder.prepare(images[index[part]]) - entry.offset)
        return found


class _Rest(NamedTuple):
    """(m, k) some rows of a release without what is known of them, made of some columns at a time.

    Attributes:
        seen: (n, k) the whole release.
        rows: (m,) their numbers in it.
        taken: Places among the m rows, and what is taken away there.
    """

    seen: Tensor
    rows: Tensor
    taken: list[tuple[Tensor, Tensor]]

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.rows), self.seen.shape[1]

    def __getitem__(self, index: tuple[slice, slice]) -> Tensor:  # type: ignore[override]
        rows, columns = index
        found = self.seen[:, columns][self.rows]
        for place, known in self.taken:
            found[place] -= known[:, columns]
        return found[rows]


def _places(hidden: Tensor) -> Tensor:
    """(records,) the number of each hidden record among them; of the others it means nothing."""
    return hidden.cumsum(0) - 1


def _check(known: KnownRecords, records: int, shape: tuple[int, ...]) -> None:
    if known.images.shape != (len(known.records), *shape):
        raise ArgumentError(
            f"known records need an image each of {shape}: {len(known.records)} have images of {known.images.shape}"
        )
    if len(wrong := known.records[(known.records < 0) | (known.records >= records)]):
        raise ArgumentError(f"known records must be numbers from 0 to {records - 1}, got {int(wrong[0])}")
