"""Second moments of rows that may be larger than memory: block by block, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.randomness import Stream
from mixveil.core.types import Progress, Rows

DENSE_LIMIT = 4096
"""Up to this dimension the covariance is formed and its whole spectrum computed."""

_BLOCK_ELEMENTS = 1 << 22  # larger blocks are slower, also of rows of 62,720 values (measured)
_DIRECTIONS = 64
_PROBES = 12
_POWER_PASSES = 3
_PAIRS = 2048


@dataclass(frozen=True)
class Moments:
    """Moments of n rows of d values.

    Beyond `DENSE_LIMIT` dimensions only the leading directions are computed; the remaining energy is counted at the
    last of them, where an attacker gains most from it.

    Attributes:
        mean: (d,).
        energy: V = E‖x − mean‖².
        distance: D = E‖x − x'‖ over one random pairing.
        lambda_max: the largest eigenvalue of the covariance; beyond the limit an upper bound of it, which fails with
            probability below 1e-12.
        eigenvalues: (k,) of the covariance, largest first.
        multiplicities: (k,) of the eigenvalues.
        covariance: (d, d); None beyond the limit.
    """

    mean: Tensor
    energy: float
    distance: float
    lambda_max: float
    eigenvalues: Tensor
    multiplicities: Tensor
    covariance: Tensor | None

    def average(self, risk: Tensor) -> float:
        """The mean over rows and coordinates of a squared error given by row and direction, (n, k)."""
        return float((risk.mean(0) * self.multiplicities).sum() / len(self.mean))


def blocks(rows: Rows, progress: Progress | None = None, device: torch.device | None = None) -> Iterator[Tensor]:
    """All rows in order, flattened to (m, d) float64, a few million values at a time."""
    start, size = 0, 1
    while start < len(rows):
        x = rows.take(torch.arange(start, min(start + size, len(rows)))).x.flatten(1)
        block = x.to(device or x.device).double()
        yield block
        start += len(block)
        size = max(1, _BLOCK_ELEMENTS // block.shape[1])
        if progress:
            progress(len(block))


def moments(rows: Rows, *, stream: Stream, progress: Progress | None = None) -> Moments:
    """Moments of the rows themselves (divisor n), on a GPU where there is one. progress: called with the rows done in
    each pass."""
    n = checks.enough_rows(len(rows))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    mean = sum((block.sum(0) for block in blocks(rows, progress, device)), start=torch.zeros(1, device=device)) / n
    distance = _mean_distance(rows, stream.fork("distance"))
    if len(mean) <= DENSE_LIMIT:
        covariance = torch.zeros(len(mean), len(mean), dtype=torch.float64, device=device)
        for block in blocks(rows, progress, device):
            block -= mean
            covariance.addmm_(block.T, block)
        mean, covariance = mean.cpu(), covariance.cpu() / n
        eigenvalues = torch.linalg.eigvalsh(covariance).flip(0).clamp_(min=0)
        energy, largest = float(covariance.trace()), float(eigenvalues[0])
        return Moments(mean, energy, distance, largest, eigenvalues, torch.ones(len(mean)), covariance)
    energy = sum(float((block - mean).square().sum()) for block in blocks(rows, progress, device)) / n
    apply = _Covariance(rows, mean, progress)
    top, bound = _leading_eigenvalues(apply, len(mean), energy, stream.fork("directions"))
    rest = max(0.0, energy - float(top.sum()))
    multiplicities = torch.ones(len(top))
    multiplicities[-1] += rest / float(top[-1]) if top[-1] > 0 else 0.0
    return Moments(mean.cpu(), energy, distance, bound, top, multiplicities, None)


def passes(dimension: int) -> int:
    """How often `moments` reads all rows."""
    return 2 if dimension <= DENSE_LIMIT else 3 + _POWER_PASSES


@dataclass(frozen=True)
class _Covariance:
    rows: Rows
    mean: Tensor
    progress: Progress | None

    def __call__(self, directions: Tensor) -> Tensor:
        """Covariance times (d, k) directions."""
        there = directions.to(self.mean.device)
        product = torch.zeros_like(there)
        for block in blocks(self.rows, self.progress, self.mean.device):
            block -= self.mean
            product.addmm_(block.T, block @ there)
        return product.to(directions.device) / len(self.rows)


def _leading_eigenvalues(
    apply: Callable[[Tensor], Tensor], dimension: int, energy: float, stream: Stream
) -> tuple[Tensor, float]:
    """The leading eigenvalues by subspace iteration, and an upper bound on the largest.

    Ritz values lie below the eigenvalues, and a guarantee that rests on λ_max must not. In the basis (Q, its
    complement) the covariance is [[T, Eᵀ], [E, F]]: T and ‖E‖ are computed, ‖F‖ is bounded by what is left
    of the trace and by 8 times the largest ‖F g‖ over 12 Gaussian probes g (Halko, Martinsson and Tropp
    2011, lemma 4.1), and the largest eigenvalue is at most that of [[‖T‖, ‖E‖], [‖E‖, ‖F‖]].
    """
    basis = torch.linalg.qr(stream.normal(dimension, _DIRECTIONS)).Q
    for _ in range(_POWER_PASSES):
        basis = torch.linalg.qr(apply(basis)).Q
    probes = stream.normal(dimension, _PROBES)
    probes -= basis @ (basis.T @ probes)
    image, probed = apply(torch.cat([basis, probes], 1)).tensor_split([_DIRECTIONS], 1)
    small = basis.T @ image
    ritz = torch.linalg.eigvalsh((small + small.T) / 2).flip(0).clamp_(min=0)
    coupling = float(torch.linalg.matrix_norm(image - basis @ small, ord=2))
    probed = probed - basis @ (basis.T @ probed)
    rest = 10 * math.sqrt(2 / math.pi) * float(torch.linalg.vector_norm(probed, dim=0).max())
    rest = min(rest, max(0.0, energy - float(ritz.sum())))
    largest = float(ritz[0])
    bound = (largest + rest) / 2 + math.hypot((largest - rest) / 2, coupling)
    return ritz, bound


def _mean_distance(rows: Rows, stream: Stream) -> float:
    """D over one random pairing of up to 2,048 rows."""
    chosen = stream.permutation(len(rows))[:_PAIRS]
    total = 0.0
    for row, other in zip(chosen, chosen.roll(1), strict=True):
        pair = rows.take(torch.stack([row, other])).x.flatten(1).double()
        total += float(torch.linalg.vector_norm(pair[0] - pair[1]))
    return total / len(chosen)
