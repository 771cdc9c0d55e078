"""Mixup of k images, as InstaHide's paper compares with it: no noise, no guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.randomness import Stream
from mixveil.core.types import Trace
from mixveil.encoders.plain import NoNoise


@dataclass(frozen=True)
class Mixup(NoNoise):
    """x̃_i = Σ_j λ_j x_πj(i): π₁ the identity, the others random permutations, λ ~ U[0, 1]ᵏ scaled to sum one."""

    name: ClassVar[str] = "mixup"
    k: int = 2

    def __post_init__(self) -> None:
        checks.at_least("k", self.k, 2)

    @property
    def sources(self) -> int:
        return self.k

    @classmethod
    def example(cls) -> Self:
        return cls(k=3)

    def plan(self, n: int, *, stream: Stream, units: Tensor | None = None) -> Trace:
        checks.enough_rows(n)
        pairing, weights = stream.fork("pairing"), stream.fork("weights")
        partner = torch.stack([pairing.permutation(n) for _ in range(self.k - 1)], dim=1)
        return Trace(partner=partner, weight=weights.mixing_weights(n, self.k))
