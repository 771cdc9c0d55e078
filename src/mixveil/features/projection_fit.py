"""Fitting a projection to labelled PUBLIC features, and the number of directions to use of it.

The within-class covariance of the public data whitens all directions. They are ordered by how much public features vary
in them, so that the first k directions are a projection as well.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError
from mixveil.data.fingerprint import fingerprints
from mixveil.features.cache import Features
from mixveil.features.projection import Projection
from mixveil.theory import gdp
from mixveil.theory.moments import blocks

RIDGE = 0.1
"""Of the mean variance, added to each direction's before whitening: few public rows say little of small variances."""

_SAMPLE = 2000
Whitening = Literal["within", "total"]


def fit(
    features: Features,
    weights: str,
    *,
    whitening: Whitening = "within",
    origin: Literal["public", "private"] = "public",
) -> Projection:
    """Mean, whitening and ordered directions of labelled features. Reads them twice."""
    found = whitened(features, whitening)
    sample, prints = found.sample, fingerprints(features.rows)
    if origin == "private":  # it may be sent: it carries no record, and nothing that tells of one
        sample, prints = sample[:0], prints[:0]
    rows, classes = len(features), found.classes
    return Projection(
        mean=found.mean.float(),
        matrix=found.matrix.float(),
        clip=float(found.norms[-1]),
        separation=found.separation.float(),
        norms=found.norms.float(),
        sample=sample.half(),
        prints=prints,
        extractor=features.extractor,
        weights=weights,
        origin=origin,
        means=torch.empty(0, len(found.mean)),
        precision=torch.empty(0),
        about={"rows": str(rows), "classes": str(classes), "whitening": whitening, "ridge": f"{RIDGE:g}"},
    )


class Whitened(NamedTuple):
    """What labelled features show; all float64.

    Attributes:
        mean: (d,); matrix: (d, d) whitens, and orders directions by how much features vary in them.
        separation: (d,) the mean squared distance of two classes in each direction.
        norms: (d,) the median norm in the first 1…d directions; sample: (m, d) the rows of which it is the median.
        classes: How many there are.
    """

    mean: Tensor
    matrix: Tensor
    separation: Tensor
    norms: Tensor
    sample: Tensor
    classes: int


def whitened(features: Features, whitening: Whitening = "within") -> Whitened:
    """The whitening of labelled features, and how they lie in it."""
    n = checks.enough_rows(len(features))
    counts, sums, second = _moments(features)
    present = counts > 0
    mean, means = sums.sum(0) / n, sums[present] / counts[present, None]
    total = second / n - mean.outer(mean)
    between = ((means - mean) * (counts[present] / n)[:, None]).T @ (means - mean)
    if whitening == "within" and int(present.sum()) < 2:
        raise ArgumentError("whitening within needs labelled data of at least two classes: use total")
    matrix = _whitening(total - between if whitening == "within" else total, total)
    centred = (means - mean) @ matrix
    separation = 2 * (centred.var(0) - (1 / counts[present]).mean()).clamp(min=0) if len(means) > 1 else 0 * centred[0]
    index = torch.linspace(0, n - 1, min(n, _SAMPLE)).round().long()
    sample = (features.take(index).x.double() - mean) @ matrix
    norms = sample.square().cumsum(1).sqrt().median(0).values
    return Whitened(mean, matrix, separation, norms, sample, int(present.sum()))


def _moments(features: Features) -> tuple[Tensor, Tensor, Tensor]:
    """(classes,) rows of each class, (classes, d) their sums, and (d, d) the sum of all outer products."""
    classes, d = len(features.classes), features.dimension
    sums, second = torch.zeros(classes, d, dtype=torch.float64), torch.zeros(d, d, dtype=torch.float64)
    start = 0
    for block in blocks(features):
        sums.index_add_(0, features.labels[start : start + len(block)], block)
        second.addmm_(block.T, block)
        start += len(block)
    return features.labels.bincount(minlength=classes).double(), sums, second


def _whitening(spread: Tensor, total: Tensor) -> Tensor:
    """(d, d) columns that whiten `spread`; the first k of them span the k directions of most `total` variance."""
    level = float(spread.diagonal().mean())
    if not level > 0:
        raise ArgumentError("the public data do not vary: there is nothing to whiten")
    values, vectors = torch.linalg.eigh(spread + RIDGE * level * torch.eye(len(spread), dtype=torch.float64))
    order = torch.linalg.eigh(total).eigenvectors.flip(1)
    nested = torch.linalg.qr((vectors * values.sqrt()).T @ order).Q
    whitened: Tensor = (vectors / values.sqrt()) @ nested
    return whitened


def directions_for_sums(projection: Projection, *, parties: int, rows: int, classes: int, mu: float) -> int:
    """How many directions to use for class sums at μ, from public figures alone. rows: of all parties.

    With k directions the means of two classes are Δ² apart (as public classes are) and carry noise of kν each, where
    ν = P (2C/μ)² over the squared rows of a class. A discriminant along their noisy difference separates the classes by
    Δ⁴/(Δ² + 2kν): the result is the k that makes this largest.
    """
    checks.at_least("parties", parties, 1)
    each = max(1.0, rows / classes)
    noise = (2 * projection.norms.double() / checks.finite_positive("mu", mu) / each).square()
    return _widest(projection, parties * noise)


def directions_for_records(projection: Projection, *, rows: int, classes: int, mu: float, alpha: float) -> int:
    """The same for mixed records at μ, whose noise averages out over the rows of a class, at all parties."""
    noise = (2 * projection.norms.double() / checks.finite_positive("mu", mu)).square()
    return _widest(projection, noise * gdp.record_factor(alpha) ** 2 / 2 / max(1.0, rows / classes))


def _widest(projection: Projection, noise: Tensor) -> int:
    separation, k = projection.separation.double().cumsum(0), torch.arange(1, projection.dimension + 1)
    if not float(separation[-1]) > 0:
        raise ArgumentError("the public data do not show how far classes are apart: give the number of directions, k")
    return int((separation.square() / (separation + 2 * k * noise).clamp(min=1e-300)).argmax()) + 1
