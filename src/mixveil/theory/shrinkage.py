"""Class means from little information: drawn towards their common mean by as much as the data themselves say.

Labels that say little leave least squares with means that are right on average and far off each time. Means that vary
by τ² around a common one, seen through normal equations (A, B) with unit noise, are best guessed by ridge regression
with 1/τ². How large the noise is depends on τ² too, where it is not known of which class a record is; so τ² is the one
that is likeliest under the noise that it makes itself (empirical Bayes).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Equations = Callable[[float], tuple[Tensor, Tensor]]
"""From τ² to A = YᵀY and B = YᵀR of rows R, scaled to unit noise, with soft labels Y that sum to one."""

_SMALLEST, _LARGEST, _POINTS, _HALVINGS = -8.0, 8.0, 400, 30  # powers of ten, for records of about unit variance


def shrunk_means(equations: Equations) -> Tensor:
    """(classes, k) the likeliest means. The more means vary the more noise there is, and the less of what is seen they
    explain: so the τ² that agrees with itself is found by halving."""
    low, high = _SMALLEST, _LARGEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _likeliest(*equations(10**middle)) > 10**middle else (low, middle)
    return ridge_means(*equations(10**low), 10**low)


def ridge_means(labels: Tensor, cross: Tensor, spread: float) -> Tensor:
    """(classes, k) the best guess of means that vary by `spread` around their common mean."""
    contrasts, left, common = _without_common(labels, cross)
    apart = torch.linalg.solve(contrasts + torch.eye(len(labels), dtype=labels.dtype) / spread, left)
    found: Tensor = apart + (common - labels.sum(1) @ apart / labels.sum())
    return found


def _without_common(labels: Tensor, cross: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The equations of what sets means apart, and the mean of all rows: of the common mean nothing is assumed."""
    total = labels.sum(1, keepdim=True)
    common = cross.sum(0) / labels.sum()
    return labels - total @ total.T / labels.sum(), cross - total * common, common


def _likeliest(labels: Tensor, cross: Tensor) -> float:
    """τ² by a fine grid: in the eigenbasis of the equations, energies are (1 + value·τ²)·χ² of k degrees."""
    contrasts, left, _ = _without_common(labels, cross)
    values, vectors = torch.linalg.eigh(contrasts)
    seen = values > 1e-9 * values.max()
    energies = (vectors.T @ left).square().sum(1)[seen] / values[seen]
    grid = torch.logspace(_SMALLEST, _LARGEST, _POINTS, dtype=torch.float64)
    inflation = 1 + grid[:, None] * values[seen]
    cost = cross.shape[1] * inflation.log() + energies / inflation
    return float(grid[cost.sum(1).argmin()])
