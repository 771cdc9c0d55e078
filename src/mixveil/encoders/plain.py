"""What the encoders share that promise nothing: floats are released, and mostly there is no noise to calibrate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

from torch import Tensor

from mixveil.core.errors import ArgumentError
from mixveil.core.types import Batch, Cost, Facts, Guarantee, Rows, Target, Trace


class Plain:
    """An encoder that promises nothing; without noise, where it does not say otherwise."""

    name: ClassVar[str]

    @property
    def sigma(self) -> float | None:
        return 0.0

    @property
    def step(self) -> float | None:
        return None

    @property
    def index_bound(self) -> int | None:
        return None

    def claims(self) -> Mapping[str, Guarantee]:
        return {}

    def cost(self) -> Cost | None:
        return None

    def prepare(self, x: Tensor) -> Tensor:
        return x.flatten(1).double()

    def restore(self, z: Tensor) -> Tensor:
        return z

    def deviation(self, weight: Tensor) -> Tensor:
        return 0 * weight.double()[:, 0]

    def calibrate(self, target: Target | None, facts: Facts) -> tuple[Self, tuple[Guarantee, ...]]:
        raise ArgumentError(f"the encoder {self.name} adds no noise: neither mu nor tau can be asked of it")


def within_simplex(y: Tensor, sources: int) -> Tensor:
    """(m,) whether each row has at most that many classes. That shares sum to one is checked for all releases."""
    return (y > 0).sum(1) <= sources


def mix(rows: Rows, index: Tensor, trace: Trace) -> Batch:
    """Each row and its partners, weighed and added: x in float32, labels alike."""
    weight = trace.weight[index]
    own = rows.take(index)
    x, y = own.x * _column(weight, 0, own.x), own.y * weight[:, :1]
    for j in range(trace.partner.shape[1]):
        other = rows.take(trace.partner[index, j])
        x += other.x * _column(weight, j + 1, other.x)
        y += other.y * weight[:, j + 1 : j + 2]
    return Batch(x, y)


def _column(weight: Tensor, j: int, like: Tensor) -> Tensor:
    return weight[:, j].view(-1, *[1] * (like.dim() - 1))
