"""A defence that the package does not know: a mixture of two records whose values get random signs, as InstaHide's do.

    x̃_i = s_i ⊙ (w₁z_i + w₂z_π(i)),   ỹ_i = w₁y_i + w₂y_π(i),   z = x − centre,   s_i ∈ {−1, 1}ᵈ

Rows are not linear in records for a reader who does not know the signs, and there is no noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import Batch, Encoder, Fact, Facts, Guarantee, NoiseLaw, PublicUse, Rows, Target, Trace
from mixveil.encoders.plain import NoPromise


@dataclass(frozen=True)
class SignMask:
    name: ClassVar[str] = "sign-mask"
    targets: ClassVar[tuple[type[Target], ...]] = ()
    needs_facts: ClassVar[bool] = True
    public_use: ClassVar[PublicUse | None] = "facts"

    @classmethod
    def ready(cls) -> type[Encoder]:
        return FittedSignMask

    @classmethod
    def example(cls) -> FittedSignMask:
        return cls().calibrate(None, Facts({"dimension": Fact(16.0, "range"), "centre": Fact(0.5, "range")}))[0]

    def calibrate(self, target: Target | None, facts: Facts) -> tuple[FittedSignMask, tuple[Guarantee, ...]]:
        if target is not None:
            raise ArgumentError("the encoder sign-mask promises nothing: neither mu nor tau can be asked of it")
        return FittedSignMask(values=int(facts["dimension"]), centre=facts["centre"]), ()


@dataclass(frozen=True, kw_only=True)
class FittedSignMask(NoPromise):
    """values: how many values a row has; centre: subtracted from every value."""

    law: ClassVar[NoiseLaw] = "none"
    linear: ClassVar[bool] = False
    masked: ClassVar[bool] = True
    moved: ClassVar[int] = 0
    sigma: ClassVar[float] = 0.0
    covers: ClassVar[int] = 0
    unpromised: ClassVar[tuple[str, ...]] = ("no-noise",)
    values: int
    centre: float

    def __post_init__(self) -> None:
        checks.at_least("values", self.values, 1)
        checks.place("centre", self.centre)

    @property
    def name(self) -> str:
        return SignMask.name

    @property
    def scheme(self) -> SignMask:
        return SignMask()

    def prepare(self, x: Tensor) -> Tensor:
        return x.flatten(1).double() - self.centre

    def restore(self, z: Tensor) -> Tensor:
        return z + self.centre

    def deviation(self, weight: Tensor) -> Tensor:
        return 0 * weight.double()[:, 0]

    def possible_labels(self, y: Tensor) -> Tensor:
        return (y > 0).sum(1) <= 2

    def plan(self, n: int, *, stream: Stream, units: Tensor | None = None) -> Trace:
        checks.enough_rows(n)
        signs = 1 - 2 * (stream.fork("signs").uniform(n, self.values) < 0.5).to(torch.int8)
        partner = stream.fork("pairing").derangement(n)[:, None]
        return Trace(partner, stream.fork("weights").mixing_weights(n, 2), extra={"signs": signs})

    def observation(self, trace: Trace) -> Signed:
        return Signed(self, trace)

    def visible(self, released: Rows) -> None:
        return None

    def encode(self, rows: Rows, index: Tensor, trace: Trace, *, stream: Stream) -> Batch:
        own, other = rows.take(index), rows.take(trace.partner[index, 0])
        first, second = trace.weight[index].T[:, :, None]
        mixed = first.double() * self.prepare(own.x) + second.double() * self.prepare(other.x)
        signed = (mixed * trace.extra["signs"][index]).float().view(own.x.shape)
        return Batch(signed, first * own.y + second * other.y)


@dataclass(frozen=True)
class Signed:
    """The observation: mixtures with the signs that were drawn."""

    encoder: FittedSignMask
    trace: Trace

    def mean(self, records: Rows, rows: Tensor) -> Batch:
        x, y = self.mixture(records, rows)
        return Batch(x * self.trace.extra["signs"][rows], y)

    def mixture(self, records: Rows, rows: Tensor) -> Batch:
        x, y = torch.zeros(1, dtype=torch.float64), torch.zeros(1)
        for source, weight in zip((rows, self.trace.partner[rows, 0]), self.trace.weight[rows].T, strict=True):
            batch = records.take(source)
            x, y = x + weight[:, None].double() * self.encoder.prepare(batch.x), y + weight[:, None] * batch.y
        return Batch(x, y)

    def mask(self, rows: Tensor) -> Tensor:
        return self.trace.extra["signs"][rows]

    def moves(self, rows: Tensor) -> None:
        return None

    def deviation(self, rows: Tensor) -> Tensor:
        return torch.zeros(len(rows), dtype=torch.float64)
