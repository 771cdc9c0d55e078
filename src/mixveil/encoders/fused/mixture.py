"""What a GPU is asked for: the rows to make, the keystream that covers them, and how a kernel is spread."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from mixveil.core.keystreams import Generator


@dataclass(frozen=True)
class Launch:
    """How a kernel is spread over the GPU; the values do not depend on it.

    Attributes:
        blocks: Blocks of the keystream a program, a power of two.
        warps: Warps a program.
    """

    blocks: int = 64
    warps: int = 2


@dataclass(frozen=True)
class Mixture:
    """The rows to make, as their definition has them.

    Attributes:
        own: (m, d) float32, on the device.
        other: (p, d) float32, the rows that are mixed in; None where none are.
        partner: (m,) int64: which of them.
        factors: (m, 1 or 2) float64: a, of own and of other.
        scale: (m,) float64: s, the noise.
        centre: c.
        most: A public bound on s.
        reach: A public bound on Σ_k |a_k|·(|x_k| + |c|); None: it is not known, and float32 is not used.
        bound: The largest integer that is released.
    """

    own: Tensor
    other: Tensor | None
    partner: Tensor | None
    factors: Tensor
    scale: Tensor
    centre: float
    most: float
    reach: float | None
    bound: int

    def sources(self) -> list[tuple[Tensor, Tensor]]:
        """The rows that are mixed, (n, d), and which of them, (m,)."""
        found = [(self.own, torch.arange(len(self.own), device=self.own.device))]
        return found if self.other is None or self.partner is None else [*found, (self.other, self.partner)]

    def reached(self) -> float:
        """The bound on Σ_k |a_k|·(|x_k| + |c|) of these very values."""
        largest = [torch.maximum(x.amax(1), -x.amin(1)).double()[row] for x, row in self.sources()]
        total = sum((a.abs() * (x + abs(self.centre)) for a, x in zip(self.factors.T, largest, strict=True)))
        return float(torch.as_tensor(total).max()) * (1 + 2.0**-40)

    def rows(self, part: slice) -> Mixture:
        partner = None if self.partner is None else self.partner[part]
        return replace(self, own=self.own[part], partner=partner, factors=self.factors[part], scale=self.scale[part])


@dataclass(frozen=True)
class Keystream:
    """A key for one release, and the generator under it. Row numbers are never used twice under a key."""

    key: bytes = field(repr=False)
    generator: Generator = "chacha20"
