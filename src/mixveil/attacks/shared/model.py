"""What the linear and the likelihood attacks share: what records are like, and how a release was made of them.

In the eigenbasis of the records' covariance directions decouple, so every attack works on coordinates: records are
(n, k) with variance λ in each of k directions, and rows are W times records plus noise.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import TypeVar

import torch
from torch import Tensor

from mixveil.attacks.shared import prior as priors
from mixveil.attacks.shared.base import CannotAttackError, not_linear
from mixveil.attacks.shared.prior import Prior, in_parts, spaced
from mixveil.core.errors import ArgumentError
from mixveil.core.types import Batch, Encoder, Release, Rows, Trace, View
from mixveil.core.wording.notes import note
from mixveil.data.covers import Covered
from mixveil.data.row_views import RowsView
from mixveil.theory.moments import blocks

__all__ = [
    "EntryMap",
    "MixingMatrix",
    "Prior",
    "Repeated",
    "check_linear",
    "coordinates",
    "coordinates_of",
    "device_of",
    "entry_of",
    "images_by_rows",
    "in_parts",
    "noise_variance",
    "prior_of",
    "released",
    "remembered",
    "spaced",
    "traces_of",
    "with_covers",
]

_CLIPPED_ROWS, _CLIPPED_VALUES = 2000, 1 << 23
_SEEN = 1e-12  # of the average energy: what public rows must have in a direction to tell what clipping did there
_ENOUGH = 20  # noisy rows a value, for a covariance of the rows themselves

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True)
class EntryMap:
    """How records enter the mixture of one release: z = offset + gain · (x − mean) in each direction. Clipping bends
    that line: what it leaves beside the line counts as noise, `spread` (k,)."""

    offset: Tensor
    gain: Tensor
    spread: Tensor

    def variance(self, prior: Prior) -> Tensor:
        """(k,) of records as they enter the mixture."""
        return self.gain.square() * prior.variance + self.spread


def remembered(make: Callable[[Key], Value]) -> Callable[[Key], Value]:
    """The same answer for the same object, as long as that lives: many attacks ask for one eigenbasis."""
    kept: dict[int, Value] = {}

    @wraps(make)
    def answer(thing: Key) -> Value:
        if id(thing) not in kept:
            kept[id(thing)] = make(thing)
            weakref.finalize(thing, kept.pop, id(thing), None)
        return kept[id(thing)]

    return answer


def device_of(view: View) -> torch.device:
    """Where the released rows lie: there attacks on them are computed."""
    device: torch.device = view.releases[0].payload.take(torch.tensor([0])).x.device
    return device


def prior_of(view: View) -> Prior:
    """From public data if there are any, else from the release itself."""
    prior = _public_prior(view.public) if view.public is not None else _own_prior(view.releases[0])
    return prior.to(device_of(view))


def entry_of(view: View, t: int, prior: Prior) -> EntryMap:
    """How records enter release t. Without public data it is not known what clipping did, and nothing is assumed.
    Directions in which public records do not vary are taken for an average one."""
    encoder = view.releases[t].encoder
    if view.public is None:
        flat = torch.ones_like(prior.variance)
        return EntryMap(encoder.prepare(prior.mean[None])[0], flat, 0 * flat)
    known = _entries(view.public)  # all attacks ask the same
    for other, of, entry in known:
        if of is prior and other == encoder:
            return entry
    known.append((encoder, prior, _entered(view.public, encoder, prior)))
    return known[-1][2]


@remembered
def _entries(public: Rows) -> list[tuple[Encoder, Prior, EntryMap]]:
    """What was found of these public rows so far."""
    return []


def _entered(public: Rows, encoder: Encoder, prior: Prior) -> EntryMap:
    """How public rows enter what an encoder makes of them."""
    prepare, mean, flat = encoder.prepare, prior.mean, torch.ones_like(prior.variance)
    most = max(2, min(_CLIPPED_ROWS, _CLIPPED_VALUES // len(mean)))
    some = public.take(spaced(len(public), most)).x.to(mean.device)
    x, z = some.flatten(1).double(), prepare(some)
    offset = (z - (x - mean)).mean(0)
    if torch.allclose(z, x - mean + offset, atol=1e-9):
        return EntryMap(offset, flat, 0 * flat)
    offset = z.mean(0)
    x, z = prior.directions.coordinates(x - mean), prior.directions.coordinates(z - offset)
    energy, common = x.square().mean(0), (x * z).mean(0)
    alike = prior.directions.count < 1  # these have one variance, and so one gain
    if bool(alike.any()):
        energy[alike], common[alike] = energy[alike].mean(), common[alike].mean()
    known = energy > _SEEN * float(energy.mean())
    gain = torch.where(known, common / energy.clamp(min=1e-300), common.sum() / energy.sum().clamp(min=1e-300))
    spread = (z - gain * x).square().mean(0)
    if bool(alike.any()):
        spread[alike] = spread[alike].mean()
    return EntryMap(offset, gain, spread)


def released(release: Release) -> Tensor:
    """(n, d) float64: all rows."""
    return _joined(release, lambda block: block)


def coordinates(release: Release, entry: EntryMap, prior: Prior) -> Tensor:
    """(n, k): all rows, less what the mean record gives to each (a row's weights sum to one)."""
    return _joined(release, lambda block: prior.directions.coordinates(block - entry.offset))


def coordinates_of(release: Release, entry: EntryMap, prior: Prior, rows: slice) -> Tensor:
    """(m, k): the same of some rows."""
    x = release.payload.take(torch.arange(rows.start, rows.stop)).x
    return prior.directions.coordinates(x.flatten(1).double() - entry.offset)


def images_by_rows(view: View, prior: Prior, of_rows: Callable[[slice], Tensor]) -> Tensor:
    """(n, …) images from coordinates (m, k) that follow from a few rows by themselves."""
    n, values = len(view.releases[0].payload), len(prior.mean)
    found = torch.empty(n, values, dtype=prior.mean.dtype, device=prior.mean.device)
    for rows in in_parts(n, values):
        found[rows] = prior.values(of_rows(rows))
    return found.view(-1, *view.releases[0].shape)


def _joined(release: Release, make: Callable[[Tensor], Tensor]) -> Tensor:
    """What is made of all rows, block by block, held once."""
    found, start = torch.empty(0), 0
    for block in blocks(release.payload):
        made = make(block)
        if not start:
            found = made.new_empty(len(release.payload), made.shape[1])
        found[start : start + len(made)] = made
        start += len(made)
    return found


def noise_variance(release: Release, weight: Tensor) -> Tensor:
    """(n,) the variance of the noise in one value of each row."""
    return release.encoder.deviation(weight).square()


def traces_of(view: View) -> tuple[Trace, ...]:
    if view.traces is None or len(view.traces) != len(view.releases):
        raise ArgumentError("this attack needs the traces of all releases")
    check_linear(view)
    device = device_of(view)
    return tuple(replace(t, partner=t.partner.to(device), weight=t.weight.to(device)) for t in view.traces)


def with_covers(view: View, public: Rows) -> Rows:
    """Public rows, and after them what the releases mix in: encoders number them so."""
    if not any(release.encoder.covers for release in view.releases):
        return public
    if view.covers is None:
        raise CannotAttackError(note("attack-needs", fields="covers"))
    most = max(release.encoder.covers for release in view.releases)
    return Covered(public, view.covers if len(view.covers) >= most else Repeated(view.covers, most))


@dataclass(frozen=True)
class Repeated(RowsView):
    """The same rows over and over, `count` of them: an attacker may hold fewer covers than an encoder chooses from."""

    count: int

    def __len__(self) -> int:
        return self.count

    def take(self, index: Tensor) -> Batch:
        return self.rows.take(index % len(self.rows))


def check_linear(view: View) -> None:
    """Refuse rows that are no weighed sums of records."""
    if (why := not_linear(view)) is not None:
        raise CannotAttackError(why)


@dataclass(frozen=True)
class MixingMatrix:
    """W as a sum of weighed gathers: row r is Σ_j weight[r, j] · record[source[r, j]]. There may be more records than
    rows: those that only others' rows hold. A source of −1 is no record, and has no weight."""

    source: Tensor
    weight: Tensor
    records: int

    @classmethod
    def of(cls, traces: tuple[Trace, ...]) -> list[MixingMatrix]:
        """Of several releases of the same records."""
        records = max(max(len(t.weight), int(t.partner.max()) + 1 if t.partner.numel() else 0) for t in traces)
        own = [torch.arange(len(t.weight), device=t.weight.device)[:, None] for t in traces]
        sources = [torch.cat([first, trace.partner], dim=1) for first, trace in zip(own, traces, strict=True)]
        return [cls(s, trace.weight.double(), records) for s, trace in zip(sources, traces, strict=True)]

    @property
    def paired(self) -> bool:
        """Whether each row has two sources, and each record is the partner in at most one row."""
        if self.source.shape[1] != 2:
            return False
        partner = self.source[:, 1]
        return int(partner[partner >= 0].bincount(minlength=1).max()) <= 1

    def rows(self, records: Tensor) -> Tensor:
        """W records."""
        return sum((w[:, None] * records[s] for s, w in self._columns()), start=torch.zeros_like(self.weight[:1, :1]))

    def back(self, rows: Tensor) -> Tensor:
        """Wᵀ rows."""
        records = rows.new_zeros(self.records, rows.shape[1])
        for source, weight in self._columns():
            records.index_add_(0, source.clamp(min=0), weight[:, None] * rows)
        return records

    def squared(self) -> MixingMatrix:
        return MixingMatrix(self.source, self.weight.square(), self.records)

    def _columns(self) -> list[tuple[Tensor, Tensor]]:
        return list(zip(self.source.T, self.weight.T, strict=True))


@remembered
def _public_prior(public: Rows) -> Prior:
    return priors.of_public(public)


@remembered
def _own_prior(release: Release) -> Prior:
    """Cov(x̃) = E[Σw²] Σ + noise: both are known, so the records' covariance follows. The mean of few noisy rows is
    worth less than no guess: it is shrunk to the centre by what noise it carries (James and Stein)."""
    mixing = release.encoder.visible(release.payload)
    if mixing is None:
        raise CannotAttackError(note("attack-needs-linear", encoder=release.encoder.name))
    share, noise = mixing
    found = priors.of_noisy(release.payload, release.shape, noise, share, enough=_ENOUGH)
    carried = noise * len(found.mean) / len(release.payload)
    mean = found.mean * max(0.0, 1 - carried / max(float(found.mean.square().sum()), 1e-300))
    return Prior(release.encoder.restore(mean), found.directions, found.variance)
