"""Directions in which rows vary alike: there inner products show what rows share.

All natural images share low frequencies, so that their plain inner products say little. What rows are like is learned
from the rows themselves: of many rows their covariance; of few images the cosine transform, whose waves hardly depend
on one another, with one variance a wave. No public data are needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mixveil.attacks.shared import model
from mixveil.attacks.shared.directions import Waves
from mixveil.attacks.shared.prior import total
from mixveil.core.types import Release, View
from mixveil.theory.moments import DENSE_LIMIT

MOST_ROWS = 10_000
"""Rows of all releases together that are compared with one another: of more releases the first ones."""

_ENOUGH = 2  # rows a value, for their covariance
_FLOOR = 1e-3  # of the mean variance: what is added to each


@dataclass(frozen=True)
class Whitening:
    """Orthonormal directions, with what rows do in them.

    Attributes:
        shape: Of a row.
        basis: (d, d) a direction a column; None: the waves of the cosine transform, or the values themselves where rows
            are no images.
        variance: (d,) of the rows.
        signal: (d,) what of the variance is not noise.
    """

    shape: tuple[int, ...]
    basis: Tensor | None
    variance: Tensor
    signal: Tensor

    def coordinates(self, x: Tensor) -> Tensor:
        """(n, d) of centred rows (n, d)."""
        if self.basis is not None:
            return x @ self.basis.to(x)
        return x if len(self.shape) != 3 else self._waves(x).coordinates(x)

    def back(self, coordinates: Tensor) -> Tensor:
        """(n, d) centred rows, of coordinates."""
        if self.basis is not None:
            return coordinates @ self.basis.T.to(coordinates)
        return coordinates if len(self.shape) != 3 else self._waves(coordinates).back(coordinates)

    def white(self, x: Tensor) -> Tensor:
        """(n, d) centred rows, by directions, each with variance one."""
        return self.coordinates(x) / self.variance.sqrt().to(x)

    def alike(self, x: Tensor) -> Tensor:
        """(n, n) how much two centred rows agree, from −1 to 1: the cosine of their coordinates, weighed as the
        likelihood ratio of a shared source weighs them if its share is small."""
        told = torch.empty(x.shape)
        for part in model.in_parts(*x.shape):
            told[part] = self.coordinates(x[part]) * self.telling.to(x)
        told /= torch.linalg.vector_norm(told, dim=1, keepdim=True).clamp(min=1e-30)
        return told @ told.T

    @property
    def telling(self) -> Tensor:
        """(d,) what coordinates are weighed by where rows are compared."""
        return self.signal.sqrt() / self.variance

    def _waves(self, x: Tensor) -> Waves:
        return Waves(self.shape, x.device)


def whitening(x: Tensor, shape: tuple[int, ...], noise: float = 0.0) -> Whitening:
    """What centred rows (n, d) are like. noise: the variance of the noise in one value."""
    n, d = x.shape
    basis = None
    if n >= _ENOUGH * d and d <= DENSE_LIMIT:
        variance, basis = torch.linalg.eigh(x.T @ x / n)
    else:
        none = torch.ones(d, dtype=x.dtype)
        waves = Whitening(shape, None, none, none)
        variance = total(waves.coordinates(x[part]).square() for part in model.in_parts(n, d)) / n
    floor = max(_FLOOR * float(variance.mean()), 1e-30)
    variance = variance.clamp(min=0) + floor
    return Whitening(shape, basis, variance, (variance - noise).clamp(min=floor))


def first_rows(view: View) -> list[Tensor]:
    """(n, d) rows of the first releases, no more than can be compared with one another; at least of one."""
    found: list[Tensor] = []
    count = 0
    for release in view.releases:
        count += len(release.payload)
        if found and count > MOST_ROWS:
            break
        found.append(model.released(release))
    return found


def centred(rows: list[Tensor]) -> Tensor:
    """(m, d) all rows, each release without its mean, which is taken away in place."""
    for x in rows:
        x -= x.mean(0)
    return torch.cat(rows) if len(rows) > 1 else rows[0]


def squares(release: Release, x: Tensor) -> Tensor:
    """(n, d) the squares of rows, which a hidden sign does not change; without their mean. Where signs are not hidden,
    they are of the rows without theirs."""
    squared = (x if release.encoder.masked else x - x.mean(0)).square()
    return squared.sub_(squared.mean(0))


def noise_of(view: View) -> float:
    """The variance of the noise in one value of the rows, as far as the releases show it."""
    seen = [release.encoder.visible(release.payload) for release in view.releases]
    return sum(0.0 if one is None else one.noise for one in seen) / len(seen)
