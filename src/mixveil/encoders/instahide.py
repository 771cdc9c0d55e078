"""InstaHide (Huang et al. 2020): mixtures of k images, behind a random sign for every value.

    x̃_i = s_i ∘ Σ_j λ_j z_j,   ỹ_i = Σ_j λ_j y_j over private images,   z = x − centre,   s_i ∈ {−1, 1}ᵈ, fresh

Inside the data set: image i and k − 1 images of random permutations, no weight above c₁. Across data sets: image i,
one private partner and k − 2 public patches, which have no labels; the two private weights sum to c₂ at least.

Formal guarantees
- None. A sign hides no more than taking the absolute value would, and images were recovered from such encodings
  (Carlini et al. 2021, Chen et al. 2020, Luo et al. 2022).
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
from mixveil.core.wording.notes import Note, note
from mixveil.data.moves import moved
from mixveil.encoders.mixing import PRIVATE, check_weights, partners
from mixveil.encoders.plain import NoPromise

C1, C2 = 0.65, 0.3
"""The paper's: the largest weight, and the least that the two private weights sum to."""

_MANY = 10_000  # images: the paper asks for "very large" sets, and tries its attacks on this many
_ADVISED = (4, 6)
_LARGEST = {"k": 1000, "covers": 1 << 31, "pad": 4096}  # that others may state
_PAD = 8  # an image is moved by up to this part of its side


@dataclass(frozen=True)
class InstaHide:
    """k: images in a row; c1: the largest weight; c2: with public patches, the least that the two private weights sum
    to; augmented: every image is mirrored and moved at random before it is mixed."""

    name: ClassVar[str] = "instahide"
    targets: ClassVar[tuple[type[Target], ...]] = ()
    needs_facts: ClassVar[bool] = True
    public_use: ClassVar[PublicUse | None] = "covers"
    k: int = 4
    c1: float = C1
    c2: float = C2
    augmented: bool = False

    def __post_init__(self) -> None:
        check_weights(self.k, self.c1, self.c2)

    @classmethod
    def ready(cls) -> type[Encoder]:
        return CalibratedInstaHide

    @classmethod
    def example(cls) -> CalibratedInstaHide:
        known = {"dimension": 16.0, "centre": 0.5, "height": 4.0, "width": 4.0}
        facts = Facts({name: Fact(value, "range") for name, value in known.items()})
        return cls(k=3, augmented=True).calibrate(None, facts)[0]

    def calibrate(self, target: Target | None, facts: Facts) -> tuple[CalibratedInstaHide, tuple[Guarantee, ...]]:
        """Facts: dimension and centre; height and width, where images are moved; covers, the number of patches."""
        if target is not None:
            raise ArgumentError("the encoder instahide promises nothing: neither mu nor tau can be asked of it")
        pad = max(1, int(min(facts["height"], facts["width"])) // _PAD) if self.augmented else 0
        covers = int(facts["covers"]) if "covers" in facts.known else 0
        made = CalibratedInstaHide(
            k=self.k,
            c1=self.c1,
            c2=self.c2,
            covers=covers,
            pad=pad,
            values=int(facts["dimension"]),
            centre=facts["centre"],
        )
        return made, ()


@dataclass(frozen=True, kw_only=True)
class CalibratedInstaHide(NoPromise):
    """`InstaHide` for some data. covers: how many public patches there are to choose from, 0 inside the data set; pad:
    by how many pixels images are moved at most, 0 where they are not; values: of a row."""

    law: ClassVar[NoiseLaw] = "none"
    linear: ClassVar[bool] = False
    masked: ClassVar[bool] = True
    sigma: ClassVar[float] = 0.0
    unpromised: ClassVar[tuple[str, ...]] = ("no-noise", "instahide-broken")
    k: int
    c1: float
    c2: float
    covers: int
    pad: int
    values: int
    centre: float

    def __post_init__(self) -> None:
        check_weights(self.k, self.c1, self.c2)
        for name, value in (("k", self.k), ("covers", self.covers), ("pad", self.pad)):
            if value > _LARGEST[name]:
                raise ArgumentError(f"{name} must be at most {_LARGEST[name]:,}, got {value:,}")
        checks.at_least("covers", self.covers, 0)
        if self.covers and self.k <= PRIVATE:
            raise ArgumentError(f"k must be more than {PRIVATE}, with public images, got {self.k}")
        checks.at_least("pad", self.pad, 0)
        checks.at_least("values", self.values, 1)
        checks.place("centre", self.centre)

    @property
    def name(self) -> str:
        return InstaHide.name

    @property
    def scheme(self) -> InstaHide:
        return InstaHide(self.k, self.c1, self.c2, self.pad > 0)

    @property
    def moved(self) -> int:
        return self.pad

    @property
    def label_share(self) -> float:
        return self.c2 if self.covers else 1.0

    def advice(self, records: int) -> list[Note]:
        told = []
        if not _ADVISED[0] <= self.k <= _ADVISED[1]:
            told.append(note("instahide-k", k=self.k, least=_ADVISED[0], most=_ADVISED[1]))
        if self.c1 > C1:
            told.append(note("instahide-heavy", c1=self.c1, most=C1))
        if not self.covers and records < _MANY:
            told.append(note("instahide-few-images", images=records))
        if 0 < self.covers < _MANY:
            told.append(note("instahide-few-covers", covers=self.covers))
        return told

    def prepare(self, x: Tensor) -> Tensor:
        return x.flatten(1).double() - self.centre

    def restore(self, z: Tensor) -> Tensor:
        return z + self.centre

    def deviation(self, weight: Tensor) -> Tensor:
        return 0 * weight.double()[:, 0]

    def possible_labels(self, y: Tensor) -> Tensor:
        return (y > 0).sum(1) <= (PRIVATE if self.covers else self.k)

    def plan(self, n: int, *, stream: Stream, units: Tensor | None = None) -> Trace:
        checks.enough_rows(n)
        private, least = (PRIVATE, self.c2) if self.covers else (self.k, 0.0)
        weight = stream.fork("weights").bounded_weights(n, self.k, self.c1, private, least)
        octets = -(-self.values // 8)
        words = stream.fork("signs").words(-(-n * octets // 8))
        drawn = {"signs": words.view(torch.uint8)[: n * octets].view(n, octets)}
        if self.pad:
            drawn["moves"] = _moves(n, self.k, self.pad, stream.fork("moves"))
        return Trace(partners(n, self.k, self.covers, stream.fork("pairing")), weight, extra=drawn)

    def observation(self, trace: Trace) -> Masked:
        return Masked(self, trace)

    def visible(self, released: Rows) -> None:
        return None

    def encode(self, rows: Rows, index: Tensor, trace: Trace, *, stream: Stream) -> Batch:
        shape = rows.take(index[:1]).x.shape[1:]
        mixed = Masked(self, trace).mixed(rows, index, torch.float32)
        return Batch(mixed.x.view(len(index), *shape), mixed.y)


@dataclass(frozen=True)
class Masked:
    """The observation: mixtures behind the signs that were drawn."""

    encoder: CalibratedInstaHide
    trace: Trace

    def mean(self, records: Rows, rows: Tensor) -> Batch:
        return self.mixed(records, rows, torch.float64)

    def deviation(self, rows: Tensor) -> Tensor:
        return torch.zeros(len(rows), dtype=torch.float64)

    def mixed(self, records: Rows, rows: Tensor, dtype: torch.dtype) -> Batch:
        """The rows (m, d) in this precision."""
        x, y = self._summed(records, rows, dtype)
        return Batch(x.mul_(self.mask(rows)), y)

    def mixture(self, records: Rows, rows: Tensor) -> Batch:
        return self._summed(records, rows, torch.float64)

    def mask(self, rows: Tensor) -> Tensor:
        return signs(self.trace.extra["signs"][rows], self.encoder.values)

    def moves(self, rows: Tensor) -> Tensor | None:
        return self.trace.extra["moves"][rows] if self.encoder.moved else None

    def _summed(self, records: Rows, rows: Tensor, dtype: torch.dtype) -> Batch:
        weight, moves = self.trace.weight[rows], self.moves(rows)
        mixed, labels = torch.zeros(len(rows), self.encoder.values, dtype=dtype), torch.zeros(1)
        for j, source in enumerate([rows, *self.trace.partner[rows].T]):
            x, y = records.take(source)
            if moves is not None:
                x = moved(x, moves[:, j], self.encoder.centre)
            share = weight[:, j : j + 1]
            mixed.addcmul_(x.flatten(1).to(dtype) - self.encoder.centre, share.to(dtype))
            labels = labels + y * share
        return Batch(mixed, labels)


def signs(octets: Tensor, values: int) -> Tensor:
    """(m, values) int8 of ±1, from eight signs an octet."""
    bits = (octets[:, :, None] >> torch.arange(8, dtype=torch.uint8)) & 1
    return bits.flatten(1)[:, :values].to(torch.int8).mul_(2).sub_(1)


def _moves(n: int, k: int, pad: int, stream: Stream) -> Tensor:
    mirror = stream.uniform(n, k, 1) < 0.5
    steps = (stream.uniform(n, k, 2) * (2 * pad + 1)).floor() - pad
    return torch.cat([mirror.double(), steps], dim=2).to(torch.int16)
