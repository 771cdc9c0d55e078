"""The best linear attacker who has some of the records already: he subtracts them, and solves for the rest.

Known records leave the rows that they are in; their noise stays. The more neighbours of a record along the pairing are
known, the less covers it: who knows all others sees it in two rows under noise alone (`theory/bayes.known_risk`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mixveil import types
from mixveil.attacks import _model
from mixveil.attacks._model import Mixing
from mixveil.attacks.lmmse import row_noise, unmixed
from mixveil.errors import ArgumentError
from mixveil.keys import Stream
from mixveil.types import Guess, View


@dataclass(frozen=True)
class Known:
    """From all rows of all releases, with the pairing and some of the records known; those are given back."""

    name: ClassVar[str] = "known"
    needs: ClassVar[frozenset[str]] = frozenset({"traces", "known"})
    threat: ClassVar[str] = (
        "Has some of the records already, knows who was paired with whom, the weights, and how such images vary; takes "
        "what he has out of the rows and solves for the others."
    )

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        if view.known is None:
            raise ArgumentError("this attack needs known records")
        solver = Solver(view)
        _check(view.known, solver.mixings[0].records, view.releases[0].shape)
        return Guess(images=solver.images(view.known))


class Solver:
    """What does not depend on who is known is made once: an audit asks for many sets of known records."""

    def __init__(self, view: View) -> None:
        self.view, self.traces, self.prior = view, _model.traces_of(view), _model.prior_of(view)
        self.mixings = Mixing.of(self.traces)
        self.entries = [_model.entry_of(view, t, self.prior) for t in range(len(self.traces))]
        self.seen = [_model.coordinates(r, e, self.prior) for r, e in zip(view.releases, self.entries, strict=True)]

    def images(self, known: types.Known) -> Tensor:
        """(n, …) of the records that have rows."""
        n, images = len(self.seen[0]), known.images.double()
        inside = known.records < n
        unknown = torch.ones(n, dtype=torch.bool)
        unknown[known.records[inside]] = False
        found = torch.empty(n, *images.shape[1:], dtype=torch.float64)
        found[known.records[inside]] = images[inside]
        found[unknown] = self.prior.images(self.view, self.coordinates(known, unknown.nonzero()[:, 0]))
        return found

    def coordinates(self, known: types.Known, wanted: Tensor) -> Tensor:
        """(m, k) of the wanted ones among the records that are not known."""
        hidden = torch.ones(self.mixings[0].records, dtype=torch.bool)
        hidden[known.records] = False
        parts = [self._without(t, known, hidden) for t in range(len(self.traces))]
        place = hidden.cumsum(0) - 1
        if (
            len(parts) > 1
        ):  # one pairing is solved along its rings, which need all records; known ones have no tie there
            parts = [_shortened(*part, place, int(hidden.sum())) for part in parts]
            wanted = place[wanted]
        mixings, seen, noises = (list(column) for column in zip(*parts, strict=True))
        return unmixed(mixings, seen, noises, [e.gain for e in self.entries], self.prior.variance)[wanted]

    def _without(self, t: int, known: types.Known, hidden: Tensor) -> tuple[Mixing, Tensor, Tensor]:
        """Release t with the known records taken out: the mixing, the rows and their noise."""
        release, mixing, entry = self.view.releases[t], self.mixings[t], self.entries[t]
        entered = (release.encoder.prepare(known.images) - entry.offset) @ self.prior.basis
        full = entered.new_zeros(mixing.records, entered.shape[1])
        full[known.records] = entered
        left = Mixing(mixing.source, mixing.weight * hidden[mixing.source], mixing.records)
        noise = row_noise(release, mixing.weight, self.prior, entry, bent=left.weight)
        return left, self.seen[t] - mixing.rows(full), noise


def _check(known: types.Known, records: int, shape: tuple[int, ...]) -> None:
    if known.images.shape != (len(known.records), *shape):
        raise ArgumentError(
            f"known records need an image each of {shape}: {len(known.records)} have images of {known.images.shape}"
        )
    if len(wrong := known.records[(known.records < 0) | (known.records >= records)]):
        raise ArgumentError(f"known records must be numbers from 0 to {records - 1}, got {int(wrong[0])}")


def _shortened(
    mixing: Mixing, seen: Tensor, noise: Tensor, place: Tensor, records: int
) -> tuple[Mixing, Tensor, Tensor]:
    """Only the rows that hold something unknown, and only the unknown records."""
    rows = mixing.weight.ne(0).any(1)
    source = torch.where(mixing.weight[rows] != 0, place[mixing.source[rows]], 0)
    return Mixing(source, mixing.weight[rows], records), seen[rows], noise[rows]
