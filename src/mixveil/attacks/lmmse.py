"""The best linear attacker: what records are like on average, the weights and the pairing are known.

With prior variance λ in a direction and noise variance ν in a row, a record's posterior mean solves

    (Σ_t WₜᵀNₜ⁻¹Wₜ + I/λ) z = Σ_t WₜᵀNₜ⁻¹ x̃ₜ

over all releases t of the same records. The matrix is never formed: conjugate gradients, O(n) a step and a
direction. For Gaussian records no attacker, linear or not, has a smaller squared error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.attacks import _model
from mixveil.attacks._model import Mixing
from mixveil.keys import Stream
from mixveil.types import Guess, View

_NOISELESS = 1e-7  # of the largest variance, where there is no noise at all
_STEPS = 1000
_PRECISION = 1e-9


@dataclass(frozen=True)
class Lmmse:
    """From all rows of all releases, with the pairing known: the strongest linear attack there is."""

    name: ClassVar[str] = "lmmse"
    needs: ClassVar[frozenset[str]] = frozenset({"traces"})
    threat: ClassVar[str] = (
        "Knows who was paired with whom, the weights, and how such images vary; uses all rows together."
    )

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        traces, prior = _model.traces_of(view), _model.prior_of(view)
        mixings = [Mixing.of(trace) for trace in traces]
        precisions = [1 / _noise(view, t, prior)[:, None] for t in range(len(traces))]
        seen = [prior.coordinates(_model.released(release)) for release in view.releases]
        target = _total([m.back(p * x) for m, p, x in zip(mixings, precisions, seen, strict=True)])
        own = 1 / prior.variance
        diagonal = own + _total(
            [Mixing(m.source, m.weight.square()).back(p) for m, p in zip(mixings, precisions, strict=True)]
        )

        def normal_matrix(z: Tensor) -> Tensor:
            return own * z + _total([m.back(p * m.rows(z)) for m, p in zip(mixings, precisions, strict=True)])

        return Guess(images=prior.images(view, conjugate_gradients(normal_matrix, target, diagonal)))


@dataclass(frozen=True)
class LmmseRow:
    """From each record's own row alone, its weights known. Several releases are averaged by their precision."""

    name: ClassVar[str] = "lmmse-row"
    needs: ClassVar[frozenset[str]] = frozenset({"traces"})
    threat: ClassVar[str] = "Knows the weights and how such images vary; looks at one row at a time."

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        traces, prior = _model.traces_of(view), _model.prior_of(view)
        precision, evidence = 1 / prior.variance, torch.zeros(1, dtype=torch.float64)
        for t, (release, trace) in enumerate(zip(view.releases, traces, strict=True)):
            weight = trace.weight.double()
            own, others = weight[:, :1], weight[:, 1:].square().sum(1, keepdim=True)
            covered = others * prior.variance + _noise(view, t, prior)[:, None]
            evidence = evidence + own / covered * prior.coordinates(_model.released(release))
            precision = precision + own.square() / covered
        return Guess(images=prior.images(view, evidence / precision))


def conjugate_gradients(matrix: Callable[[Tensor], Tensor], target: Tensor, diagonal: Tensor) -> Tensor:
    """Solve matrix(z) = target for every column by itself, the diagonal as preconditioner."""
    z = torch.zeros_like(target)
    residual = target.clone()
    step = scaled = residual / diagonal
    energy = (residual * scaled).sum(0)
    enough = energy * _PRECISION**2
    for _ in range(_STEPS):
        image = matrix(step)
        length = energy / (step * image).sum(0).clamp(min=1e-300)
        z, residual = z + length * step, residual - length * image
        scaled = residual / diagonal
        energy, before = (residual * scaled).sum(0), energy
        if bool((energy <= enough).all()):
            break
        step = scaled + energy / before.clamp(min=1e-300) * step
    return z


def _noise(view: View, t: int, prior: _model.Prior) -> Tensor:
    noise = _model.noise_variance(view.releases[t], _model.traces_of(view)[t].weight)
    return noise.clamp(min=float(prior.variance.max()) * _NOISELESS)


def _total(parts: list[Tensor]) -> Tensor:
    return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]
