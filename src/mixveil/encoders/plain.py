"""What the encoders share that promise nothing."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Self, cast

from torch import Tensor

from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import Batch, Cost, Encoder, Facts, Guarantee, NoiseLaw, PublicUse, Rows, Target, Trace
from mixveil.core.wording.notes import Note
from mixveil.encoders.linear import Linear


class NoPromise:
    """An encoder that bounds nothing and releases floats."""

    clip: ClassVar[float | None] = None
    amplitude: ClassVar[float | None] = None
    unit_rows: ClassVar[int] = 1
    step: ClassVar[float | None] = None
    index_bound: ClassVar[int | None] = None
    tau_conditions: ClassVar[Mapping[str, str]] = {}

    @property
    def label_share(self) -> float:
        return 1.0

    def advice(self, records: int) -> list[Note]:
        return []

    def claims(self) -> Mapping[str, Guarantee]:
        return {}

    def cost(self) -> Cost | None:
        return None

    def directional_snr(self, lambda_max: float) -> float | None:
        return None


class NoNoise(NoPromise, Linear):
    """An encoder that mixes, or not, and adds no noise: ready as it is."""

    name: ClassVar[str]
    targets: ClassVar[tuple[type[Target], ...]] = ()
    needs_facts: ClassVar[bool] = False
    public_use: ClassVar[PublicUse | None] = None
    law: ClassVar[NoiseLaw] = "none"
    sigma: ClassVar[float] = 0.0
    centre: ClassVar[float] = 0.0
    unpromised: ClassVar[tuple[str, ...]] = ("no-noise",)

    @property
    def scheme(self) -> Self:
        return self

    @classmethod
    def ready(cls) -> type[Encoder]:
        return cast("type[Encoder]", cls)

    @classmethod
    def example(cls) -> Self:
        return cls()

    def calibrate(self, target: Target | None, facts: Facts) -> tuple[Self, tuple[Guarantee, ...]]:
        no_target(self.name, target)
        return self, ()

    def prepare(self, x: Tensor) -> Tensor:
        return x.flatten(1).double()

    def restore(self, z: Tensor) -> Tensor:
        return z

    def deviation(self, weight: Tensor) -> Tensor:
        return 0 * weight.double()[:, 0]

    @abstractmethod
    def plan(self, n: int, *, stream: Stream, units: Tensor | None = None) -> Trace: ...

    def encode(self, rows: Rows, index: Tensor, trace: Trace, *, stream: Stream) -> Batch:
        """Each row and its partners, weighed and added: x in float32, labels alike."""
        weight = trace.weight[index]
        own = rows.take(index)
        x, y = own.x * _column(weight, 0, own.x), own.y * weight[:, :1]
        for j in range(trace.partner.shape[1]):
            other = rows.take(trace.partner[index, j])
            x += other.x * _column(weight, j + 1, other.x)
            y += other.y * weight[:, j + 1 : j + 2]
        return Batch(x, y)


def no_target(name: str, target: Target | None) -> None:
    if target is not None:
        raise ArgumentError(f"the encoder {name} adds no noise: neither mu nor tau can be asked of it")


def _column(weight: Tensor, j: int, like: Tensor) -> Tensor:
    return weight[:, j].view(-1, *[1] * (like.dim() - 1))
