"""Several releases of the same records, without their traces: a server holds them if a party sends its data again.

A record's own rows are averaged, with its partners as noise. The averages then show the pairing: row i of a release,
less its own record, fits the average of its partner better than any other. Where a partner is likelier than not its row
is unmixed, as `lmmse` does, with the doubt as noise; elsewhere the partner stays noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from mixveil.attacks.records.linkage import fit
from mixveil.attacks.records.lmmse import row_noise, unmixed
from mixveil.attacks.shared import model
from mixveil.attacks.shared.base import BaseAttack, CannotAttackError
from mixveil.attacks.shared.model import MixingMatrix
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackKind, Guess, Release, View
from mixveil.core.wording.notes import Note, note

_LIKELY = 0.5  # how likely a partner must be to be believed
_DRAWS = 400  # of the weights' law
_STEPS = 15  # of weights that are tried where no label shows any
_ROUNDS = 20  # of making a likely pairing one to one
_RARE = 1e-3  # shares of rows that may be: nothing is ruled out
_LIE = 20.0  # nats: what it takes to believe that a label leaves out a record's own class


class OwnRows(NamedTuple):
    """One release as its reader understands it: weight (n, 2), rows (n, k) coordinates, noise (n, k or 1) variances,
    gain (k,), other (n,) the class of each row's partner."""

    weight: Tensor
    rows: Tensor
    noise: Tensor
    gain: Tensor
    other: Tensor


@dataclass(frozen=True)
class Average(BaseAttack):
    """From all rows of all releases, row i being of record i in each. What labels do not show is guessed."""

    name: ClassVar[str] = "average"
    kind: ClassVar[AttackKind] = "reconstruction"
    least_releases: ClassVar[int] = 4  # one release without noise does not show which weight is the record's own
    passes: ClassVar[float] = 100

    def cannot(self, view: View) -> Note | None:
        if any(release.label_epsilon is not None for release in view.releases):
            return note("attack-needs-row-order")
        return super().cannot(view)

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        if len({len(release.payload) for release in view.releases}) != 1:
            raise CannotAttackError(note("attack-needs-equal-rows"))
        model.check_linear(view)
        prior = model.prior_of(view)
        ways, classes = _read(view, prior, stream)
        if len(ways) == 1 or ways[0].weights.shape[2] == 1:

            def of_rows(rows: slice) -> Tensor:
                return averaged([way.turned(classes, rows) for way in ways], prior.variance)[0]

            return Guess(images=model.images_by_rows(view, prior, of_rows))
        releases, mixings, noises = [way.turned(classes) for way in ways], [], []
        for own, (partner, chance) in zip(releases, partners(view, releases, classes, prior), strict=True):
            source = torch.stack([torch.arange(len(partner)), partner], dim=1)
            weight = torch.cat([own.weight[:, :1], own.weight[:, 1:] * (chance > 0)], dim=1)
            mixings.append(MixingMatrix(source, weight, len(partner)))
            noises.append(own.noise + (1 - chance) * _partner_variance(own, prior.variance))
        gains = [own.gain for own in releases]
        found = unmixed(mixings, [own.rows for own in releases], noises, gains, prior.variance)
        return Guess(images=prior.images(view, found))


def understood(view: View, prior: model.Prior, stream: Stream) -> tuple[list[OwnRows], Tensor]:
    """Every release with weights, and (n,) the classes of the records: what makes all rows of a record likeliest.

    A label of two classes shows both weights. Which of them is the record's own class follows from all its rows: it is
    in each of their labels, and the noise goes with the other weight. A label of one class shows no weight."""
    ways, classes = _read(view, prior, stream)
    return [way.turned(classes) for way in ways], classes


class _Ways(NamedTuple):
    """A release read both ways: classes (n, 2), the likelier reading of a row's own class first where nothing else is
    known; weights (n, 2, 2) and log-likelihoods (n, 2) of each reading; loose: (n, 1) how much guessed weights vary."""

    classes: Tensor
    weights: Tensor
    likely: Tensor
    loose: Tensor
    release: Release
    entry: model.EntryMap
    prior: model.Prior

    def turned(self, own_class: Tensor, rows: slice | None = None) -> OwnRows:
        """Read so that the own class is this one, where the label has it; else as the row itself is likelier. All rows,
        or some."""
        rows = rows or slice(0, len(self.classes))
        classes, n = self.classes[rows], torch.arange(rows.stop - rows.start)
        here = classes == own_class[rows, None]
        way = torch.where(here.any(1), here.long().argmax(1), self.likely[rows].argmax(1))
        weight, other = self.weights[rows][n, way], classes[n, 1 - way]
        noise = row_noise(self.release, weight, self.prior, self.entry)
        if bool(self.loose[rows].any()):  # a weight that is off by a little shows both records in the rest
            noise = noise + 2 * self.loose[rows] * self.entry.gain.square() * self.prior.variance
        seen = model.coordinates_of(self.release, self.entry, self.prior, rows)
        return OwnRows(weight, seen, noise, self.entry.gain, other)


def _read(view: View, prior: model.Prior, stream: Stream) -> tuple[list[_Ways], Tensor]:
    """Every release both ways, and (n,) the classes of the records."""
    tried = [
        _both_ways(release, model.entry_of(view, t, prior), prior, stream.fork(f"law {t}"))
        for t, release in enumerate(view.releases)
    ]
    n, classes = len(tried[0].classes), len(view.releases[0].classes)
    score = torch.zeros(n, classes, dtype=torch.float64)
    for way in tried:
        absent = way.likely.amin(1, keepdim=True) - _LIE
        score += absent.expand(n, classes).scatter(1, way.classes.flip(1), way.likely.flip(1))
    return tried, score.argmax(1)


def _both_ways(release: Release, entry: model.EntryMap, prior: model.Prior, stream: Stream) -> _Ways:
    law = release.encoder.plan(_DRAWS, stream=stream).weight.double()
    if law.shape[1] > 2:
        raise CannotAttackError(note("attack-needs-pairs"))
    n, values = len(release.payload), len(prior.mean)
    y = torch.cat([release.payload.take(torch.arange(r.start, r.stop)).y.double() for r in model.in_parts(n, values)])
    if law.shape[1] == 1:
        classes = y.argmax(1, keepdim=True).expand(n, 2)
        return _Ways(classes, torch.ones(n, 2, 1), torch.zeros(n, 2), torch.zeros(n, 1), release, entry, prior)
    shares, classes = y.topk(2, dim=1) if y.shape[1] > 1 else (y.expand(n, 2), y.argmax(1)[:, None].expand(n, 2))
    several = (y > 0).sum(1) > 1
    weights = torch.stack([shares, shares.flip(1)], dim=1)
    classes = torch.where(several[:, None], classes, classes[:, :1])
    tried = law[law[:, 0].argsort()][model.spaced(len(law), _STEPS)]
    likely, guess = _likelihoods(release, entry, prior, weights, several, tried)
    alone = (~several).nonzero()[:, 0]
    chance, loose = guess[alone].softmax(1), torch.zeros(n, 1, dtype=torch.float64)
    weights[alone], likely[alone] = (chance @ tried)[:, None], guess[alone].logsumexp(1, keepdim=True)
    loose[alone] = (chance * (tried[:, 0] - chance @ tried[:, :1]).square()).sum(1, keepdim=True)
    return _Ways(classes, weights, likely, loose, release, entry, prior)


def _likelihoods(
    release: Release, entry: model.EntryMap, prior: model.Prior, weights: Tensor, several: Tensor, tried: Tensor
) -> tuple[Tensor, Tensor]:
    """Log-densities of rows, whatever records are in them, without the constant: (n, 2) of `several` with their weights
    (n, 2, 2) both ways, −∞ of the others; (n, w) of the others with each of the weights that are tried (w, 2)."""
    n, count = len(several), prior.directions.count
    likely = torch.full((n, 2), -torch.inf, dtype=torch.float64)
    guess = torch.zeros(n, len(tried), dtype=torch.float64)
    common = _spread(release, entry, prior, tried)
    volume, precision = common.log() @ count, common.reciprocal()
    for rows in model.in_parts(n, len(prior.variance)):
        squares = model.coordinates_of(release, entry, prior, rows).square_()
        places = torch.arange(rows.start, rows.stop)
        mixed, alone = places[several[rows]], places[~several[rows]]
        guess[alone] = -0.5 * (volume + squares[~several[rows]] @ precision.T)
        for way in range(2):
            spread = _spread(release, entry, prior, weights[mixed, way])
            form = (squares[several[rows]] / spread).sum(1)
            likely[mixed, way] = -0.5 * (spread.log_() @ count + form)
    return likely, guess


def _spread(release: Release, entry: model.EntryMap, prior: model.Prior, weight: Tensor) -> Tensor:
    """(m, k) the variance of rows with these weights, whatever records are in them."""
    signal = weight.square().sum(1, keepdim=True) * entry.gain.square() * prior.variance
    return signal + row_noise(release, weight, prior, entry)


def _partner_variance(own: OwnRows, variance: Tensor) -> Tensor:
    """(n, k) of what an unknown partner adds to a row."""
    return own.weight[:, 1:].square().sum(1, keepdim=True) * own.gain.square() * variance


def _evidence(own: OwnRows, variance: Tensor) -> tuple[Tensor, Tensor]:
    """(n, k) what a row says of its own record: precision times value, and precision."""
    share, covered = own.weight[:, :1] * own.gain, _partner_variance(own, variance) + own.noise
    return share / covered * own.rows, share.square() / covered


def averaged(releases: list[OwnRows], variance: Tensor) -> tuple[Tensor, Tensor]:
    """(n, k) posterior mean and precision of each record from its own rows, partners counting as noise."""
    told = [_evidence(own, variance) for own in releases]
    precision = 1 / variance + torch.stack([p for _, p in told]).sum(0)
    return torch.stack([e for e, _ in told]).sum(0) / precision, precision


def partners(view: View, releases: list[OwnRows], classes: Tensor, prior: model.Prior) -> list[tuple[Tensor, Tensor]]:
    """For each release (n,) the likeliest partner in each row, and (n, 1) how likely it is: 0 where that is too little.

    Row i less w₁ times its record, as the other releases show that, is w₂x_j and noise; x_j is its average up to the
    averages' uncertainty. Where a part of a release is seen, it may be that no record here is the partner."""
    variance, count = prior.variance, prior.directions.count
    mean, precision = averaged(releases, variance)
    around = (1 / precision).mean(0)
    found = []
    for own, release in zip(releases, view.releases, strict=True):
        evidence, told = _evidence(own, variance)
        rest = precision - told
        residual = own.rows - own.weight[:, :1] * own.gain * (mean * precision - evidence) / rest
        covered = (own.weight[:, :1] * own.gain).square() / rest + own.noise
        share = own.weight[:, 1:]
        spread = covered + (share * own.gain).square() * around
        links = fit(mean * own.gain, residual, share, spread, count).T
        absent = covered + _partner_variance(own, variance)
        absent = -0.5 * (count * absent.log() + residual.square() / absent).sum(1)
        possible = ~torch.eye(len(links), dtype=torch.bool)
        if release.label_epsilon is None:
            possible &= own.other[:, None] == classes
        chance = one_to_one(torch.where(possible, links, -torch.inf) - absent[:, None])
        best = chance.max(1, keepdim=True)
        found.append((best.indices[:, 0], torch.where(best.values > _LIKELY, best.values, 0.0)))
    return found


def one_to_one(links: Tensor) -> Tensor:
    """(n, n) how likely each record is the partner in each row, if none is in two. links: log-likelihood ratios against
    that no record here is, which is as frequent as the rows say. Rows and columns are scaled in turn (Sinkhorn)."""
    scaled = links - links.isfinite().sum(1, keepdim=True).clamp(min=1).log()
    absent = torch.full((1, 1), 0.5, dtype=links.dtype)
    for _ in range(_ROUNDS):
        none = absent.log().expand(len(links), 1)
        whole = torch.cat([scaled + (1 - absent).log(), none], dim=1).logsumexp(1, keepdim=True)
        chance = scaled + (1 - absent).log() - whole
        absent = (none - whole).exp().mean().clamp(_RARE, 1 - _RARE).view(1, 1)
        scaled = scaled - chance.logsumexp(0, keepdim=True).clamp(min=0)
    return chance.exp()
