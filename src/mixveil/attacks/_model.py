"""What the linear and the likelihood attacks share: what records are like, and how a release was made of them.

In the eigenbasis of the records' covariance directions decouple, so every attack works on coordinates: records are
(n, k) with variance λ in each of k directions, and rows are W times records plus noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mixveil.errors import ArgumentError
from mixveil.theory.moments import DENSE_LIMIT, blocks
from mixveil.types import Release, Rows, Trace, View

_FLOOR = 1e-9  # of the largest variance: what is never seen to vary may still vary a little


@dataclass(frozen=True)
class Prior:
    """Records as they enter the mixture: mean (d,), orthonormal basis (d, k), variance (k,) in its directions."""

    mean: Tensor
    basis: Tensor
    variance: Tensor

    def coordinates(self, x: Tensor) -> Tensor:
        return (x - self.mean) @ self.basis

    def images(self, view: View, coordinates: Tensor) -> Tensor:
        """(n, …) in [0, 1]-like values of the data, from coordinates."""
        release = view.releases[0]
        restored = release.encoder.restore(self.mean + coordinates @ self.basis.T)
        return restored.view(-1, *release.shape)


def prior_of(view: View) -> Prior:
    """From public data if there are any, else from the release itself."""
    return _public_prior(view) if view.public is not None else _own_prior(view)


def released(release: Release) -> Tensor:
    """(n, d) float64: all rows."""
    return torch.cat(list(blocks(release.payload)))


def noise_variance(release: Release, weight: Tensor) -> Tensor:
    """(n,) the variance of the noise in one value of each row: that of its partner, w₂²σ²."""
    sigma = release.encoder.sigma or 0.0
    return (weight.double()[:, 1:].sum(1) * sigma).square()


def traces_of(view: View) -> tuple[Trace, ...]:
    if view.traces is None or len(view.traces) != len(view.releases):
        raise ArgumentError("this attack needs the traces of all releases")
    return view.traces


@dataclass(frozen=True)
class Mixing:
    """W as a sum of weighed gathers: row r is Σ_j weight[r, j] · record[source[r, j]]."""

    source: Tensor
    weight: Tensor

    @classmethod
    def of(cls, trace: Trace) -> Mixing:
        own = torch.arange(len(trace.weight))[:, None]
        return cls(torch.cat([own, trace.partner], dim=1), trace.weight.double())

    def rows(self, records: Tensor) -> Tensor:
        """W records."""
        return sum((w[:, None] * records[s] for s, w in self._columns()), start=torch.zeros(1, dtype=torch.float64))

    def back(self, rows: Tensor) -> Tensor:
        """Wᵀ rows."""
        records = torch.zeros_like(rows)
        for source, weight in self._columns():
            records.index_add_(0, source, weight[:, None] * rows)
        return records

    def _columns(self) -> list[tuple[Tensor, Tensor]]:
        return list(zip(self.source.T, self.weight.T, strict=True))


def _public_prior(view: View) -> Prior:
    if view.public is None:
        raise ArgumentError("this attack needs public data")
    encoder = view.releases[0].encoder
    return _fitted(torch.cat([encoder.prepare(block) for block in _raw_blocks(view.public)]), 0.0, 1.0)


def _own_prior(view: View) -> Prior:
    """Cov(x̃) = E[w₁² + w₂²] Σ + E[w₂²] σ² I: the noise is known, so the records' covariance follows.

    A label of two classes shows both weights, and either may be the row's own: E[w₂²] is half of E[w₁² + w₂²]."""
    release = view.releases[0]
    shares = torch.cat([y.double() for y in _labels(release)])
    mixed = shares[(shares > 0).sum(1) > 1]
    squares = float((mixed if len(mixed) else shares).square().sum(1).mean())
    sigma = release.encoder.sigma or 0.0
    return _fitted(released(release), squares / 2 * sigma**2, squares)


def _fitted(x: Tensor, noise: float, share: float) -> Prior:
    """The prior of rows x, less their noise, over the share that mixing leaves of a variance.

    Directions that few rows leave unseen get a hundredth of the average variance, not none; only in very many
    dimensions does the basis span no more than the rows."""
    mean = x.mean(0)
    centred = x - mean
    few = len(x) <= x.shape[1]
    if not few or x.shape[1] <= DENSE_LIMIT:
        variance, basis = torch.linalg.eigh(centred.T @ centred / len(x))
    else:
        squared, left = torch.linalg.eigh(centred @ centred.T / len(x))
        kept = squared > squared[-1] * 1e-12
        variance = squared[kept]
        basis = centred.T @ left[:, kept] / (variance * len(x)).sqrt()
    if not len(variance) or not float(variance[-1]) > 0:
        raise ArgumentError("the records that the attacker knows do not vary: there is nothing to guess from them")
    least = 1e-2 * float(variance.mean()) if few else 0.0
    return Prior(mean, basis, ((variance - noise) / share).clamp(min=max(least, float(variance[-1]) * _FLOOR)))


def _raw_blocks(rows: Rows) -> list[Tensor]:
    size = 4096
    return [rows.take(torch.arange(start, min(start + size, len(rows)))).x for start in range(0, len(rows), size)]


def _labels(release: Release) -> list[Tensor]:
    size, n = 4096, len(release.payload)
    return [release.payload.take(torch.arange(start, min(start + size, n))).y for start in range(0, n, size)]
