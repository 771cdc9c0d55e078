"""Class means from little information, shrunk towards their common mean by as much as the data support.

Where labels say little, the means of least squares are right on average but far off each time. Means that vary by τ²
around a common mean, observed through normal equations (A, B) with unit noise, are estimated best by ridge regression
with 1/τ². Where the class of a record is not known, the noise depends on τ² too; τ² is then the value that is likeliest
under its own noise (empirical Bayes).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Equations = Callable[[float], tuple[Tensor, Tensor]]
"""From τ² to A = YᵀY and B = YᵀR of rows R, scaled to unit noise, with soft labels Y that sum to one."""

_SMALLEST, _LARGEST, _POINTS, _HALVINGS = -8.0, 8.0, 400, 30  # powers of ten, for records of about unit variance


def shrunk_means(equations: Equations) -> Tensor:
    """(classes, k) the likeliest means, at the τ² that is likeliest under its own noise.

    A larger τ² makes more noise, and the means explain less of it: the consistent τ² is found by bisection.
    """
    low, high = _SMALLEST, _LARGEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _likeliest(*equations(10**middle)) > 10**middle else (low, middle)
    return ridge_means(*equations(10**low), 10**low)


def ridge_means(labels: Tensor, cross: Tensor, spread: float) -> Tensor:
    """(classes, k) the best estimate of means that vary by `spread` around their common mean."""
    contrasts, left, common = _without_common(labels, cross)
    contrast = torch.linalg.solve(contrasts + torch.eye(len(labels), dtype=labels.dtype) / spread, left)
    means: Tensor = contrast + (common - labels.sum(1) @ contrast / labels.sum())
    return means


def _without_common(labels: Tensor, cross: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The equations of the differences between means, and the mean of all rows. Nothing is assumed of that mean."""
    total = labels.sum(1, keepdim=True)
    common = cross.sum(0) / labels.sum()
    return labels - total @ total.T / labels.sum(), cross - total * common, common


def _likeliest(labels: Tensor, cross: Tensor) -> float:
    """The likeliest τ² on a fine grid: in the eigenbasis of the equations, energies are (1 + value·τ²)·χ² of k
    degrees."""
    contrasts, left, _ = _without_common(labels, cross)
    values, vectors = torch.linalg.eigh(contrasts)
    seen = values > 1e-9 * values.max()
    energies = (vectors.T @ left).square().sum(1)[seen] / values[seen]
    grid = torch.logspace(_SMALLEST, _LARGEST, _POINTS, dtype=torch.float64)
    inflation = 1 + grid[:, None] * values[seen]
    cost = cross.shape[1] * inflation.log() + energies / inflation
    return float(grid[cost.sum(1).argmin()])
