"""Several releases of the same records: average a record's own rows, and let inner products find it in other rows.

Huang et al. 2020, Section 2.1: rows that share an image average to it, as their other images differ. Where there is no
noise, an attacker gets further than an average. Inner products of a row with all averages, freed from what these share,
show which records it holds and with which weights; least squares over all rows then give the records. That is repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.attacks.shared import model
from mixveil.attacks.shared.base import BaseAttack, CannotAttackError
from mixveil.attacks.shared.whitening import centred, first_rows, whitening
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackKind, Guess, View
from mixveil.core.wording.notes import Note, note

_DRAWS = 400  # of the weights' law
_SOLVED = 3  # releases from which all rows are solved: two leave too much open (measured)
_ROUNDS = 3
_RIDGE = 0.05  # of the estimates' mean energy: what is left in them of other records
_DAMPING = 1e-3


@dataclass(frozen=True)
class InnerProductAverage(BaseAttack):
    """From all rows of all releases, row i being of record i in each. Under noise it stays at the average."""

    name: ClassVar[str] = "inner-product-average"
    kind: ClassVar[AttackKind] = "reconstruction"
    least_releases: ClassVar[int] = _SOLVED

    def cannot(self, view: View) -> Note | None:
        if len(view.releases) > 1 and any(release.label_epsilon is not None for release in view.releases):
            return note("attack-needs-row-order")
        return super().cannot(view)

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        model.check_linear(view)
        if len({len(release.payload) for release in view.releases}) != 1:
            raise CannotAttackError(note("attack-needs-equal-rows"))
        laws = [release.encoder.plan(_DRAWS, stream=stream.fork("law")).weight.double() for release in view.releases]
        if any(release.encoder.law != "none" for release in view.releases):
            return Guess(images=_under_noise(view, laws))
        return Guess(images=_without_noise(view, laws[0]))


def _under_noise(view: View, laws: list[Tensor]) -> Tensor:
    """(n, …) the best linear estimates from own rows alone, by directions: all else in a row counts as noise."""
    prior = model.prior_of(view)
    precision, parts = 1 / prior.variance, []
    for t, (release, law) in enumerate(zip(view.releases, laws, strict=True)):
        entry, own = model.entry_of(view, t, prior), float(law[:, 0].mean())
        others = (float(law.square().sum(1).mean()) - own**2) * entry.gain.square() * prior.variance
        noise = float(release.encoder.deviation(law).square().mean())
        rest = (others + noise + entry.spread).clamp(min=1e-9 * float(prior.variance.max()))
        precision = precision + (own * entry.gain).square() / rest
        parts.append((release, entry, own * entry.gain / rest))

    def of_rows(rows: slice) -> Tensor:
        told = [worth / precision * model.coordinates_of(r, entry, prior, rows) for r, entry, worth in parts]
        return torch.stack(told).sum(0) if len(told) > 1 else told[0]

    return model.images_by_rows(view, prior, of_rows)


def _without_noise(view: View, law: Tensor) -> Tensor:
    """(n, …) averages of own rows; then, of enough releases, the solution of all rows."""
    rows, encoder = first_rows(view), view.releases[0].encoder
    mean = torch.stack([x.mean(0) for x in rows]).mean(0)
    flat = centred(rows)
    space = whitening(flat, view.releases[0].shape)
    seen = space.coordinates(flat).view(len(rows), *rows[0].shape)
    own, share = float(law[:, 0].mean()), float(law.square().sum(1).mean())
    found = own * seen.sum(0) / (share + (len(rows) - 1) * own**2)
    if len(rows) >= _SOLVED and law.shape[1] > 1 and not encoder.covers:
        for _ in range(_ROUNDS):
            found = _solved(seen, _weights(seen, found, space.variance.sqrt(), law.shape[1]))
    return encoder.restore(space.back(found) + mean).view(-1, *view.releases[0].shape)


def _weights(seen: Tensor, found: Tensor, deviation: Tensor, sources: int) -> Tensor:
    """(T, n, n) what each row, (T, n, d) coordinates, holds of each record: its own, and the likeliest others."""
    white = found / deviation
    gram = white @ white.T
    gram.diagonal().add_(_RIDGE * float(gram.diagonal().mean()))
    inner = (seen / deviation) @ white.T
    told = torch.linalg.solve(gram, inner.flatten(0, 1).T).T.reshape(inner.shape).contiguous()
    ranked = told.clone()
    ranked.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    chosen = ranked.topk(min(sources, ranked.shape[2]), dim=2).indices
    kept = torch.zeros_like(told).scatter_(2, chosen, told.gather(2, chosen).clamp(min=0))
    return kept / kept.sum(2, keepdim=True).clamp(min=1e-9)


def _solved(seen: Tensor, weight: Tensor) -> Tensor:
    """(n, d) the records from all rows, by least squares."""
    flat = weight.flatten(0, 1)
    normal = flat.T @ flat
    normal.diagonal().add_(_DAMPING)
    solved: Tensor = torch.linalg.solve(normal, flat.T @ seen.flatten(0, 1))
    return solved
