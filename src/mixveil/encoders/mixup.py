"""Mixup of k images, as InstaHide's paper compares with it: no noise, no guarantee."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import Facts, Guarantee, PublicUse, Target, Trace
from mixveil.encoders.mixing import PRIVATE, partners
from mixveil.encoders.plain import NoNoise, no_target


@dataclass(frozen=True)
class Mixup(NoNoise):
    """x̃_i = Σ_j λ_j x_πj(i): π₁ the identity, the others random permutations, λ ~ U[0, 1]ᵏ scaled to sum one. covers:
    with that many public patches to choose from, a row has two private images and k − 2 of these, without labels."""

    name: ClassVar[str] = "mixup"
    public_use: ClassVar[PublicUse | None] = "covers"
    k: int = 2
    covers: int = 0

    def __post_init__(self) -> None:
        checks.at_least("k", self.k, 2)
        if self.k > 1000 or self.covers > 1 << 31:
            raise ArgumentError(f"k must be at most 1,000 and covers at most 2^31, got {self.k:,} and {self.covers:,}")
        checks.at_least("covers", self.covers, 0)
        if self.covers and self.k <= PRIVATE:
            raise ArgumentError(f"k must be more than {PRIVATE}, with public images, got {self.k}")

    @property
    def sources(self) -> int:
        return self.k

    def possible_labels(self, y: Tensor) -> Tensor:
        return (y > 0).sum(1) <= (PRIVATE if self.covers else self.k)

    @property
    def label_share(self) -> float:
        return 0.0 if self.covers else 1.0

    @classmethod
    def example(cls) -> Self:
        return cls(k=3)

    def calibrate(self, target: Target | None, facts: Facts) -> tuple[Self, tuple[Guarantee, ...]]:
        no_target(self.name, target)
        return replace(self, covers=int(facts["covers"])) if "covers" in facts.known else self, ()

    def plan(self, n: int, *, stream: Stream, units: Tensor | None = None) -> Trace:
        checks.enough_rows(n)
        partner = partners(n, self.k, self.covers, stream.fork("pairing"))
        return Trace(partner, stream.fork("weights").mixing_weights(n, self.k))
