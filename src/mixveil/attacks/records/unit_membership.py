"""Membership of a whole unit: are all these images together the rows of one person?

Each of a unit's m images is in its own row and in the row of the record that it is the partner of: up to 2m rows. With
S these rows, W their weights, N their noise, and in every direction of the records' covariance (variance λ, images c):

    it is the unit:   x̃_S ~ N(W_u c, λ W_o W_oᵀ + N), where only the others' records are unknown
    it is not:        x̃_S ~ N(0, λ W Wᵀ + N)

Rows that share a record depend on one another; N is the same in all directions, so that one eigenbasis of the rows,
that of N^-½ W_o W_oᵀ N^-½, serves all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from mixveil.attacks.records.linkage import STRONG
from mixveil.attacks.shared import model
from mixveil.attacks.shared.base import BaseAttack
from mixveil.attacks.shared.model import MixingMatrix
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackBound, AttackKind, Guess, View


class Evidence(NamedTuple):
    """(g,) of each group: the log-likelihood ratio of being the unit, and its mean and variance if the rows hold
    others."""

    ratio: Tensor
    mean: Tensor
    variance: Tensor


@dataclass(frozen=True)
class UnitMembership(BaseAttack):
    """Is a group of images a unit of the releases? The likelihood ratio of all its rows, in deviations from what it is
    where these rows hold others: so every unit's test has the same false alarms, however many images it has and
    whatever they look like. Strong evidence counts by itself. Ratios add over releases."""

    name: ClassVar[str] = "unit-membership"
    kind: ClassVar[AttackKind] = "membership"
    needs: ClassVar[frozenset[str]] = frozenset({"traces", "candidates", "units"})
    bound: ClassVar[AttackBound | None] = "gdp"

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        found = evidence(view)
        stands_out = (found.ratio - found.mean) / found.variance.sqrt().clamp(min=1e-12)
        return Guess(scores=stands_out + (found.ratio - STRONG).clamp(min=0))


def evidence(view: View) -> Evidence:
    """Of all groups, by all releases together."""
    if view.units is None or view.candidates is None:
        raise ArgumentError(f"this attack needs {'units' if view.units is None else 'candidates'}")
    prior, traces = model.prior_of(view), model.traces_of(view)
    count = prior.directions.count
    places = _places(view)
    total = torch.zeros(3, int(view.units.group.max()) + 1, dtype=torch.float64)
    for t, (release, trace, mixing) in enumerate(zip(view.releases, traces, MixingMatrix.of(traces), strict=True)):
        entry = model.entry_of(view, t, prior)
        variance = entry.variance(prior)
        asked = prior.directions.coordinates(release.encoder.prepare(view.candidates) - entry.offset)
        seen = model.coordinates(release, entry, prior)
        noise = model.noise_variance(release, trace.weight.double()).clamp(min=float(variance.max()) * 1e-7)
        held = _holders(mixing)
        for rows, groups in places.items():
            whose = torch.tensor([number for number, _ in groups])
            images = asked[torch.tensor([candidates for _, candidates in groups])]
            total[:, whose] += _slot(rows, images, seen, noise, mixing, held, variance, count)
    return Evidence(*total)


def _places(view: View) -> dict[tuple[int, ...], list[tuple[int, list[int]]]]:
    """By the rows that would be a unit's, the groups that are asked of there: their numbers and candidates."""
    if view.units is None:
        return {}
    listed: dict[int, tuple[list[int], list[int]]] = {}
    for group, row, candidate in zip(*(column.tolist() for column in view.units), strict=True):
        rows, candidates = listed.setdefault(group, ([], []))
        rows.append(row)
        candidates.append(candidate)
    places: dict[tuple[int, ...], list[tuple[int, list[int]]]] = {}
    for group, (rows, candidates) in listed.items():
        if len(set(rows)) != len(rows):
            raise ArgumentError(f"units: group {group} has two images for one row")
        places.setdefault(tuple(rows), []).append((group, candidates))
    return places


def _holders(mixing: MixingMatrix) -> list[list[int]]:
    """By record, the rows that it is in."""
    held: list[list[int]] = [[] for _ in range(mixing.records)]
    for row, sources in enumerate(mixing.source.tolist()):
        for record in sources:
            if record >= 0:
                held[record].append(row)
    return held


def _slot(
    rows: tuple[int, ...],
    images: Tensor,
    seen: Tensor,
    noise: Tensor,
    mixing: MixingMatrix,
    held: list[list[int]],
    variance: Tensor,
    count: Tensor,
) -> Tensor:
    """(3, g) the ratio, its mean and its variance, of g groups of images (g, m, k) for the same m rows."""
    here = torch.tensor(sorted({row for record in rows for row in held[record]}))
    scale = noise[here].rsqrt()[:, None]
    own, others = _weights(rows, here, mixing)
    own, others, x = scale * own, scale * others, scale * seen[here]
    level, turn = torch.linalg.eigh(others @ others.T)
    around = 1 / (1 + level.clamp(min=0)[:, None] * variance)  # of the unit's rows, in their eigenbasis: (L, k)
    all_level, all_turn = torch.linalg.eigh(others @ others.T + own @ own.T)
    all_around = 1 / (1 + all_level.clamp(min=0)[:, None] * variance)
    x_own, x_all = turn.T @ x, all_turn.T @ x
    unit = turn.T @ own
    shift = unit @ images  # (g, L, k)
    gram = unit @ unit.T
    # What does not depend on the images: a quadratic form in the rows, and its mean where they hold others.
    volume = 0.5 * (count * (around.log() - all_around.log())).sum()
    form = 0.5 * ((all_around * x_all.square()).sum() - (around * x_own.square()).sum())
    form_mean = -0.5 * (gram.diagonal()[:, None] * around * variance * count).sum()
    form_variance = 0.5 * (count * (around * variance) * (gram.square() @ (around * variance))).sum()
    told = around * shift
    size = torch.linalg.vecdot(told.flatten(1), shift.flatten(1))
    ratio = volume + form + told.flatten(1) @ x_own.flatten() - 0.5 * size
    mean = volume + form_mean - 0.5 * size
    spread = form_variance + size + (unit.T @ told).square().sum(1) @ variance
    return torch.stack([ratio, mean, spread])


def _weights(rows: tuple[int, ...], here: Tensor, mixing: MixingMatrix) -> tuple[Tensor, Tensor]:
    """(L, m) the weights of the unit's records in the rows `here`, and (L, o) those of the others' records there."""
    number = {record: place for place, record in enumerate(rows)}
    source, weight = mixing.source[here].tolist(), mixing.weight[here].tolist()
    strangers = {r: place for place, r in enumerate(sorted({r for of in source for r in of if r not in number}))}
    own, others = (torch.zeros(len(here), len(of), dtype=torch.float64) for of in (number, strangers))
    for place, (records, shares) in enumerate(zip(source, weight, strict=True)):
        for record, share in zip(records, shares, strict=True):
            if record in number:
                own[place, number[record]] += share
            else:
                others[place, strangers[record]] += share
    return own, others
