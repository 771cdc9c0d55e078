"""Linkage and membership: is this image in the release, and in which row?

A record c is in two rows: its own, r, with weights w₁, w₂, and that of the record it is the partner of, p. In the
eigenbasis of the records' covariance (variances λ, noise variances ν):

    it is record r:   x̃_r ~ N(w₁c, w₂²λ + ν_r)  and  x̃_p ~ N(w₂c, w₁²λ + ν_p), independent
    it is not:        both around 0, with (w₁² + w₂²)λ + ν, and w₁w₂λ between them: they share a record

The log-likelihood ratios of all candidates and rows are a few matrix products. Plain inner products fail: natural
images share their low frequencies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.attacks.shared import model
from mixveil.attacks.shared.base import BaseAttack, mixes_covers
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackBound, AttackKind, Guess, Release, Trace, View
from mixveil.core.wording.notes import Note

STRONG = math.log(20)  # evidence that no look-alike gives by chance more than once in 20


@dataclass(frozen=True)
class Linkage(BaseAttack):
    """Which row is a candidate's own? The weights and the pairing are known; ratios add over releases."""

    name: ClassVar[str] = "linkage"
    kind: ClassVar[AttackKind] = "linkage"
    needs: ClassVar[frozenset[str]] = frozenset({"traces", "candidates"})

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        return Guess(links=_ratios(view))


@dataclass(frozen=True)
class Membership(BaseAttack):
    """Is a candidate in the releases at all? How far the row that fits it best stands out among all rows, and how much
    likelier the rows are with it if that is strong evidence. A candidate is compared with itself in other rows, never
    with other candidates: what it looks like must not count."""

    name: ClassVar[str] = "membership"
    kind: ClassVar[AttackKind] = "membership"
    needs: ClassVar[frozenset[str]] = frozenset({"traces", "candidates"})
    bound: ClassVar[AttackBound | None] = "gdp"

    def cannot(self, view: View) -> Note | None:
        return super().cannot(view) or mixes_covers(view)

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        ratios = _ratios(view)
        stands_out = (ratios.amax(1) - ratios.mean(1)) / ratios.std(1).clamp(min=1e-12)
        evidence = ratios.logsumexp(1) - math.log(ratios.shape[1])
        return Guess(scores=stands_out + (evidence - STRONG).clamp(min=0))


def _ratios(view: View) -> Tensor:
    """(c, n) log-likelihood ratios of each candidate being each record, from all releases."""
    if view.candidates is None:
        raise ArgumentError("this attack needs candidates")
    prior = model.prior_of(view)
    total = torch.zeros(1, dtype=torch.float64)
    for t, (release, trace) in enumerate(zip(view.releases, model.traces_of(view), strict=True)):
        entry = model.entry_of(view, t, prior)
        asked = (release.encoder.prepare(view.candidates) - entry.offset) @ prior.basis
        rows = model.coordinates(release, entry, prior)
        total = total + _release_ratios(release, trace, asked, rows, entry.variance(prior))
    return total


def _release_ratios(release: Release, trace: Trace, asked: Tensor, rows: Tensor, variance: Tensor) -> Tensor:
    weight = trace.weight.double()
    own, other = weight[:, :1], weight[:, 1:].square().sum(1, keepdim=True).sqrt()
    noise = model.noise_variance(release, weight)[:, None].clamp(min=float(variance.max()) * 1e-7)
    neither = (own.square() + other.square()) * variance + noise
    alone = 0.5 * (neither.log() + rows.square() / neither).sum(1)
    ratios = alone + fit(asked, rows, own, other.square() * variance + noise)
    if trace.partner.shape[1] != 1:
        return ratios  # several partners: only its own row is asked
    partner = trace.partner[:, 0]
    keeper = (partner < len(rows)) & (partner != torch.arange(len(rows)))  # rows p whose partner r has a row here
    p, r = keeper.nonzero()[:, 0], partner[keeper]
    shared = own[r] * other[p] * variance
    ratios[:, r] += fit(asked, rows[p], other[p], own[p].square() * variance + noise[p])
    ratios[:, r] += _together(rows[r], rows[p], neither[r], neither[p], shared) - alone[r]
    return ratios


def _together(x: Tensor, y: Tensor, spread_x: Tensor, spread_y: Tensor, shared: Tensor) -> Tensor:
    """(m,) minus the log-density, without the constant, of pairs of rows that have a covariance."""
    determinant = spread_x * spread_y - shared.square()
    form = (x.square() * spread_y + y.square() * spread_x - 2 * x * y * shared) / determinant
    return 0.5 * (determinant.log() + form).sum(1)


def fit(asked: Tensor, rows: Tensor, share: Tensor, spread: Tensor) -> Tensor:
    """(c, n) log-density of rows around share·candidate with that spread, without the constant."""
    alone = -0.5 * (spread.log() + rows.square() / spread).sum(1)
    return alone + asked @ (share * rows / spread).T - 0.5 * asked.square() @ (share.square() / spread).T
