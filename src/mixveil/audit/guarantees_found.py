"""What releases state, beside what is found of it on the records themselves; and the noise, which only their owner can
measure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mixveil.audit import noise_check
from mixveil.audit.ceilings import record_mu
from mixveil.audit.figures import Subject
from mixveil.audit.truth import Inspected, covered_in_pairs, standardised_noise
from mixveil.core.types import Dataset, Guarantee, Release, Trace, View
from mixveil.core.wording.notes import Note, note
from mixveil.data import privacy_units
from mixveil.theory import bayes, gdp
from mixveil.theory.moments import Moments
from mixveil.theory.response import keep_probability


@dataclass(frozen=True)
class Promise:
    """A guarantee as stated, and what was found of it on the records themselves. broken: it is not kept; loose: it is
    kept, by more than twice as much noise as was asked for; of: to whom it is promised."""

    release: str
    name: str
    nominal: float
    realised: float | None
    found: float | None
    broken: bool = False
    loose: bool = False
    of: Subject = "record"


def promises(view: View, inspected: list[Inspected], found: Moments, whose: Tensor | None = None) -> list[Promise]:
    """Of all rows and all records; found: the records' moments, as they enter the mixture; whose: (n,) the unit of each
    record, where that is said."""
    said = []
    for t, release in enumerate(view.releases):
        trace = view.traces[t] if view.traces is not None else None
        said += [_kept(release, trace, guarantee, found, whose) for guarantee in release.guarantees]
        sigma, law = release.encoder.sigma, release.encoder.law
        if law != "none" and trace is not None:
            count = len(inspected[t].energies) * inspected[t].values
            measured = math.sqrt(float(inspected[t].energies.sum()) / count)
            spread = 5 if law == "laplace" else 2  # the variance of a square
            slack = (6 + inspected[t].moved) * math.sqrt(spread / (4 * count)) + 1e-5
            said.append(Promise(release.id, "noise", sigma, None, measured * sigma, abs(measured - 1) > slack))
    return said + _left_unknown(view, found)


def _left_unknown(view: View, found: Moments) -> list[Promise]:
    """The share of the records' variance that the μ of all releases together leaves to any linear attacker, beside what
    the weights that were drawn leave to one who knows all other records. Of records as they enter the mixture, each by
    itself: an attacker who takes the alike images of a unit together may explain more."""
    mu, encoders = gdp.compose(map(record_mu, view.releases)), [release.encoder for release in view.releases]
    ways_in, clip = {(encoder.centre, encoder.clip) for encoder in encoders}, encoders[0].clip
    gaussian = all(encoder.linear and encoder.law == "gaussian" for encoder in encoders)  # what the bound rests on
    if not gaussian or not math.isfinite(mu) or len(ways_in) > 1 or clip is None or not found.energy > 0:
        return []
    values, measured = found.energy / len(found.mean), None
    nominal = found.average(bayes.certified_risk(found.eigenvalues, mu, clip)) / values
    made = [] if view.traces is None else list(zip(view.releases, view.traces, strict=True))
    if made and all(covered_in_pairs(release, trace) for release, trace in made):
        shown = [bayes.precisions(t.partner[:, 0], t.weight, release.encoder.sigma) for release, t in made]
        measured = found.average(bayes.known_risk(found.eigenvalues, torch.stack(shown).sum(0))) / values
    broken = measured is not None and measured < nominal * (1 - 1e-6)
    whole = view.releases[0].id if len(encoders) == 1 else "all"
    return [Promise(whole, "variance-left-unknown", nominal, None, measured, broken)]


def _kept(release: Release, trace: Trace | None, stated: Guarantee, found: Moments, whose: Tensor | None) -> Promise:
    encoder, rows = release.encoder, release.encoder.unit_rows
    measured, broken, loose = None, False, False
    if stated.name == "directional-snr" and (measured := encoder.directional_snr(found.lambda_max)) is not None:
        if release.certified:  # stated for the worst record there can be
            broken = measured > stated.nominal
        else:
            exact = 1.02 if found.covariance is not None else 2  # where λ_max is a bound it may differ by chance
            untrue = stated.realised is not None and measured > exact * stated.realised
            broken = untrue or measured > 2 * stated.nominal
            loose = measured < stated.nominal / 2
    paired = encoder.law == "gaussian" and trace is not None and covered_in_pairs(release, trace)
    if stated.name == "gdp" and paired and trace is not None and encoder.clip is not None:
        measured = _largest(gdp.mu_records(encoder.clip, encoder.sigma, trace.weight), rows, whose)
        broken = measured > stated.nominal * (1 + 1e-6)
    of: Subject = "unit" if stated.name == "gdp" and rows > 1 else "record"
    return Promise(release.id, stated.name, stated.nominal, stated.realised, measured, broken, loose, of)


def _largest(mu: Tensor, rows: int, whose: Tensor | None) -> float:
    """The largest μ of a unit, from those of records: √Σμ² over its rows, none paired with another. Where it is not
    known which rows belong together: of as many of the worst as a unit can have."""
    if rows == 1 or whose is None or len(whose) != len(mu):
        return float(mu.max()) * math.sqrt(rows)
    return math.sqrt(float(torch.zeros(int(whose.max()) + 1).double().index_add_(0, whose, mu.square()).max()))


def by_value(release: Release) -> bool:
    """Whether the noise of single values of the rows is tested."""
    return release.encoder.law in ("gaussian", "sphere")


def unit_faults(view: View, truth: Dataset) -> list[Note]:
    """What is wrong with the pairing of releases that promise something to units."""
    said = []
    numbers = privacy_units.numbered(truth)
    for t, release in enumerate(view.releases):
        rows = release.encoder.unit_rows
        if rows == 1 or view.traces is None:
            continue
        if numbers is None:
            said.append(note("units-unchecked", release=release.id[:8]))
            continue
        partner = view.traces[t].partner
        together = int((numbers[partner] == numbers[: len(partner), None]).sum()) if partner.numel() else 0
        largest = int(numbers.bincount().max())
        if together or largest > rows:
            said.append(note("units-paired", release=release.id[:8], rows=together, largest=largest, stated=rows))
    return said


def label_faults(view: View, inspected: list[Inspected], n: int) -> list[Note]:
    """What is wrong with the labels of releases that say that they were randomised."""
    said = []
    for release, found in zip(view.releases, inspected, strict=False):
        if release.label_epsilon is None:
            continue
        if found.kept is None:
            said.append(note("labels-unchecked", release=release.id[:8], epsilon=release.label_epsilon))
            continue
        keep = keep_probability(release.label_epsilon, len(release.classes))
        if abs(found.kept - keep) > 6 * math.sqrt(keep * (1 - keep) / n) + 1 / n:
            figures = {"found": found.kept, "epsilon": release.label_epsilon, "keep": keep}
            said.append(note("labels-not-randomised", release=release.id[:8], **figures))
    return said


def noise_faults(view: View, records: Dataset, inspected: list[Inspected]) -> list[Note]:
    """What is wrong with the noise of the releases: its strength in all rows, all else in the view's."""
    said: list[Note] = []
    kept: list[Tensor] = []
    for t, release in enumerate(view.releases):
        if view.traces is None or release.encoder.law == "none":
            continue
        normals = standardised_noise(release, view.traces[t], records)
        found = noise_check.faults(normals, inspected[t].energies, release.encoder.law, inspected[t].moved)
        said += [note("noise-wrong", release=release.id[:8], fault=fault) for fault in found]
        for earlier in kept:
            if abs(float((earlier * normals).mean())) * math.sqrt(normals.numel()) > 8:
                said.append(note("noise-shared-by-releases", release=release.id[:8]))
        kept.append(normals)
    return said
