"""The classes' means from noisy class sums of several parties, and the directions in which they differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError, MismatchError, TrainingError
from mixveil.core.types import Release
from mixveil.features.projection import Projection, Used
from mixveil.releases.kinds.sums import Content, SumSettings, sums_of

_SEEN = 2.0  # deviations of its noise that a class's count must have


@dataclass(frozen=True)
class Totals:
    """Noisy sums over all parties. A party counts by its precision: fully where it has the least noise of all.

    Attributes:
        sums: (classes, k + 1) of records or residuals, and of what follows them.
        variance: Of the noise of one value.
        units: How many units they are of, weighed alike.
    """

    sums: Tensor
    variance: float
    units: float


def totals(parts: Sequence[Release], content: Content = "classes") -> Totals:
    """The sums of all parties together. Parties with the same noise are simply added up: it does not matter which of
    them has which rows."""
    settings = [sums_of(part, content) for part in parts]
    for part in parts:
        if not part.payload.is_floating_point():
            raise MismatchError(
                f"the sums {part.id[:8]} of {part.party} are masked: only all parties' sum says anything"
            )
    least = min(item.sigma for item in settings)
    weights = [(least / item.sigma) ** 2 for item in settings]
    sums = torch.zeros_like(parts[0].payload)
    for part, weight in zip(parts, weights, strict=True):
        sums += weight * part.payload
    variance = sum((weight * item.sigma) ** 2 for weight, item in zip(weights, settings, strict=True))
    return Totals(sums, variance, sum(w * item.units for w, item in zip(weights, settings, strict=True)))


def of_sum(indices: Tensor, parts: Sequence[Release]) -> Totals:
    """The same from a secure sum: (classes, k + 1) int64, the sum of what all these parties masked. Their noise and
    their step are the same."""
    settings = parts[0].envelope.settings
    if not isinstance(settings, SumSettings):
        raise MismatchError(f"{parts[0].id[:8]} of {parts[0].party} holds {parts[0].envelope.kind}, not sums")
    units = sum(part.envelope.rows for part in parts)
    return Totals(settings.values(indices), len(parts) * settings.sigma**2, units)


def class_counts(found: Totals, clip: float) -> tuple[Tensor, float]:
    """(classes,) noisy numbers of rows, none negative, and the variance of their noise."""
    return (found.sums[:, -1] / clip).clamp(min=0), found.variance / clip**2


def class_means(parts: Sequence[Release]) -> tuple[Tensor, Tensor]:
    """(classes, k) the means that all parties' sums say, and (classes,) the variance of one value of each.

    Counts are noisy: a mean is the sum over its count n as far as noise ν cannot explain the count, S·n/(n² + ν). A sum
    of n records with within-class variance 1 has the variance n + σ². A class whose count noise explains gets an
    infinite variance."""
    found, clip = totals(parts), sums_of(parts[0]).clip
    counts, noise = class_counts(found, clip)
    inverse = counts / (counts.square() + noise)
    seen = counts > _SEEN * math.sqrt(noise)
    if not bool(seen.any()):  # nothing but noise: the largest counts are the best guess there is
        seen = counts > 0
    variance = torch.where(seen, (counts + found.variance) * inverse.square(), torch.inf)
    return torch.where(seen[:, None], found.sums[:, :-1] * inverse[:, None], 0.0), variance


def directions(parts: Sequence[Release], projection: Projection, digest: str) -> Projection:
    """The projection along the directions in which the classes' means differ: one fewer than there are classes."""
    check_together(parts, projection, digest)
    try:
        means, variance = class_means(parts)
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise TrainingError(f"these statistics have no class means: {error}") from None
    met = variance.isfinite()
    if int(met.sum()) < 2:
        raise ArgumentError("the statistics hold fewer than two classes: there is no direction between them")
    if not bool(means.isfinite().all()):
        raise TrainingError("the class means are not finite: the figures of some statistics are too large or too small")
    centred = means[met] - means[met].mean(0)
    along = torch.linalg.svd(centred, full_matrices=False).Vh[: int(met.sum()) - 1].T.float()[:, : projection.dimension]
    spent = tuple(Used(p.id, p.party, p.mu or 0.0, p.unit_rows, p.envelope.label_cost) for p in parts)
    return projection.along(along, means, 1 / variance, parts[0].classes, projection.spent + spent)


def check_together(
    parts: Sequence[Release],
    projection: Projection,
    digest: str,
    *,
    content: Content = "classes",
    clip: float | None = None,
) -> None:
    """Refuse statistics that do not belong together, or to the projection. clip: of what is summed; None: the
    projection's, that of a record."""
    clip = projection.clip if clip is None else clip
    if not parts:
        raise ArgumentError("no statistics are given")
    for part in parts:
        settings, whose = sums_of(part, content), f"the statistics {part.id[:8]} of {part.party}"
        if (used := part.assets["projection"]) != digest:
            raise MismatchError(f"{whose} were made with the projection {used[:8]}, not with {digest[:8]}")
        if settings.dimension != projection.dimension or not math.isclose(settings.clip, clip, rel_tol=1e-6):
            raise MismatchError(
                f"{whose} state {settings.dimension} values clipped to {settings.clip:g}, their projection has "
                f"{projection.dimension} clipped to {clip:g}"
            )
        if part.classes != parts[0].classes or (projection.classes and part.classes != projection.classes):
            raise MismatchError(f"{part.party} and {parts[0].party} do not have the same classes in the same order")
    if len({part.id for part in parts}) != len(parts):
        raise MismatchError("the same statistics are given twice: they would count twice")
