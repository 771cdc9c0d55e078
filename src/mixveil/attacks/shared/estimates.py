"""What the strong trained attacks start from: the best linear estimates of records, and how much is known of each.

Attackers can make as many such estimates of public records as they like, with the truth beside them: they mix public
records in pairs, add noise of any strength, and solve for them as they solve the release. What is known of a record is
one number a row that holds it, weight² over noise: with it one network serves all strengths of noise, any weights and
any number of releases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mixveil.attacks.records.lmmse import Columns, equations, unmixed
from mixveil.attacks.shared import model
from mixveil.attacks.shared.base import CannotAttackError
from mixveil.attacks.shared.model import EntryMap, MixingMatrix, Prior
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import Encoder, View
from mixveil.core.wording.notes import note
from mixveil.data.row_views import Subset

LEVELS = tuple(10.0 ** (step / 2) for step in range(-4, 6))
"""Noise of a row, in standard deviations of public records: what networks are trained on."""


_BLOCK_VALUES = 1 << 25
_HELD_OUT = 11  # of so many public rows one: odd, so that both halves give some
_NEAREST = 4  # of what was held out, that quarter is judged by which has the most similar noise


@dataclass(frozen=True)
class Estimates:
    """Of n records: linear (n, …) the best linear estimates; own (n, …) what each record's own rows alone say, as if
    they held no partner; known (n, 2) how much its own and others' rows say of a record, times the variance of a value;
    error (n,) the mean squared error of a value that this leaves, roughly."""

    linear: Tensor
    own: Tensor
    known: Tensor
    error: Tensor

    def part(self, index: Tensor) -> Estimates:
        return Estimates(*(x[index] for x in vars(self).values()))

    def to(self, device: torch.device) -> Estimates:
        return Estimates(*(x.to(device) for x in vars(self).values()))

    @property
    def conditions(self) -> Tensor:
        """(n, 2) what is known, as networks are told it: in decades, within what they were trained on."""
        return self.known.clamp(1e-6, 1e4).log10() / 4


Render = Callable[[Tensor, Prior], Tensor]
"""From coordinates (n, k) in a prior's directions to what a network is given, (n, …)."""


def of_releases(view: View, prior: Prior, render: Render) -> Estimates:
    """Of all records that have a row."""
    return _estimated(*equations(view, prior), prior, render)


def of_public(view: View, render: Render, rounds: int, most: int, stream: Stream) -> tuple[Tensor, Estimates]:
    """(m,) which public rows, and estimates of them as if they had been released, at all levels of noise; every row as
    often as there are rounds. What half of the rows are like is learned from the other half: a record that helped to
    say what records are like would be known too well."""
    if view.public is None:
        raise ArgumentError("this attack needs public data")
    model.check_linear(view)
    chosen = model.spaced(len(view.public), most)
    if len(chosen) < 4 * len(LEVELS):
        raise CannotAttackError(note("too-few-public-rows", rows=len(chosen), least=4 * len(LEVELS)))
    encoder, rows, found = view.releases[0].encoder, [], []
    for half in (0, 1):
        own = chosen[half::2]
        seen = View(view.releases, public=Subset(view.public, chosen[1 - half :: 2]))
        prior = model.prior_of(seen)
        entry = model.entry_of(seen, 0, prior)
        blocks = torch.split(own, max(1, _BLOCK_VALUES // len(prior.mean)))
        records = torch.cat(
            [prior.directions.coordinates(encoder.prepare(view.public.take(b).x) - entry.offset) for b in blocks]
        )
        for number in range(rounds):
            draws = stream.fork(f"half {half}, round {number}")
            for level, group in zip(LEVELS, draws.permutation(len(own)).tensor_split(len(LEVELS)), strict=True):
                rows.append(own[group])
                found.append(_simulated(encoder, records[group], level, entry, prior, render, draws))
    columns = zip(*(vars(one).values() for one in found), strict=True)
    return torch.cat(rows), Estimates(*(torch.cat(column) for column in columns))


def held_out(index: Tensor) -> tuple[Tensor, Tensor]:
    """Places in `index` that are held out, and the others. An eleventh of the different numbers in it, spread over
    them: all places of one record are on the same side."""
    place = torch.unique(index, return_inverse=True)[1]
    return (place % _HELD_OUT == 0).nonzero()[:, 0], (place % _HELD_OUT != 0).nonzero()[:, 0]


def nearest(seen: Estimates, release: Estimates) -> Tensor:
    """Numbers of the estimates that leave about as much error as those of the release do."""
    apart = (seen.error.clamp(min=1e-30).log() - release.error.clamp(min=1e-30).log().mean()).abs()
    return apart.argsort()[: max(8, len(apart) // _NEAREST)]


def ridge_map(x: Tensor, y: Tensor, fitted: Tensor, held: Tensor) -> Tensor:
    """(k, values) the linear map from x (n, k) to y (n, values), by least squares on the fitted rows with the ridge
    that is best on those that were held out. Of posterior means one map is right at all strengths of noise."""
    variance, turned = torch.linalg.eigh((x[fitted].T @ x[fitted]).double())
    target = turned.T @ (x[fitted].T @ y[fitted]).double()
    best = (float("inf"), torch.zeros_like(target))
    for power in range(-6, 3):
        ridge = 10.0**power * variance.mean()
        found = turned @ (target / (variance + ridge)[:, None])
        error = float((y[held] - x[held] @ found.float()).square().mean())
        best = min(best, (error, found), key=lambda item: item[0])
    return best[1].float()


def worth_of(missing: Tensor, added: Tensor) -> float:
    """By what to multiply what is added, so that it comes nearest to what is missing; less a standard error,
    for few records say little. From 0, for nothing, to 1. Both (n, …)."""
    agreed, size = (missing * added).flatten(1).sum(1), added.square().flatten(1).sum(1)
    best = agreed.sum() / size.sum().clamp(min=1e-30)
    error = (agreed - best * size).square().sum().sqrt() / size.sum().clamp(min=1e-30)
    return float((best - error).clamp(0, 1))


def _simulated(
    encoder: Encoder, records: Tensor, level: float, entry: EntryMap, prior: Prior, render: Render, stream: Stream
) -> Estimates:
    """Of records (m, k) that are mixed as an encoder does, under noise of that level."""
    plan = encoder.plan(len(records), stream=stream.fork("plan"))
    mixing = MixingMatrix.of((plan,))[0]
    shape = encoder.deviation(plan.weight)
    shape = shape / shape.mean() if bool(shape.any()) else torch.ones_like(shape)
    deviation = (shape * level * math.sqrt(prior.typical))[:, None]
    rows = mixing.rows(records) + deviation * stream.fork("noise").normal(*records.shape)
    noise = deviation.square() + mixing.weight.square().sum(1, keepdim=True) * entry.spread
    return _estimated([mixing], [rows], [noise], [entry], prior, render)


def _estimated(
    mixings: list[MixingMatrix],
    seen: list[Tensor],
    noises: Sequence[Columns],
    entries: list[EntryMap],
    prior: Prior,
    render: Render,
) -> Estimates:
    n = len(seen[0])
    linear = unmixed(mixings, seen, noises, [entry.gain for entry in entries], prior.variance)[:n]
    unit, count = prior.typical, prior.directions.count
    evidence, own, total = torch.zeros(1), torch.zeros(1), torch.zeros(1)
    for mixing, rows, noise, entry in zip(mixings, seen, noises, entries, strict=True):
        precision, gain = 1 / noise[:, :].mean(1, keepdim=True), entry.gain.mean()
        share = gain * mixing.weight[:, :1]
        evidence = evidence + share * precision * rows
        own = own + share.square() * precision
        total = total + gain.square() * mixing.squared().back(precision)[:n]
    left = torch.stack([(count * prior.variance / (1 + prior.variance * value)).sum() for value in total[:, 0]])
    known = torch.cat([own, (total - own).clamp(min=0)], dim=1) * unit
    alone = render(evidence / (own + 1 / unit), prior)
    return Estimates(render(linear, prior), alone, known.float(), (left / len(prior.mean)).float())
