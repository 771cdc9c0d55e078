"""The noise-aware linear discriminant: a closed-form head from mixed and noisy records.

    rows = soft labels · class means + mixed deviations + noise

Class means come from least squares on the soft labels, where each release is weighed by its precision. Where records
were whitened, the within-class covariance is the public one, the identity. Otherwise it is the covariance that the
means leave unexplained, less the known noise, over the share of a variance that mixing leaves, and only as far as noise
cannot explain it. A row with a randomised label is explained by the classes that the label makes likely. No setting is
fitted to a test set, and rows are read block by block.
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
from mixveil.learn.class_means import class_counts, class_means, totals
from mixveil.releases.kinds.sums import sums_of
from mixveil.releases.second_moments import Scatter
from mixveil.theory.response import posterior
from mixveil.theory.shrinkage import shrunk_means

_ROWS = 8192
_WIDEST = 8192  # values of a row: the covariance of wider rows takes too much memory


@dataclass(frozen=True)
class Discriminant:
    """A linear head: the scores of (m, k) records are records · weight + bias.

    Attributes:
        weight: (k, classes).
        bias: (classes,); −∞ for a class without rows.
        dropped: The share of the private covariance that was dropped as noise.
    """

    weight: Tensor
    bias: Tensor
    dropped: float

    def __call__(self, z: Tensor) -> Tensor:
        return z.double() @ self.weight + self.bias


@dataclass
class _Equations:
    """The normal equations of one release with soft labels Y and rows R.

    Attributes:
        labels: (classes, classes) YᵀY.
        cross: (classes, k) YᵀR.
        second: (k, k) RᵀR.
        share: What mixing leaves of a variance.
        noise: Its variance.
        doubt: The variance of the true label given the reported label; 0 where labels are shown.
    """

    labels: Tensor
    cross: Tensor
    second: Tensor
    rows: int
    share: float
    noise: float
    doubt: float

    def precision(self, scale: float, spread: float) -> float:
        """The precision of a row whose record varies by `scale` within its class. With randomised labels: the inverse
        of the total variance of the rows, less what their labels explain of classes that vary by `spread`."""
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
    """The head of releases of records in the same space. Behind a projection the within-class covariance is the public
    one, the identity; a private covariance of clipped records was worse wherever it was tried. Otherwise it is
    estimated. The class means in the projection are counted in by their precision."""
    found = [_equations(release, progress) for release in releases]
    present = _sum([part.labels for part in found]).diagonal() > 0
    labels, cross, means = _means(found, 1.0)
    scale = 1e-12
    for _ in range(3 if projection is None else 0):  # how much records vary, and what follows for their means
        scale = max(float(_within(found, means, scale)[0].diagonal().mean()), 1e-12)
        labels, cross, means = _means(found, scale)
    if projection is None:
        return _discriminant(means, *_shrunk(*_within(found, means, scale)), present)
    if len(projection.precision) == len(present):
        means = _with_earlier(labels, cross, means, projection)
    return _discriminant(means, torch.eye(means.shape[1], dtype=torch.float64), 1.0, present)


def _means(found: list[_Equations], scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """The normal equations of all releases, and the class means that solve them. scale: the variance of records within
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
    """Least squares with the means of the statistics as additional rows.

    The records were clipped once more, in fewer directions, so that their means differ: they are shorter by one factor,
    and farther away than both noises explain. Both are estimated from the two sets of means; the larger the difference,
    the less the earlier means count.
    """
    known = (projection.precision > 0) & (labels.diagonal() > 0)
    earlier = projection.means.double() * known[:, None]
    factor = float((labels @ means * earlier).sum() / (labels @ earlier * earlier).sum().clamp(min=1e-300))
    factor = min(max(factor, 0.0), 1.0)
    variance = factor**2 / projection.precision.double()[known]
    own = torch.linalg.pinv(labels, hermitian=True).diagonal()[known]
    difference = float((means - factor * earlier)[known].square().mean() - (own + variance).mean())
    precision = torch.zeros(len(labels), dtype=torch.float64)
    precision[known] = 1 / (variance + max(difference, 0.0)).clamp(min=1e-300)
    whole = torch.linalg.pinv(labels + precision.diag(), hermitian=True)
    combined: Tensor = whole @ (cross + precision[:, None] * factor * earlier)
    return combined


def from_sums(parts: Sequence[Release]) -> Discriminant:
    """The head of class sums in a whitened space, with the public within-class covariance."""
    means, variance = class_means(parts)
    return _discriminant(means, torch.eye(means.shape[1], dtype=torch.float64), 1.0, variance.isfinite())


def from_moments(parts: Sequence[Release], scattered: Sequence[Scatter]) -> Discriminant:
    """The head of class sums and of second moments in their first directions. There the within-class covariance is the
    private one, as far as noise cannot explain its difference from the identity; in all others it is the identity."""
    means, variance = class_means(parts)
    rows, few = sum(part.rows for part in scattered), len(scattered[0].second)
    counts, _ = class_counts(totals(parts), sums_of(parts[0]).clip)
    near, present = means[:, :few], variance.isfinite()
    between = (near[present] * counts[present, None]).T @ near[present]
    noise = torch.where(present, variance * counts, 0.0).sum()  # of the means themselves, in every direction
    eye = torch.eye(few, dtype=torch.float64)
    found = (_sum([part.second for part in scattered]) - between + noise * eye) / rows
    spread = torch.eye(means.shape[1], dtype=torch.float64)
    spread[:few, :few], dropped = _shrunk(found, sum(part.variance for part in scattered) / rows**2, 1.0)
    return _discriminant(means, spread, dropped, present)


def _discriminant(means: Tensor, spread: Tensor, dropped: float, present: Tensor) -> Discriminant:
    common = means[present].mean(0)
    difference = means - common  # the common mean separates no classes, and would drown small differences
    weight = torch.linalg.solve(spread, difference.T)
    bias = -((common + 0.5 * difference) * weight.T).sum(1)
    bias[~present] = -torch.inf  # no party has this class
    return Discriminant(weight, bias, dropped)


def _equations(release: Release, progress: Progress) -> _Equations:
    n, classes, k = len(release.payload), len(release.classes), torch.Size(release.shape).numel()
    if k > _WIDEST:
        raise ArgumentError(
            f"the discriminant takes at most {_WIDEST:,} values of a row, got {k:,}: use a projection or mlp"
        )
    mixing = release.encoder.visible(release.payload)
    if mixing is None:
        name = release.encoder.name
        raise ArgumentError(
            f"the discriminant needs weighed sums of records, got rows of {name}: train the head mlp, or resnet18 on "
            f"images"
        )
    sizes = (classes, classes), (classes, k), (k, k)
    labels, cross, second = (torch.zeros(size, dtype=torch.float64) for size in sizes)
    found = _Equations(labels, cross, second, n, *mixing, 0.0)
    for index in torch.split(torch.arange(n), _ROWS):
        batch = release.payload.take(index)
        x, y = release.encoder.restore(batch.x.flatten(1).double()), batch.y.double()
        found.labels.addmm_(y.T, y)
        found.cross.addmm_(y.T, x)
        found.second.addmm_(x.T, x)
        progress(len(index))
    return found if release.label_epsilon is None else _debiased(found, release.label_epsilon)


def _debiased(found: _Equations, epsilon: float) -> _Equations:
    """Randomised labels become the probabilities of the classes, which explain the rows instead."""
    reported = found.labels.sum(1)
    shares = posterior(reported, epsilon)
    doubt = float((reported / reported.sum()) @ (1 - shares.square().sum(1)))
    return replace(found, labels=shares.T @ found.labels @ shares, cross=shares.T @ found.cross, doubt=doubt)


def _within(found: list[_Equations], means: Tensor, scale: float) -> tuple[Tensor, float]:
    """The within-class covariance, and the variance of one of its entries. scale: the size of its diagonal."""
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
    """A covariance shrunk towards `scale` times the identity (None: its mean variance), and the share that was dropped.
    Of the difference only the eigenvalues beyond the edge 2√k sd of pure noise are kept, less that edge."""
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
