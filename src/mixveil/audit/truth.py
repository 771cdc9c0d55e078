"""Is this the data that a release was made of? And what is left of its rows without it?"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError, WrongTruthError
from mixveil.core.types import Batch, Dataset, Release, Trace, View
from mixveil.core.wording.notes import Note, note
from mixveil.data.row_views import RowsView, Subset
from mixveil.theory.moments import blocks

_BLOCK_VALUES = 1 << 22


def check_truth(view: View, truth: Dataset) -> None:
    """Refuse data that the releases cannot be made of: an audit of other data would say that all is well."""
    if len({release.id for release in view.releases}) != len(view.releases):
        raise ArgumentError("a release is given twice: its noise would be taken for new noise")
    for release in view.releases:
        if release.shape != truth.shape or release.records != len(truth) or release.classes != truth.classes:
            raise WrongTruthError(
                f"release {release.id} was made of {release.records} rows of {release.shape} in {len(release.classes)} "
                f"classes, the truth {len(truth)} of {truth.shape} in {len(truth.classes)}"
            )


@dataclass(frozen=True)
class _Ranged(RowsView):
    """The same rows, said to lie within a range."""

    low: float = 0.0
    high: float = 1.0


def ranged(truth: Dataset) -> Dataset:
    """Data with a range: where values can be anything, the one that these values have. Errors are measured in it, which
    is for the owner's eyes as all of an audit is."""
    if math.isfinite(truth.high - truth.low):
        return truth
    found = torch.stack([torch.stack(torch.aminmax(block)) for block in blocks(truth)])
    low, high = float(found[:, 0].min()), float(found[:, 1].max())
    return _Ranged(truth, low, high if high > low else low + 1)


def in_record_order(view: View) -> View:
    """The same releases with row i of record i: where labels were randomised, rows were put in another order."""
    if view.traces is None:
        if any(release.label_epsilon is not None for release in view.releases):
            raise ArgumentError(
                "the rows of this release are in a random order, and its trace is not here: audit it where it was made"
            )
        return view
    releases, traces = list(view.releases), list(view.traces)
    for t, (release, trace) in enumerate(zip(releases, traces, strict=True)):
        if trace.order is not None:
            place = trace.order.argsort()
            releases[t] = replace(release, payload=Subset(release.payload, place))
            traces[t] = trace.part(place, trace.order)
    return replace(view, releases=tuple(releases), traces=tuple(traces))


def rows_first(view: View, truth: Dataset) -> tuple[View, Dataset]:
    """Of a release from which rows were dropped: the records that have rows, in the rows' order, then the others."""
    if all(release.screened is None for release in view.releases):
        return view, truth
    if view.traces is None:
        raise ArgumentError(
            "rows were dropped from this release, and its trace is not here: audit it where it was made"
        )
    if len(view.releases) > 1:
        raise ArgumentError(
            "rows were dropped from one of these releases, so that they do not have rows of the same records: audit it "
            "alone"
        )
    (release,), (trace,) = view.releases, view.traces
    kept = trace.kept
    if kept is None or len(kept) != release.records or int(kept.sum()) != len(release.payload):
        raise ArgumentError(f"the trace of release {release.id[:8]} does not say which of its rows were dropped")
    order = torch.cat([kept.nonzero()[:, 0], (~kept).nonzero()[:, 0]])
    place = order.argsort()
    return replace(view, traces=(trace.part(kept, place),)), Subset(truth, order)


def chosen(release: Release) -> float:
    """How far choosing m of n rows, by whatever rule, can move a sum over them of standardised figures, in its
    deviations: √(n·min(m, n − m)/m), for the mean of z where an event happens is at most √P(event), by Cauchy and
    Schwarz. Rows that show little have the noise for it: what is left of the noise is not quite what was drawn."""
    rows, records = len(release.payload), release.records
    return math.sqrt(records * min(rows, records - rows) / rows)


@dataclass(frozen=True)
class Inspected:
    """All rows of a release, beside the records that they should be made of.

    Attributes:
        telling: Whether the rows show that they are made of these records. values: How many a row has.
        energies: (n,) the sum of squares of each row's noise over its strength, χ² of `values` degrees if all is well;
            (0,) without noise.
        kept: The share of records whose label is said as it is, where labels were randomised and that can be read.
        moved: What choosing the rows can have done to sums over them (`chosen`).
    """

    telling: bool
    energies: Tensor
    values: int
    kept: float | None = None
    moved: float = 0.0


def inspect(view: View, truth: Dataset) -> list[Inspected]:
    """Every row of every release, block by block; refused are rows that were not made of these data.

    Labels must be those that the observation says, where they were not randomised. Without noise the values must be its
    means. Under noise they are judged by the likelihood of the rows: if the truth is right, the rows' projection on it
    is E with variance E; if it is not, 0 with variance E; if σ is not what the settings say, a multiple of E."""
    return [_inspected(r, t, truth) for r, t in zip(view.releases, view.traces or (), strict=view.traces is not None)]


def unsure(view: View, inspected: list[Inspected]) -> list[Note]:
    """What could not be told."""
    if view.traces is None:
        return [note("no-trace", release=release.id[:8]) for release in view.releases]
    notes = []
    for release, found in zip(view.releases, inspected, strict=True):
        if not found.telling:
            randomised = "" if release.label_epsilon is None else "-randomised"
            code = f"truth-not-shown{'-screened' if found.moved else ''}{randomised}"
            notes.append(note(code, release=release.id[:8]))
    return notes


def covered_in_pairs(release: Release, trace: Trace) -> bool:
    """Whether rows are two weighed records each, with all of the noise on the second: what the bounds of `theory.bayes`
    and the μ of single records speak of."""
    encoder, rows = release.encoder, torch.arange(len(trace.weight))
    if not encoder.linear or encoder.law == "none" or trace.weight.shape[1] != 2:
        return False
    return torch.allclose(encoder.observation(trace).deviation(rows), trace.weight[:, 1].double() * encoder.sigma)


def _inspected(release: Release, trace: Trace, truth: Dataset) -> Inspected:
    size = max(1, _BLOCK_VALUES // math.prod(truth.shape))
    observation, without_noise = release.encoder.observation(trace), release.encoder.law == "none"
    moved, centre = chosen(release), torch.zeros(1) if without_noise else _mean_record(release, truth, size)
    expected = found = 0.0
    energies, kept = [], []
    for rows in torch.split(torch.arange(len(release.payload)), size):
        seen, said = _released(release, rows)
        mean, labels = observation.mean(truth, rows)
        if release.label_epsilon is None and not torch.allclose(labels, said, atol=1e-6):
            raise WrongTruthError(
                f"release {release.id} was not made of these data: its labels are not mixtures of theirs"
            )
        if release.label_epsilon is not None:
            kept.append(_kept_labels(release, trace, truth, rows))
        if without_noise:
            _check_equal(release, seen, mean)
            continue
        noise = observation.deviation(rows).square()
        deviation = mean - centre
        telling = deviation / noise.clamp(min=1e-12)[:, None]
        expected += float((telling * deviation).sum())
        found += float((telling * (seen - centre)).sum())
        energies.append((seen - mean).square().sum(1) / noise.clamp(min=1e-300))
    if abs(found - expected) > (6 + moved) * math.sqrt(expected) + 1e-3 * expected:
        raise WrongTruthError(
            f"release {release.id} was not made of these data with these settings: its rows hold "
            f"{found / expected:.2f} times the mixtures that they should"
        )
    read = torch.cat(kept) if kept else torch.empty(0)
    share = float(read.double().mean()) if len(read) else None
    shows = without_noise or expected > 50 + 4 * moved**2
    measured = torch.cat(energies) if energies else torch.empty(0, dtype=torch.float64)
    return Inspected(shows, measured, math.prod(truth.shape), share, moved)


def _mean_record(release: Release, truth: Dataset, size: int) -> Tensor:
    """(d,) the mean of the records as they enter: what says nothing of whether rows were made of them."""
    parts = torch.split(torch.arange(len(truth)), size)
    prepare, none = release.encoder.prepare, torch.zeros(1, dtype=torch.float64)
    return sum((prepare(truth.take(rows).x).sum(0) for rows in parts), start=none) / len(truth)


def _check_equal(release: Release, seen: Tensor, mean: Tensor) -> None:
    """Without noise rows are their means, up to rounding: of float32, and of features that another machine made."""
    apart, length = (torch.linalg.vector_norm(x, dim=1) for x in (seen - mean, mean))
    public = ", or with these public images (--covers)" if release.encoder.covers else ""
    if wrong := int((apart > 1e-3 * length + 1e-6).sum()):
        raise WrongTruthError(
            f"release {release.id} was not made of these data with these settings{public}: it has no noise, and "
            f"{wrong} of {len(seen)} rows are not what they should be"
        )


def _kept_labels(release: Release, trace: Trace, truth: Dataset, rows: Tensor) -> Tensor:
    """(m,) of the rows whose own source's said class can be read, whether it is the true one. The weights of the trace
    say which of a row's two classes is its own; where both sources say the same there is one. Nothing can be read of
    rows that are no weighed sums, or sums of more than two records."""
    if trace.partner.shape[1] > 1 or not release.encoder.linear:
        return torch.empty(0, dtype=torch.bool)
    y, weight = release.payload.take(rows).y, trace.weight[rows]
    said = (y - weight[:, :1]).abs().argmin(1)
    one = (y > 0).sum(1) == 1
    said = torch.where(one, y.argmax(1), said)
    clear = one | ((weight[:, 0] - 0.5).abs() > 1e-4)
    fits = one | ((y.gather(1, said[:, None])[:, 0] - weight[:, 0]).abs() < 1e-5)
    if not bool(fits[clear].all()):
        raise WrongTruthError(f"release {release.id}: its labels are not mixtures by the weights of its trace")
    return said[clear] == truth.take(rows[clear]).y.argmax(1)


def standardised_noise(release: Release, trace: Trace, records: Dataset) -> Tensor:
    """(n, d) what is left of the rows without their mixtures, over its strength: standard normals, if all is well."""
    observation, found = release.encoder.observation(trace), torch.empty(0, dtype=torch.float64)
    for rows in torch.split(torch.arange(len(trace.weight)), max(1, _BLOCK_VALUES // math.prod(records.shape))):
        normals = _released(release, rows).x
        normals -= observation.mean(records, rows).x
        normals /= observation.deviation(rows)[:, None]
        if not len(found):
            found = normals.new_empty(len(trace.weight), normals.shape[1])
        found[rows] = normals
    return found


def _released(release: Release, rows: Tensor) -> Batch:
    """Rows as they are released: x (m, d) float64."""
    x, y = release.payload.take(rows)
    return Batch(x.flatten(1).double(), y)
