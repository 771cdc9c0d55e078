"""The best linear attacker: what records are like on average, the weights and the pairing are known.

With prior variance λ in a direction and noise variance ν in a row, a record's posterior mean solves

    (Σ_t WₜᵀNₜ⁻¹Wₜ + I/λ) z = Σ_t WₜᵀNₜ⁻¹ x̃ₜ

over all releases t of the same records. The matrix is never formed: one pairing is solved along its rings, O(n) a
direction; several releases, or more than two images a row, by conjugate gradients, O(n) a step and a direction.
Directions are solved in blocks: beside rows and records little is held. All is computed where the released rows lie.
For Gaussian records no attacker, linear or not, has a smaller squared error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from mixveil.attacks.shared import model
from mixveil.attacks.shared.base import BaseAttack
from mixveil.attacks.shared.model import MixingMatrix
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackBound, AttackKind, Guess, Release, View
from mixveil.theory.rings import Rings, directions

_NOISELESS = 1e-7  # of the largest variance, where there is no noise at all
_DENSE = 2500  # records whose covariance is solved at once
_STEPS = 1000
_PRECISION = 1e-9


class Columns(Protocol):
    """(n, k) numbers of which some columns are asked at a time: a tensor, or what takes less memory."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def __getitem__(self, index: tuple[slice, slice]) -> Tensor: ...


class Product(NamedTuple):
    """of_rows (n, r) times of_columns (r, k), made of some columns at a time."""

    of_rows: Tensor
    of_columns: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.of_rows), self.of_columns.shape[1]

    def __getitem__(self, index: tuple[slice, slice]) -> Tensor:  # type: ignore[override]
        rows, columns = index
        return self.of_rows[rows] @ self.of_columns[:, columns]


@dataclass(frozen=True)
class Lmmse(BaseAttack):
    """From all rows of all releases, with the pairing known: the strongest linear attack there is."""

    name: ClassVar[str] = "lmmse"
    kind: ClassVar[AttackKind] = "reconstruction"
    needs: ClassVar[frozenset[str]] = frozenset({"traces"})
    bound: ClassVar[AttackBound | None] = "linear"

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        prior = model.prior_of(view)
        return Guess(images=prior.images(view, estimated(view, prior)))


@dataclass(frozen=True)
class LmmseRow(BaseAttack):
    """From each record's own row alone, its weights known. Several releases are averaged by their precision."""

    name: ClassVar[str] = "lmmse-row"
    kind: ClassVar[AttackKind] = "reconstruction"
    needs: ClassVar[frozenset[str]] = frozenset({"traces"})
    bound: ClassVar[AttackBound | None] = "linear-row"

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        traces, prior = model.traces_of(view), model.prior_of(view)
        entries = [model.entry_of(view, t, prior) for t in range(len(traces))]

        def of_rows(rows: slice) -> Tensor:
            precision, evidence = 1 / prior.variance, torch.zeros_like(prior.variance[:1])
            for release, trace, entry in zip(view.releases, traces, entries, strict=True):
                weight = trace.weight[rows].double()
                others = weight[:, 1:].square().sum(1, keepdim=True)
                share = weight[:, :1] * entry.gain
                covered = others * entry.gain.square() * prior.variance + row_noise(release, weight, prior, entry)
                evidence = evidence + share / covered * model.coordinates_of(release, entry, prior, rows)
                precision = precision + share.square() / covered
            return evidence / precision

        return Guess(images=model.images_by_rows(view, prior, of_rows))


def estimated(view: View, prior: model.Prior) -> Tensor:
    """(n, k) the posterior means of the records that have rows."""
    mixings, seen, noises, entries = equations(view, prior)
    found = unmixed(mixings, seen, noises, [entry.gain for entry in entries], prior.variance)
    return found[: len(seen[0])]


def equations(
    view: View, prior: model.Prior
) -> tuple[list[MixingMatrix], list[Tensor], list[Columns], list[model.EntryMap]]:
    """Of each release: its mixing, its rows (n, k), their noise (n, k or 1), and how records enter."""
    traces = model.traces_of(view)
    entries = [model.entry_of(view, t, prior) for t in range(len(traces))]
    seen = [model.coordinates(r, entry, prior) for r, entry in zip(view.releases, entries, strict=True)]
    noises = [row_noises(r, t.weight, prior, e) for r, t, e in zip(view.releases, traces, entries, strict=True)]
    return MixingMatrix.of(traces), seen, noises, entries


def unmixed(
    mixings: list[MixingMatrix],
    seen: Sequence[Columns],
    noises: Sequence[Columns],
    gains: list[Tensor],
    variance: Tensor,
) -> Tensor:
    """(records, k): the posterior mean of independent records of that variance (k,), from rows (n, k) that are W
    times gain times records plus noise (n, k or 1)."""
    if len(mixings) == 1 and mixings[0].paired:
        return solved_along(mixings, seen, noises, gains, variance)
    parts = zip(noises, gains, strict=True)
    alike = all(noise.shape[1] == 1 and torch.equal(g, g[:1].expand_as(g)) for noise, g in parts)
    if alike and mixings[0].records <= _DENSE:
        return _solved_at_once(mixings, _whole(seen), _whole(noises), gains, variance)
    return _by_blocks(_solved_in_steps, mixings, seen, noises, gains, variance)


Solve = Callable[[list[MixingMatrix], list[Tensor], list[Tensor], list[Tensor], Tensor], Tensor]


def _whole(parts: Sequence[Columns]) -> list[Tensor]:
    return [part[:, :] for part in parts]


def _by_blocks(
    solve: Solve,
    mixings: list[MixingMatrix],
    seen: Sequence[Columns],
    noises: Sequence[Columns],
    gains: list[Tensor],
    variance: Tensor,
) -> Tensor:
    """(records, k) solved by blocks of directions, which do not depend on one another."""
    records, count = mixings[0].records, seen[0].shape[1]
    variance, gains = variance.expand(count), [gain.expand(count) for gain in gains]
    found = variance.new_empty(records, count)
    for part in directions(records, count, found.device):
        of_part = [noise[:, :] if noise.shape[1] == 1 else noise[:, part] for noise in noises]
        rows, gain = [x[:, part] for x in seen], [g[part] for g in gains]
        found[:, part] = solve(mixings, rows, of_part, gain, variance[part])
    return found


def _solved_in_steps(
    mixings: list[MixingMatrix], seen: list[Tensor], noises: list[Tensor], gains: list[Tensor], variance: Tensor
) -> Tensor:
    target, diagonal = _normal_equations(mixings, seen, noises, gains, variance)
    parts = list(zip(mixings, noises, gains, strict=True))

    def normal_matrix(z: Tensor) -> Tensor:
        return z / variance + _total([g.square() * m.back(m.rows(z) / noise) for m, noise, g in parts])

    return conjugate_gradients(normal_matrix, target, diagonal)


def _solved_at_once(
    mixings: list[MixingMatrix], seen: list[Tensor], noises: list[Tensor], gains: list[Tensor], variance: Tensor
) -> Tensor:
    """The same, directly, where noise and gain are the same in all directions: one eigenbasis of WᵀN⁻¹W serves all."""
    target, _ = _normal_equations(mixings, seen, noises, gains, variance)
    one = torch.eye(len(target), dtype=target.dtype, device=target.device)
    parts = zip(mixings, noises, gains, strict=True)
    precision, basis = torch.linalg.eigh(_total([g[0].square() * m.back(m.rows(one) / noise) for m, noise, g in parts]))
    found: Tensor = basis @ ((basis.T @ target) / (precision.clamp(min=0)[:, None] + 1 / variance))
    return found


def solved_along(
    mixings: list[MixingMatrix],
    seen: Sequence[Columns],
    noises: Sequence[Columns],
    gains: list[Tensor],
    variance: Tensor,
) -> Tensor:
    """The same, directly: of one release in which each record has one partner and is the partner of one. A source of
    −1 is none; rows with an own record come in the records' order."""
    own = mixings[0].source[:, 0] >= 0
    rings = Rings.of(mixings[0].source[own, 1], mixings[0].records)
    product = mixings[0].weight[own].prod(1, keepdim=True)

    def along(
        mixings: list[MixingMatrix], seen: list[Tensor], noises: list[Tensor], gains: list[Tensor], variance: Tensor
    ) -> Tensor:
        target, diagonal = _normal_equations(mixings, seen, noises, gains, variance)
        return rings.solve(diagonal, gains[0].square() * product / noises[0][own], target)

    return _by_blocks(along, mixings, seen, noises, gains, variance)


def _normal_equations(
    mixings: list[MixingMatrix], seen: list[Tensor], noises: list[Tensor], gains: list[Tensor], variance: Tensor
) -> tuple[Tensor, Tensor]:
    """(records, k) the right side and the diagonal."""
    parts = list(zip(mixings, seen, noises, gains, strict=True))
    target = _total([g * m.back(x / noise) for m, x, noise, g in parts])
    return target, 1 / variance + _total([g.square() * m.squared().back(1 / noise) for m, _, noise, g in parts])


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


def row_noise(release: Release, weight: Tensor, prior: model.Prior, entry: model.EntryMap) -> Tensor:
    """(n, k or 1) the variance of all in a row that is not its records: noise, and what clipping bent."""
    return row_noises(release, weight, prior, entry)[:, :]


def row_noises(
    release: Release, weight: Tensor, prior: model.Prior, entry: model.EntryMap, bent: Tensor | None = None
) -> Columns:
    """The same of many rows. bent: (n, 2) the weights of the records that are not known; None: of all."""
    noise = model.noise_variance(release, weight)
    noise = noise.clamp(min=float(prior.variance.max()) * _NOISELESS)[:, None]
    if not bool(entry.spread.any()):
        return noise
    share = (weight if bent is None else bent).double().square().sum(1, keepdim=True)
    return Product(torch.cat([noise, share], 1), torch.stack([torch.ones_like(entry.spread), entry.spread]))


def _total(parts: list[Tensor]) -> Tensor:
    return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]
