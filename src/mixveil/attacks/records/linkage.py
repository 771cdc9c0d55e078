"""Linkage and membership: is this image in the release, and in which row?

A record c is in two rows: its own, r, with weights w₁, w₂, and that of the record it is the partner of, p. In the
eigenbasis of the records' covariance (variances λ, noise variances ν):

    it is record r:   x̃_r ~ N(w₁c, w₂²λ + ν_r)  and  x̃_p ~ N(w₂c, w₁²λ + ν_p), independent
    it is not:        both around 0, with (w₁² + w₂²)λ + ν, and w₁w₂λ between them: they share a record

The log-likelihood ratios of all candidates and rows are two matrix products. They are made block by block, where the
released rows lie, and what is asked of them is kept as they come: no matrix of all candidates and rows is held but
where it is the answer. Plain inner products fail: natural images share their low frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from mixveil.attacks.shared import model
from mixveil.attacks.shared.base import BaseAttack, mixes_covers
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackBound, AttackKind, Guess, Release, Trace, View
from mixveil.core.wording.notes import Note

STRONG = math.log(20)  # evidence that no look-alike gives by chance more than once in 20

_BLOCK = 4096  # candidates, and rows, that are compared at a time
_WEIGHED, _WEIGHED_ON_GPU = 1 << 18, 1 << 24  # values whose likelihoods are made at a time: they stay in the cache
_DIRECTIONS = 256  # at least, in one product of matrices: with fewer it waits for memory
_LEAST, _HELD = 256, 3 << 25  # candidates, and their coordinates, that are held at a time
_MOST_LINKS, _REMEMBERED = 1 << 27, 1 << 22  # ratios that are given as a matrix; that are made only once


@dataclass(frozen=True)
class Linkage(BaseAttack):
    """Which row is a candidate's own? The weights and the pairing are known; ratios add over releases."""

    name: ClassVar[str] = "linkage"
    kind: ClassVar[AttackKind] = "linkage"
    needs: ClassVar[frozenset[str]] = frozenset({"traces", "candidates"})

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        ratios = _count(view)
        if ratios > _MOST_LINKS:
            return Guess(rows=summary(view).row)
        return Guess(links=_once(view).clone() if ratios <= _REMEMBERED else _links(view))


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
        found = summary(view)
        stands_out = (found.most - found.mean) / found.deviation.clamp(min=1e-12)
        evidence = found.evidence - math.log(len(view.releases[0].payload))
        return Guess(scores=stands_out + (evidence - STRONG).clamp(min=0))


class Summary(NamedTuple):
    """(c,) of the log-likelihood ratios of each candidate, over all rows: the largest and its row, the mean, the
    deviation, and the logarithm of the sum of the ratios themselves."""

    most: Tensor
    row: Tensor
    mean: Tensor
    deviation: Tensor
    evidence: Tensor


def _count(view: View) -> int:
    """Of all ratios: none where there are no candidates."""
    return 0 if view.candidates is None else len(view.candidates) * len(view.releases[0].payload)


def _links(view: View) -> Tensor:
    """(c, n) the log-likelihood ratios of all candidates and rows."""
    asked = _Asked(view)
    links = torch.empty(asked.candidates, asked.rows, dtype=torch.float64, device=asked.device)
    for candidates, rows, ratios in asked.blocks():
        links[candidates, rows] = ratios
    return links


_once = model.remembered(_links)  # linkage and membership ask for the same


def _blocks(view: View) -> Iterator[tuple[slice, slice, Tensor]]:
    """The same, as `_Asked.blocks` has them; few in one block."""
    if _count(view) > _REMEMBERED:
        return _Asked(view).blocks()
    links = _once(view)
    return iter([(slice(0, len(links)), slice(0, links.shape[1]), links)])


def summary(view: View) -> Summary:
    """Of any number of candidates and rows: the memory grows with their sum, not with their product."""
    asked = 0 if view.candidates is None else len(view.candidates)
    device = model.device_of(view)
    told = torch.zeros(4, asked, dtype=torch.float64, device=device)
    most, mean, squares, evidence = told
    most.fill_(-torch.inf)
    evidence.fill_(-torch.inf)
    row = torch.zeros(asked, dtype=torch.int64, device=device)
    for candidates, rows, ratios in _blocks(view):
        best = ratios.max(1)
        better = best.values > most[candidates]
        row[candidates] = torch.where(better, best.indices + rows.start, row[candidates])
        most[candidates] = torch.where(better, best.values, most[candidates])
        evidence[candidates] = torch.logaddexp(evidence[candidates], ratios.logsumexp(1))
        here, count = ratios.mean(1), rows.stop - rows.start
        apart, share = here - mean[candidates], count / rows.stop  # Chan, Golub and LeVeque 1979
        squares[candidates] += (ratios - here[:, None]).square_().sum(1) + apart.square() * share * rows.start
        mean[candidates] += apart * share
    return Summary(most, row, mean, (squares / max(1, len(view.releases[0].payload) - 1)).sqrt(), evidence)


class _Asked:
    """Candidates and releases, in the coordinates of the prior."""

    def __init__(self, view: View) -> None:
        if view.candidates is None:
            raise ArgumentError("this attack needs candidates")
        prior, self.device = model.prior_of(view), model.device_of(view)
        self.candidates, self.rows = len(view.candidates), len(view.releases[0].payload)
        self.directions = len(prior.variance)
        self.of: list[tuple[_Entering, _Likelihoods]] = []
        for t, (release, trace) in enumerate(zip(view.releases, model.traces_of(view), strict=True)):
            entry = model.entry_of(view, t, prior)
            rows = model.coordinates(release, entry, prior)
            likelihoods = _Likelihoods(release, trace, rows, entry.variance(prior), prior.directions.count)
            self.of.append((_Entering(view.candidates, release, entry, prior, self.device), likelihoods))

    def blocks(self) -> Iterator[tuple[slice, slice, Tensor]]:
        """Candidates, rows, and (c, n) log-likelihood ratios of each candidate being each record, from all releases."""
        at_once = max(_LEAST, min(_BLOCK, _HELD // self.directions))
        for candidates in _parts(self.candidates, at_once):
            asked = [entering.coordinates(candidates) for entering, _ in self.of]
            for rows in _parts(self.rows, _BLOCK):
                yield candidates, rows, self._ratios(asked, rows)

    def _ratios(self, asked: list[Tensor], rows: slice) -> Tensor:
        """Added up over directions, a few at a time."""
        count = rows.stop - rows.start
        found = asked[0].new_zeros(len(asked[0]), count)
        most = _WEIGHED_ON_GPU if self.device.type == "cuda" else _WEIGHED
        for candidates, (_, likelihoods) in zip(asked, self.of, strict=True):
            for some in _parts(self.directions, max(_DIRECTIONS, most // count)):
                likelihoods.weighed(rows, some).add(candidates[:, some], found)
        return found


class _Entering(NamedTuple):
    """Candidates, as they enter a release."""

    images: Tensor
    release: Release
    entry: model.EntryMap
    prior: model.Prior
    device: torch.device

    def coordinates(self, part: slice) -> Tensor:
        """(c, k) of some of them."""
        found = self.prior.variance.new_empty(part.stop - part.start, len(self.prior.variance))
        for some in model.in_parts(*found.shape):
            images = self.images[part][some].to(self.device)
            entered = self.release.encoder.prepare(images) - self.entry.offset
            found[some] = self.prior.directions.coordinates(entered)
        return found


class _Terms(NamedTuple):
    """A log-likelihood ratio of rows, as a polynomial in a candidate a: constant (n,) + a · first (n, k) − a² · second
    (n, k) / 2."""

    constant: Tensor
    first: Tensor
    second: Tensor

    def add(self, asked: Tensor, ratios: Tensor) -> None:
        """Of candidates (c, k), to ratios (c, n)."""
        ratios += self.constant
        ratios.addmm_(asked, self.first.T)
        ratios.addmm_(asked.square(), self.second.T, alpha=-0.5)


class _Likelihoods:
    """The rows of one release, (n, k) coordinates, and the variances (k,) of records as they enter."""

    def __init__(self, release: Release, trace: Trace, rows: Tensor, variance: Tensor, count: Tensor) -> None:
        weight = trace.weight.double()
        self.rows, self.variance, self.count = rows, variance, count
        self.own, self.other = weight[:, :1], weight[:, 1:].square().sum(1, keepdim=True).sqrt()
        self.noise = model.noise_variance(release, weight)[:, None].clamp(min=float(variance.max()) * 1e-7)
        self.behind = torch.full((len(rows),), -1, device=rows.device)  # the row that each row's record is partner in
        if trace.partner.shape[1] == 1:  # of several partners: only its own row is asked
            partner, place = trace.partner[:, 0], torch.arange(len(rows), device=rows.device)
            keeper = (partner < len(rows)) & (partner != place)
            self.behind[partner[keeper]] = place[keeper]

    def weighed(self, part: slice, some: slice) -> _Terms:
        """Of the records that own these rows, in some directions."""
        r = torch.arange(part.start, part.stop, device=self.rows.device)
        rows, variance, count = self.rows[:, some], self.variance[some], self.count[some]
        x, neither = rows[part], self._neither(r, variance)
        first, second = torch.empty_like(neither), torch.empty_like(neither)
        around = _around(x, self.own[r], self._covered(self.other, r, variance), count, first, second)
        alone = (count * neither.log() + x.square() / neither).sum(1)
        constant = alone - around
        held = (self.behind[r] >= 0).nonzero()[:, 0]
        if len(held):
            r, p = r[held], self.behind[r[held]]
            x, y, neither = x[held], rows[p], neither[held]
            own, share = torch.empty_like(y), torch.empty_like(y)
            around = _around(y, self.other[p], self._covered(self.own, p, variance), count, own, share)
            shared = self.own[r] * self.other[p] * variance
            together = _together(x, y, neither, self._neither(p, variance), shared, count)
            first.index_add_(0, held, own)
            second.index_add_(0, held, share)
            constant.index_add_(0, held, together - alone[held] - around)
        return _Terms(0.5 * constant, first, second)

    def _neither(self, rows: Tensor, variance: Tensor) -> Tensor:
        """(m, k) the variance of rows whatever records are in them."""
        return torch.addcmul(self.noise[rows], self.own[rows].square() + self.other[rows].square(), variance)

    def _covered(self, share: Tensor, rows: Tensor, variance: Tensor) -> Tensor:
        """(m, k) the variance of rows around one of their records: the other ones, by their share, and the noise."""
        return torch.addcmul(self.noise[rows], share[rows].square(), variance)


def _around(rows: Tensor, share: Tensor, spread: Tensor, count: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """(m,) minus twice the log-density of rows around no candidate, with that spread, without the constant of the
    normal law. What a candidate adds goes into `first` and `second`, as `_Terms` has it."""
    torch.div(share, spread, out=second)
    torch.mul(rows, second, out=first)
    second *= share
    return (count * spread.log() + rows.square() / spread).sum(1)


def _together(x: Tensor, y: Tensor, spread_x: Tensor, spread_y: Tensor, shared: Tensor, count: Tensor) -> Tensor:
    """(m,) the same of pairs of rows that have a covariance."""
    determinant = spread_x * spread_y - shared.square()
    form = (x.square() * spread_y + y.square() * spread_x - 2 * x * y * shared) / determinant
    return (count * determinant.log() + form).sum(1)


def fit(asked: Tensor, rows: Tensor, share: Tensor, spread: Tensor, count: Tensor) -> Tensor:
    """(c, n) log-density of rows around share·candidate with that spread, without the constant. count: (k,) for how
    many directions each coordinate stands."""
    first, second = torch.empty_like(rows), torch.empty_like(rows)
    around = _around(rows, share, spread, count, first, second)
    found = rows.new_zeros(len(asked), len(rows))
    _Terms(-0.5 * around, first, second).add(asked, found)
    return found


def _parts(count: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, count)) for start in range(0, count, size))
