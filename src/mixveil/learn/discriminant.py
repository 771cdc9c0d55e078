"""The noise-aware linear discriminant: what can be learned from mixed and noisy records, in closed form.

    rows = soft labels · class means + mixed deviations + noise

Class means by least squares on the soft labels, each release weighed by its precision. The within-class covariance is
the public one, where records were whitened by it; else it is what the means leave, less the known noise, over the
share that mixing leaves of a variance, and only as far as noise cannot explain it. Where labels were randomised, a
row is explained by the classes that its labels make likely. No setting is fitted to a test set, and rows are read block
by block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError
from mixveil.core.types import Progress, Release
from mixveil.features.projection import Projection
from mixveil.learn.class_means import class_means
from mixveil.releases.kinds.sums import sums_of
from mixveil.releases.second_moments import Scatter
from mixveil.theory.response import posterior
from mixveil.theory.shrinkage import shrunk_means

_ROWS = 8192
_WIDEST = 8192  # values of a row: of wider ones a covariance takes too much memory


@dataclass(frozen=True)
class Discriminant:
    """Scores of (m, k) records are records · weight + bias. dropped: how much of the private covariance was noise."""

    weight: Tensor
    bias: Tensor
    dropped: float

    def __call__(self, z: Tensor) -> Tensor:
        return z.double() @ self.weight + self.bias


@dataclass
class _Equations:
    """Of one release: YᵀY, YᵀR, RᵀR, its rows, what mixing leaves of a variance, the noise's variance, and how much is
    not known of a record's class: the variance of its true label, given the one that is said (0 if that is it)."""

    labels: Tensor
    cross: Tensor
    second: Tensor
    rows: int
    share: float
    noise: float
    doubt: float

    def precision(self, scale: float, spread: float) -> float:
        """Of a row, where records vary by `scale` within their classes. Where labels were randomised: by what the rows
        vary in all, but for what their labels can explain of classes that vary by `spread`."""
        if not self.doubt:
            return 1 / (self.share * scale + self.noise)
        total = self.labels.sum()
        shares, common = self.labels.sum(1) / total, self.cross.sum(0) / total
        varies = float(self.second.trace() / self.rows - common.square().sum()) / len(self.second)
        explained = float(1 - shares.square().sum()) - self.doubt
        return 1 / max(varies - self.share * spread * explained, self.noise, 1e-12)


def from_records(
    releases: Sequence[Release], projection: Projection | None = None, *, progress: Progress = lambda _: None
) -> Discriminant:
    """From releases of records in the same space. Through a projection the public within-class covariance there is the
    identity, and is taken as it is: a private one from clipped records was worse wherever it was tried. Else it is
    estimated. The means that the projection's statistics found are counted in, by their precision."""
    found = [_equations(release, progress) for release in releases]
    met = _sum([part.labels for part in found]).diagonal() > 0
    labels, cross, means = _means(found, 1.0)
    scale = 1e-12
    for _ in range(3 if projection is None else 0):  # how much records vary, and what follows for their means
        scale = max(float(_within(found, means, scale)[0].diagonal().mean()), 1e-12)
        labels, cross, means = _means(found, scale)
    if projection is None:
        return _discriminant(means, *_shrunk(*_within(found, means, scale)), met)
    if len(projection.precision) == len(met):
        means = _with_earlier(labels, cross, means, projection)
    return _discriminant(means, torch.eye(means.shape[1], dtype=torch.float64), 1.0, met)


def _means(found: list[_Equations], scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """The normal equations of all releases, and the class means that solve them. scale: how much records vary within
    their classes."""

    def equations(spread: float) -> tuple[Tensor, Tensor]:
        weights = [part.precision(scale, spread) for part in found]
        labels = _sum([weight * part.labels for weight, part in zip(weights, found, strict=True)])
        return labels, _sum([weight * part.cross for weight, part in zip(weights, found, strict=True)])

    labels, cross = equations(0.0)
    if any(part.doubt for part in found):
        return labels, cross, shrunk_means(equations)
    return labels, cross, torch.linalg.pinv(labels, hermitian=True) @ cross


def _with_earlier(labels: Tensor, cross: Tensor, means: Tensor, projection: Projection) -> Tensor:
    """Least squares with the means of the statistics as further rows. Records were clipped once more, in fewer
    directions, so their means are others: shorter by one factor, and apart by more than both noises explain. Both are
    estimated from the two sets of means; by what they are apart, the earlier ones count less."""
    known = (projection.precision > 0) & (labels.diagonal() > 0)
    earlier = projection.means.double() * known[:, None]
    factor = float((labels @ means * earlier).sum() / (labels @ earlier * earlier).sum().clamp(min=1e-300))
    factor = min(max(factor, 0.0), 1.0)
    variance = factor**2 / projection.precision.double()[known]
    own = torch.linalg.pinv(labels, hermitian=True).diagonal()[known]
    apart = float((means - factor * earlier)[known].square().mean() - (own + variance).mean())
    precision = torch.zeros(len(labels), dtype=torch.float64)
    precision[known] = 1 / (variance + max(apart, 0.0)).clamp(min=1e-300)
    whole = torch.linalg.pinv(labels + precision.diag(), hermitian=True)
    found: Tensor = whole @ (cross + precision[:, None] * factor * earlier)
    return found


def from_sums(parts: Sequence[Release]) -> Discriminant:
    """From class sums in a whitened space, with the public within-class covariance."""
    means, variance = class_means(parts)
    return _discriminant(means, torch.eye(means.shape[1], dtype=torch.float64), 1.0, variance.isfinite())


def from_moments(parts: Sequence[Release], scattered: Sequence[Scatter]) -> Discriminant:
    """From class sums, and second moments in their first directions: there the within-class covariance is the private
    one, as far as noise cannot explain that it differs from the public one, the identity; elsewhere it is that."""
    means, variance = class_means(parts)
    rows, few = sum(part.rows for part in scattered), len(scattered[0].second)
    counts = torch.tensor([sums_of(part).counts for part in parts]).sum(0).double()
    near, met = means[:, :few], variance.isfinite()
    between = (near[met] * counts[met, None]).T @ near[met]
    noise = torch.where(met, variance * counts, 0.0).sum()  # of the means themselves, in every direction
    eye = torch.eye(few, dtype=torch.float64)
    found = (_sum([part.second for part in scattered]) - between + noise * eye) / rows
    spread = torch.eye(means.shape[1], dtype=torch.float64)
    spread[:few, :few], dropped = _shrunk(found, sum(part.variance for part in scattered) / rows**2, 1.0)
    return _discriminant(means, spread, dropped, met)


def _discriminant(means: Tensor, spread: Tensor, dropped: float, met: Tensor) -> Discriminant:
    common = means[met].mean(0)
    apart = means - common  # what all classes share says nothing, and would drown small differences
    weight = torch.linalg.solve(spread, apart.T)
    bias = -((common + 0.5 * apart) * weight.T).sum(1)
    bias[~met] = -torch.inf  # nobody has this class
    return Discriminant(weight, bias, dropped)


def _equations(release: Release, progress: Progress) -> _Equations:
    n, classes, k = len(release.payload), len(release.classes), torch.Size(release.shape).numel()
    if k > _WIDEST:
        raise ArgumentError(
            f"rows of {k:,} values are too wide for the discriminant, which needs their covariance ({_WIDEST:,} at "
            f"most): go through a projection, or train the head mlp"
        )
    mixing = release.encoder.visible(release.payload)
    if mixing is None:
        raise ArgumentError(
            f"rows of the encoder {release.encoder.name} are no weighed sums of records, which the discriminant needs: "
            f"train the head mlp"
        )
    found = _Equations(
        torch.zeros(classes, classes, dtype=torch.float64),
        torch.zeros(classes, k, dtype=torch.float64),
        torch.zeros(k, k, dtype=torch.float64),
        n,
        *mixing,
        0.0,
    )
    for index in torch.split(torch.arange(n), _ROWS):
        batch = release.payload.take(index)
        x, y = release.encoder.restore(batch.x.flatten(1).double()), batch.y.double()
        found.labels.addmm_(y.T, y)
        found.cross.addmm_(y.T, x)
        found.second.addmm_(x.T, x)
        progress(len(index))
    return found if release.label_epsilon is None else _debiased(found, release.label_epsilon)


def _debiased(found: _Equations, epsilon: float) -> _Equations:
    """Labels that were randomised say how likely each class is: rows are explained by those shares instead."""
    said = found.labels.sum(1)
    shares = posterior(said, epsilon)
    doubt = float((said / said.sum()) @ (1 - shares.square().sum(1)))
    return replace(found, labels=shares.T @ found.labels @ shares, cross=shares.T @ found.cross, doubt=doubt)


def _within(found: list[_Equations], means: Tensor, scale: float) -> tuple[Tensor, float]:
    """The within-class covariance, and the variance of one entry of it. scale: about how large its diagonal is."""
    total, weight = torch.zeros_like(found[0].second), 0.0
    for part in found:
        explained = part.cross.T @ means
        left = (part.second - explained - explained.T + means.T @ part.labels @ means) / part.rows
        left = (left - part.noise * torch.eye(len(left), dtype=torch.float64)) / part.share
        precision = part.rows / (scale + part.noise / part.share) ** 2
        total += precision * left
        weight += precision
    return total / weight, 1 / weight


def _shrunk(found: Tensor, variance: float, scale: float | None = None) -> tuple[Tensor, float]:
    """The same variance in all directions (scale; the average one, if none is given), and of what differs from it as
    much as noise cannot explain: eigenvalues of the difference beyond the edge 2√k sd of pure noise, less that edge.
    Also how much was dropped."""
    scale, k = max(float(found.diagonal().mean()), 1e-12) if scale is None else scale, len(found)
    target = scale * torch.eye(k, dtype=torch.float64)
    values, vectors = torch.linalg.eigh(found - target)
    edge = 2 * math.sqrt(k * variance)
    kept = values.sign() * (values.abs() - edge).clamp(min=0)
    dropped = 1 - float(kept.abs().sum() / values.abs().sum().clamp(min=1e-300))
    values, vectors = torch.linalg.eigh(target + (vectors * kept) @ vectors.T)
    return (vectors * values.clamp(min=0.1 * scale)) @ vectors.T, dropped


def _sum(parts: list[Tensor]) -> Tensor:
    return torch.stack(parts).sum(0)
