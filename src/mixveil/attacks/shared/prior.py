"""What records are like on average, and how they vary: learnt from public rows, or from a release itself.

Rows may be fewer than values. Then
- images have one variance a wave (`Waves`). Against white noise that shows more of natural images than a covariance of
  up to twice as many rows as values does (measured, on photographs);
- other rows have the variances that they show in the directions that they span (`Spanned`), and in all directions
  beside them a hundredth of the average variance. That is the whole covariance with its small eigenvalues raised to
  this floor, exactly, without its d × d numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mixveil.attacks.shared.base import CannotAttackError
from mixveil.attacks.shared.directions import Basis, Directions, Spanned, Waves
from mixveil.core.types import Rows, View
from mixveil.core.wording.notes import note
from mixveil.data.row_views import Subset
from mixveil.theory.moments import DENSE_LIMIT, blocks

MOST_VALUES = 1 << 27  # of rows that are held together
AT_ONCE = 1 << 22
"""Values of rows that something of their size is made of at a time."""

_FLOOR = 1e-9  # of the largest variance: what is never seen to vary may still vary a little
_REST = 1e-2  # of the average variance: what few rows cannot show
_MOST_ROWS = 20_000  # of public data: more hardly change a covariance
_MOST_WAVES = 2000  # rows, for one variance a wave
_ALIKE = 10  # all waves of a length together count as so many rows, where one wave is asked about


@dataclass(frozen=True)
class Prior:
    """What records are like, in the data's own values: mean (d,); k directions, and the variance (k,) in each."""

    mean: Tensor
    directions: Directions
    variance: Tensor

    @property
    def typical(self) -> float:
        """The variance of a value, on average."""
        return float((self.variance * self.directions.count).sum()) / len(self.mean)

    def values(self, coordinates: Tensor) -> Tensor:
        """(n, d) from coordinates (n, k)."""
        return self._values(coordinates, coordinates.new_empty(len(coordinates), len(self.mean)))

    def images(self, view: View, coordinates: Tensor) -> Tensor:
        """(n, …) of the shape of the records. Where there are as many coordinates as values, they are overwritten:
        images of a whole release can fill the memory."""
        as_many = coordinates.shape[1] == len(self.mean)
        values = self._values(coordinates, coordinates) if as_many else self.values(coordinates)
        return values.view(-1, *view.releases[0].shape)

    def _values(self, coordinates: Tensor, into: Tensor) -> Tensor:
        for part in in_parts(len(into), len(self.mean)):
            torch.add(self.directions.back(coordinates[part]), self.mean, out=into[part])
        return into

    def to(self, device: torch.device) -> Prior:
        if self.mean.device == device:
            return self
        return Prior(self.mean.to(device), self.directions.to(device), self.variance.to(device))


def of_public(rows: Rows) -> Prior:
    """From rows without noise."""
    x = rows.take(torch.tensor([0])).x
    shape, values = tuple(x.shape[1:]), x.numel()
    if values <= DENSE_LIMIT and min(len(rows), _MOST_ROWS) > values:
        return _whole(Subset(rows, spaced(len(rows), _MOST_ROWS)), 0.0, 1.0)
    few = max(2, MOST_VALUES // values)
    if len(shape) == 3:
        return _waves(Subset(rows, spaced(len(rows), min(_MOST_WAVES, few))), shape, 0.0, 1.0)
    return _spanned(Subset(rows, spaced(len(rows), min(DENSE_LIMIT, few))), 0.0, 1.0)


def of_noisy(rows: Rows, shape: tuple[int, ...], noise: float, share: float, *, enough: int) -> Prior:
    """From released rows, less their noise, over the share that mixing leaves of a variance. enough: rows a value, for
    a covariance of images."""
    values = math.prod(shape)
    if len(shape) == 3 and (len(rows) < enough * values or values > DENSE_LIMIT):
        return _waves(rows, shape, noise, share)
    if values <= DENSE_LIMIT and len(rows) > values:
        return _whole(rows, noise, share)
    return _spanned(Subset(rows, spaced(len(rows), min(DENSE_LIMIT, max(2, MOST_VALUES // values)))), noise, share)


def _whole(rows: Rows, noise: float, share: float) -> Prior:
    """The covariance of more rows than values."""
    mean = total(blocks(rows)) / len(rows)
    covariance = mean.new_zeros(len(mean), len(mean))
    for block in blocks(rows):
        block -= mean
        covariance.addmm_(block.T, block)
    variance, basis = torch.linalg.eigh(covariance / len(rows))
    _check_varies(variance)
    signal = ((variance - noise) / share).clamp(min=float(variance[-1]) * _FLOOR)
    return Prior(mean, Basis(basis), signal)


def _spanned(rows: Rows, noise: float, share: float) -> Prior:
    """Of fewer rows than values: the inner products of rows have the same eigenvalues as their covariance."""
    n = len(rows)
    centred = torch.cat(list(blocks(rows)))
    mean = centred.mean(0)
    centred -= mean
    squared, left = torch.linalg.eigh(centred @ centred.T / n)
    _check_varies(squared)
    kept = squared > squared[-1] * 1e-12
    variance = squared[kept]
    basis = centred.T @ (left[:, kept] / (variance * n).sqrt())
    signal = ((variance - noise) / share).clamp(min=0)
    least = max(_REST * float(signal.sum()) / len(mean), float(variance[-1]) * _FLOOR)
    rest = torch.full_like(mean, least)
    return Prior(mean, Spanned(basis), torch.cat([signal.clamp(min=least), rest]))


def _waves(rows: Rows, shape: tuple[int, ...], noise: float, share: float) -> Prior:
    """One variance a wave. Noisy rows tell it of all waves of a length together alone; others tell more of each wave,
    the more there are."""
    mean = total(blocks(rows)) / len(rows)
    waves = Waves(shape, mean.device)
    energy = total(waves.coordinates(block - mean).square() for block in blocks(rows)) / max(1, len(rows) - 1)
    length = waves.length
    size = length.bincount().clamp(min=1)
    alike = (torch.zeros(len(size)).to(energy).index_add_(0, length, energy) / size)[length]
    _check_varies(alike)
    trust = 0.0 if noise else len(rows) / (len(rows) + _ALIKE)
    average = trust * energy + (1 - trust) * alike
    signal = ((average - noise) / share).clamp(min=float(alike.max()) * _FLOOR)
    return Prior(mean, waves, signal)


def in_parts(rows: int, values: int) -> Iterator[slice]:
    """Rows of so many values, a few million values at a time."""
    size = max(1, AT_ONCE // max(1, values))
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def total(parts: Iterable[Tensor]) -> Tensor:
    """(d,) the sum over all rows of all parts."""
    found: Tensor | None = None
    for part in parts:
        found = part.sum(0) if found is None else found.add_(part.sum(0))
    return torch.zeros(1, dtype=torch.float64) if found is None else found


def spaced(n: int, most: int) -> Tensor:
    """Up to so many of n rows, evenly spread over them: sets are often sorted by class."""
    return torch.linspace(0, n - 1, min(n, max(2, most))).round().long()


def _check_varies(variance: Tensor) -> None:
    if not len(variance) or not float(variance.max()) > 0:
        raise CannotAttackError(note("known-records-do-not-vary"))
