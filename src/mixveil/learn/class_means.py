"""The classes' means from noisy class sums of several parties, and the directions in which they differ."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError, MismatchError, TrainingError
from mixveil.core.types import Release
from mixveil.features.projection import Projection, Used
from mixveil.releases.kinds.sums import sums_of
from mixveil.theory.response import posterior
from mixveil.theory.shrinkage import shrunk_means


def class_means(parts: Sequence[Release]) -> tuple[Tensor, Tensor]:
    """(classes, k) the means that all parties' sums say, and (classes,) the variance of one value of each.

    A sum of n records with within-class variance 1 has the variance n + σ²: every party counts by its precision. Where
    labels were randomised, a sum is one of all classes, by the shares that its records have of them. A class without
    records gets the mean 0 and an infinite variance."""
    bottom, top = _normal_equations(parts, 0.0)
    met = bottom.diagonal() > 0
    solved = torch.linalg.pinv(bottom, hermitian=True)
    means = solved @ top
    if any(part.label_epsilon is not None for part in parts):
        means = shrunk_means(lambda spread: _normal_equations(parts, spread))
    variance = torch.where(met, solved.diagonal(), torch.inf)
    return torch.where(met[:, None], means, 0.0), variance


def _normal_equations(parts: Sequence[Release], spread: float) -> tuple[Tensor, Tensor]:
    """(classes, classes) and (classes, k) of least squares on all sums. spread: how much the classes' means vary, and
    with them the records of a sum where their classes are not known."""
    classes = len(parts[0].classes)
    top, bottom = torch.zeros_like(parts[0].payload), torch.zeros(classes, classes, dtype=torch.float64)
    for part in parts:
        settings = sums_of(part)
        counts = torch.tensor(settings.counts, dtype=torch.float64)
        shares = torch.eye(classes, dtype=torch.float64)
        if part.label_epsilon is not None:
            shares = posterior(counts, part.label_epsilon)
        within = 1 + spread * (1 - shares.square().sum(1))
        precision = counts / (counts * within + settings.sigma**2)
        top += shares.T @ (precision[:, None] * part.payload)
        bottom += shares.T @ ((precision * counts)[:, None] * shares)
    return bottom, top


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
    spent = tuple(
        Used(p.id, p.party, p.mu or 0.0, p.unit_rows, None if p.reproducible else p.label_epsilon) for p in parts
    )
    return projection.along(along, means, 1 / variance, parts[0].classes, projection.spent + spent)


def check_together(parts: Sequence[Release], projection: Projection, digest: str) -> None:
    """Refuse statistics that do not belong together, or to the projection."""
    if not parts:
        raise ArgumentError("no statistics are given")
    for part in parts:
        settings, whose = sums_of(part), f"the statistics {part.id[:8]} of {part.party}"
        if (used := part.assets["projection"]) != digest:
            raise MismatchError(f"{whose} were made with the projection {used[:8]}, not with {digest[:8]}")
        if settings.dimension != projection.dimension or not math.isclose(settings.clip, projection.clip, rel_tol=1e-6):
            raise MismatchError(
                f"{whose} state {settings.dimension} values clipped to {settings.clip:g}, their projection has "
                f"{projection.dimension} clipped to {projection.clip:g}"
            )
        if part.classes != parts[0].classes or (projection.classes and part.classes != projection.classes):
            raise MismatchError(f"{part.party} and {parts[0].party} do not have the same classes in the same order")
    if len({part.id for part in parts}) != len(parts):
        raise MismatchError("the same statistics are given twice: they would count twice")
