"""What theory permits an attacker: figures that no attack of a kind should beat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.audit.figures import Figure, Subject
from mixveil.audit.ground_truth import GroundTruth
from mixveil.audit.metrics import detection
from mixveil.audit.truth import covered_in_pairs
from mixveil.core.types import Attack, AttackBound, Release
from mixveil.theory import bayes, gdp
from mixveil.theory.moments import Moments

FPR = 0.01
"""The share of false alarms at which members are counted."""


@dataclass(frozen=True)
class MembershipBound:
    """What is promised of membership: by the μ of all releases together, no attack finds a larger share `tpr` of the
    members at a share `fpr` of false alarms among outsiders of the same labels."""

    of: Subject
    mu: float
    fpr: float
    tpr: float


def unit_rows(releases: Sequence[Release]) -> int:
    """The most rows of a unit that any of the releases promises something to; one, where it is to records alone."""
    return max(release.unit_rows for release in releases)


def stated_mu(release: Release) -> float:
    """The μ that a release states, for a unit where it has units; infinite where it states none."""
    return next((guarantee.claim for guarantee in release.guarantees if guarantee.name == "gdp"), math.inf)


def record_mu(release: Release) -> float:
    """The μ of one record, by what a release states of units and how its cost grows with their rows. Where that is not
    known, what holds for a unit holds for each of its records."""
    cost = release.envelope.settings.cost()
    return stated_mu(release) / (1.0 if cost is None else math.pow(release.unit_rows, cost.group_exponent))


def unit_mu(release: Release, rows: int) -> float:
    """The μ of a unit of so many rows: as stated; or, where a release was made for smaller units, by what its settings
    cost that many rows, which may be paired with one another."""
    stated, own, cost = stated_mu(release), release.unit_rows, release.envelope.settings.cost()
    if own == rows:
        return stated
    if cost is None or not math.isfinite(stated):
        return math.inf
    return stated * cost.mu_if_paired / cost.mu * math.pow(rows / own, cost.group_exponent)


def membership_bounds(releases: Sequence[Release]) -> tuple[MembershipBound, ...]:
    """What all releases together promise of membership: to units first, where any of them has units of several rows,
    and to records; nothing, where one of them promises nothing."""
    rows = unit_rows(releases)
    mus: list[tuple[Subject, float]] = [("record", gdp.compose(map(record_mu, releases)))]
    if rows > 1:
        mus.insert(0, ("unit", gdp.compose(unit_mu(release, rows) for release in releases)))
    return tuple(MembershipBound(of, mu, FPR, gdp.member_tpr(mu, FPR)) for of, mu in mus if math.isfinite(mu))


def above_bound(attack: Attack, members: Tensor, others: Tensor, bound: MembershipBound) -> list[Figure]:
    """The first threshold that flags more members than μ permits at its false alarms, both beyond their 99.9 %
    intervals; none, if all is as stated. Several groups of strangers in the place of one unit share its rows: together
    they count as one."""
    trials = len(others) if bound.of == "record" else min(len(members), len(others))
    for share in (0.01, 0.03, 0.1, 0.3, 0.5):
        threshold = others.sort(descending=True).values[int(share * len(others))]
        hits, alarms = int((members > threshold).sum()), float((others > threshold).double().mean())
        interval = detection.clopper_pearson(hits, len(members), 0.999)
        high = detection.clopper_pearson(math.ceil(alarms * trials - 1e-9), trials, 0.999)[1]
        if high < 1 and interval[0] > (most := gdp.member_tpr(bound.mu, high)):
            figure = Figure(attack.name, attack.kind, "tpr-above-bound", hits / len(members), know_nothing=high)
            return [replace(figure, ceiling=most, interval=interval, beaten=True, of=bound.of)]
    return []


class ErrorBound(NamedTuple):
    """The least mean squared error of a value, in units of the range squared: what theory leaves on average, and below
    which `least` it is not chance."""

    ceiling: float
    least: float


def error_bound(truth: GroundTruth, bound: AttackBound | None) -> ErrorBound | None:
    """For an attack that declares such a bound; None where nothing bounds it here."""
    moments = truth.moments
    risk = None if moments is None else _bayes_risk(truth, moments, bound)
    if moments is None or risk is None:
        return None
    ceiling = moments.average(risk) / truth.span**2
    slack, share = _slack(risk, moments.eigenvalues), 1.0
    if truth.rows > truth.n:  # the ceiling is of all records
        energies = _energies(truth.pixels)
        slack, share = slack + _chance(energies), min(1.0, float(energies.mean()) / moments.energy)
    return ErrorBound(ceiling, (1 - slack) * share * ceiling)


def _bayes_risk(truth: GroundTruth, moments: Moments, bound: AttackBound | None) -> Tensor | None:
    """(n, k) the Bayes risk of the best linear attacker on these records; for several releases, a part, or known
    records: of one who knows all other records. Where records were clipped it speaks of clipped records, and bounds
    nothing that is measured here; nor does it where rows were dropped, for those that are left were chosen."""
    releases, traces, spectrum = truth.view.releases, truth.view.traces, moments.eigenvalues
    if bound not in ("linear-row", "linear", "linear-known") or traces is None or moments.covariance is None:
        return None
    if any(release.screened is not None for release in releases) or truth.clipped:
        return None
    if not all(covered_in_pairs(release, trace) for release, trace in zip(releases, traces, strict=True)):
        return None
    sigmas = [release.encoder.sigma for release in releases]
    trace, sigma = traces[0], sigmas[0]
    if len(traces) == 1 and bound == "linear-row":
        return bayes.single_row_risk(spectrum, trace.weight, sigma)
    if len(traces) == 1 and bound == "linear" and len(truth.records) == truth.n:
        return bayes.whole_release_risk(spectrum, trace.partner[:, 0], trace.weight, sigma)
    precisions = [bayes.precisions(t.partner[:, 0], t.weight, s) for t, s in zip(traces, sigmas, strict=True)]
    return bayes.known_risk(spectrum, torch.stack(precisions).sum(0))


def _slack(risk: Tensor, variance: Tensor) -> float:
    """How far below the risk (n, k) a mean error falls by chance, as a share of it: of few values, by much. With the
    records given, an error r of a variance λ has a squared one of variance 2r²(1 − (r/λ)²), by its noise."""
    kept = risk / variance.double().clamp(min=1e-300)
    spread = 2 * float((risk.square() * (1 - kept.square())).sum())
    return max(0.05, 4 * math.sqrt(max(0.0, spread)) / max(float(risk.sum()), 1e-300))


def _energies(records: Tensor) -> Tensor:
    return (records - records.mean(0)).flatten(1).double().square().sum(1)


def _chance(energies: Tensor) -> float:
    """How far the energy of a part of the records may be from that of all by chance, as a share of it. A few bright
    records can hold most of the energy and all be outside the part, which then shows nothing of their spread: what
    the part itself lacks is taken off apart from this."""
    return 4 * float(energies.std()) / max(float(energies.mean()), 1e-300) / math.sqrt(len(energies))
