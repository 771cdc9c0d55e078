"""Rounds of sums at the server: a linear head from noisy class sums, improved by noisy residual sums.

    W₀ = t·m̂ᵀ, b₀ = −(t/2)‖m̂‖²;   V ← βV + G/(n·C_g),   (W, b) ← (W, b) − η_r V

Records are centred by the mean that the class sums say, so that a private mean which is not the public one costs no
steps. The variance of the noise in W is known; in every block of directions W is shrunk as far as noise explains it
(James and Stein), before parties get it and in the end. All of it is post-processing of what the parties released.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from safetensors.torch import save
from torch import Tensor

from mixveil.core.errors import MismatchError, TrainingError
from mixveil.core.types import Release
from mixveil.features.round_settings import RoundSettings
from mixveil.learn.class_means import Totals, class_counts, totals
from mixveil.learn.discriminant import Discriminant
from mixveil.releases.contributions import LARGEST, Head
from mixveil.releases.kinds.sums import sums_of

LAST = 0.1
"""The rate of the last round over that of the first: it falls exponentially."""

_BLOCK = 32  # directions that are shrunk alike


@dataclass(frozen=True)
class State:
    """A head after some rounds.

    Attributes:
        learnt: The head as the sums made it.
        velocity: (classes, k + 1) the step that the next one goes on with.
        noise: The variance of a weight's noise, its covariance with a velocity's, and the variance of that.
        done: Rounds that it has learnt from.
    """

    learnt: Head
    velocity: Tensor
    noise: tuple[float, float, float]
    done: int = 0

    @property
    def head(self) -> Head:
        """What parties are sent for the next round, and what is learnt in the end: shrunk."""
        return replace(self.learnt, weight=shrunk(self.learnt.weight, self.noise[0]))


def shrunk(weight: Tensor, variance: float) -> Tensor:
    """(k, classes) weights, in each block of directions less what noise of that variance explains of their squares."""
    blocks = torch.split(weight, _BLOCK)
    kept = [1 - variance * block.numel() / float(block.square().sum().clamp(min=1e-300)) for block in blocks]
    return torch.cat([max(0.0, share) * block for share, block in zip(kept, blocks, strict=True)])


def first(found: Totals, clip: float, settings: RoundSettings) -> State:
    """The head that class sums make. clip: of a record."""
    counts, noise = class_counts(found, clip)
    inverse = counts / (counts.square() + noise)
    means = found.sums[:, :-1] * inverse[:, None]
    centre = found.sums[:, :-1].sum(0) / counts.sum().clamp(min=1)
    away = torch.where(counts[:, None] > 0, means - centre, 0.0)
    variance = found.variance * inverse.square()
    lengths = (away.square().sum(1) - away.shape[1] * variance).clamp(min=0)
    t = settings.temperature
    head = Head(t * away.T.contiguous(), -t / 2 * lengths, centre)
    return State(_checked(head), torch.zeros_like(found.sums), (t**2 * float(variance.mean()), 0.0, 0.0))


def improved(state: State, found: Totals, clip: float, settings: RoundSettings) -> State:
    """The head after one round more. clip: C_g, of a unit's residuals."""
    beta, scale = settings.momentum, found.units * clip
    rate = settings.rate * LAST ** (state.done / max(1, settings.rounds - 1))
    velocity = beta * state.velocity + found.sums / scale
    of_weight, shared, of_velocity = state.noise
    of_velocity = beta**2 * of_velocity + found.variance / scale**2
    of_weight += rate**2 * of_velocity - 2 * rate * beta * shared
    noise = of_weight, beta * shared - rate * of_velocity, of_velocity
    head = state.learnt
    moved = replace(head, weight=head.weight - rate * velocity[:, :-1].T, bias=head.bias - rate * velocity[:, -1])
    return State(_checked(moved), velocity, noise, state.done + 1)


def from_class_sums(parts: Sequence[Release], settings: RoundSettings) -> State:
    return first(totals(parts), sums_of(parts[0]).clip, settings)


def from_residuals(state: State, parts: Sequence[Release], settings: RoundSettings, digest: str | None = None) -> State:
    """From residual sums of the state's own head; others are refused. digest: of the file in which parties got it,
    where that is not `head_bytes`."""
    own = digest or head_digest(state.head)
    for part in parts:
        if part.assets["head"] != own:
            raise MismatchError(f"the sums {part.id[:8]} of {part.party} are of another head than the state holds")
    return improved(state, totals(parts, "residuals"), sums_of(parts[0], "residuals").clip, settings)


def discriminant_of(head: Head) -> Discriminant:
    """The same scores for records that are not centred."""
    return Discriminant(head.weight, head.bias - head.centre @ head.weight, 0.0)


def head_bytes(head: Head) -> bytes:
    """The file of a head, as parties get it."""
    return save({name: tensor.contiguous() for name, tensor in head.tensors().items()})


def head_digest(head: Head) -> str:
    return hashlib.sha256(head_bytes(head)).hexdigest()


def _checked(head: Head) -> Head:
    """Refuse a head that parties would refuse."""
    if not all(bool((tensor.abs() <= LARGEST).all()) for tensor in head.tensors().values()):
        raise TrainingError(
            f"the head is not finite, or has values beyond {LARGEST:g}: the sums of some party are too large"
        )
    return head
