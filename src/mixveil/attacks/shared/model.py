"""What the linear and the likelihood attacks share: what records are like, and how a release was made of them.

In the eigenbasis of the records' covariance directions decouple, so every attack works on coordinates: records are
(n, k) with variance λ in each of k directions, and rows are W times records plus noise.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import TypeVar

import torch
from torch import Tensor

from mixveil.attacks.shared.base import CannotAttackError, not_linear
from mixveil.core.errors import ArgumentError
from mixveil.core.types import Batch, Release, Rows, Trace, View
from mixveil.core.wording.notes import note
from mixveil.data.covers import Covered
from mixveil.data.row_views import RowsView, Subset
from mixveil.theory.moments import DENSE_LIMIT, blocks

_FLOOR = 1e-9  # of the largest variance: what is never seen to vary may still vary a little
_MOST_ROWS = 20_000  # of public data: more hardly change a covariance
_MOST_VALUES = 1 << 27
_CLIPPED_ROWS = 2000
_ENOUGH = 20  # noisy rows a value, for a covariance of the rows themselves

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Prior:
    """What records are like, in the data's own values: mean (d,); basis (d, k), orthonormal; variance (k,) in its
    directions."""

    mean: Tensor
    basis: Tensor
    variance: Tensor

    def images(self, view: View, coordinates: Tensor) -> Tensor:
        """(n, …) in the data's own values, from coordinates."""
        return (self.mean + coordinates @ self.basis.T).view(-1, *view.releases[0].shape)


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


def prior_of(view: View) -> Prior:
    """From public data if there are any, else from the release itself."""
    return _public_prior(view.public) if view.public is not None else _own_prior(view.releases[0])


def entry_of(view: View, t: int, prior: Prior) -> EntryMap:
    """How records enter release t. Without public data it is not known what clipping did, and nothing is assumed."""
    prepare, mean = view.releases[t].encoder.prepare, prior.mean
    flat = torch.ones_like(prior.variance)
    if view.public is None:
        return EntryMap(prepare(mean[None])[0], flat, 0 * flat)
    some = view.public.take(spaced(len(view.public), min(_CLIPPED_ROWS, _MOST_VALUES // len(mean))))
    x, z = some.x.flatten(1).double(), prepare(some.x)
    offset = (z - (x - mean)).mean(0)
    if torch.allclose(z, x - mean + offset, atol=1e-9):
        return EntryMap(offset, flat, 0 * flat)
    offset = z.mean(0)
    x, z = (x - mean) @ prior.basis, (z - offset) @ prior.basis
    gain = (x * z).sum(0) / x.square().sum(0).clamp(min=1e-300)
    return EntryMap(offset, gain, (z - gain * x).square().mean(0))


def released(release: Release) -> Tensor:
    """(n, d) float64: all rows."""
    return torch.cat(list(blocks(release.payload)))


def coordinates(release: Release, entry: EntryMap, prior: Prior) -> Tensor:
    """(n, k): all rows, less what the mean record gives to each (a row's weights sum to one)."""
    return torch.cat([(block - entry.offset) @ prior.basis for block in blocks(release.payload)])


def noise_variance(release: Release, weight: Tensor) -> Tensor:
    """(n,) the variance of the noise in one value of each row."""
    return release.encoder.deviation(weight).square()


def traces_of(view: View) -> tuple[Trace, ...]:
    if view.traces is None or len(view.traces) != len(view.releases):
        raise ArgumentError("this attack needs the traces of all releases")
    check_linear(view)
    return view.traces


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
        own = [torch.arange(len(trace.weight))[:, None] for trace in traces]
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
        return sum((w[:, None] * records[s] for s, w in self._columns()), start=torch.zeros(1, dtype=torch.float64))

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
    one = public.take(torch.tensor([0])).x.numel()
    few = min(_MOST_ROWS, max(2, _MOST_VALUES // one)) if one > DENSE_LIMIT else _MOST_ROWS
    return _fitted(Subset(public, spaced(len(public), few)), 0.0, 1.0)


@remembered
def _own_prior(release: Release) -> Prior:
    """Cov(x̃) = E[Σw²] Σ + noise: both are known, so the records' covariance follows. The mean of few noisy rows is
    worth less than no guess: it is shrunk to the centre by what noise it carries (James and Stein)."""
    mixing = release.encoder.visible(release.payload)
    if mixing is None:
        raise CannotAttackError(note("attack-needs-linear", encoder=release.encoder.name))
    share, noise = mixing
    values = math.prod(release.shape)
    few = len(release.payload) < _ENOUGH * values
    smooth = few and len(release.shape) == 3
    rows = release.payload
    found = _smooth(rows, release.shape, noise, share) if smooth else _fitted(rows, noise, share)
    carried = noise * len(found.mean) / len(release.payload)
    mean = found.mean * max(0.0, 1 - carried / max(float(found.mean.square().sum()), 1e-300))
    return Prior(release.encoder.restore(mean), found.basis, found.variance)


def _fitted(rows: Rows, noise: float, share: float) -> Prior:
    """The prior of rows, less their noise, over the share that mixing leaves of a variance.

    Directions that few rows leave unseen get a hundredth of the average variance, not none; only in very many
    dimensions does the basis span no more than the rows."""
    n, mean = len(rows), _total(blocks(rows)) / len(rows)
    few = n <= len(mean)
    if not few or len(mean) <= DENSE_LIMIT:
        covariance = torch.zeros(len(mean), len(mean), dtype=torch.float64)
        for block in blocks(rows):
            covariance.addmm_((block - mean).T, block - mean)
        variance, basis = torch.linalg.eigh(covariance / n)
    else:
        centred = torch.cat([block - mean for block in blocks(rows)])
        squared, left = torch.linalg.eigh(centred @ centred.T / n)
        kept = squared > squared[-1] * 1e-12
        variance = squared[kept]
        basis = centred.T @ left[:, kept] / (variance * n).sqrt()
    if not len(variance) or not float(variance[-1]) > 0:
        raise CannotAttackError(note("known-records-do-not-vary"))
    signal = ((variance - noise) / share).clamp(min=0)
    least = 1e-2 * float(signal.mean()) if few else 0.0
    return Prior(mean, basis, signal.clamp(min=max(least, float(variance[-1]) * _FLOOR)))


def _smooth(rows: Rows, shape: tuple[int, ...], noise: float, share: float) -> Prior:
    """The prior of images where few rows are seen: their cosine transform, one variance for all waves of a length.

    So many variances are far fewer than a covariance has, and even a few noisy rows tell them."""
    count = math.prod(shape)
    waves = torch.cartesian_prod(*(torch.arange(size) for size in shape))
    length = waves[:, 1:].double().square().sum(1).sqrt().round().long()
    kept = length.argsort(stable=True)[: min(count, DENSE_LIMIT)]
    channel, down, across = (cosines(size)[w] for size, w in zip(shape, waves[kept].T, strict=True))
    basis = torch.einsum("kc,kh,kw->chwk", channel, down, across).reshape(count, -1)
    mean = _total(blocks(rows)) / len(rows)
    energy = _total(((block - mean) @ basis).square() for block in blocks(rows)) / max(1, len(rows) - 1)
    group = waves[kept, 0] * (int(length.max()) + 1) + length[kept]
    total = torch.zeros(int(group.max()) + 1, dtype=torch.float64).index_add_(0, group, energy)
    average = (total / group.bincount(minlength=len(total)).clamp(min=1))[group]
    signal = ((average - noise) / share).clamp(min=0)
    if not float(average.max()) > 0:
        raise CannotAttackError(note("known-records-do-not-vary"))
    return Prior(mean, basis, signal.clamp(min=float(average.max()) * _FLOOR))


def _total(parts: Iterable[Tensor]) -> Tensor:
    """The sum over all rows of all parts."""
    return sum((part.sum(0) for part in parts), start=torch.zeros(1, dtype=torch.float64))


def cosines(size: int) -> Tensor:
    """(size, size): the orthonormal cosine transform, a wave a row."""
    place, wave = torch.arange(size).double() + 0.5, torch.arange(size).double()
    found = torch.cos(math.pi / size * wave[:, None] * place) * math.sqrt(2 / size)
    found[0] /= math.sqrt(2)
    return found


def spaced(n: int, most: int) -> Tensor:
    """Up to so many of n rows, evenly spread over them: sets are often sorted by class."""
    return torch.linspace(0, n - 1, min(n, max(2, most))).round().long()
