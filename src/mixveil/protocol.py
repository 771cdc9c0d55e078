"""The whole job in one place: parties' features in, a model out, at one total μ.

Two steps: half of μ² for noisy class sums, which show the directions in which the classes differ; half for records in
those few directions. How many public directions the sums are taken in follows from the number of parties, rows and
classes, from μ and from public data: never from a private record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from mixveil import calibration, checks
from mixveil.encoders.gaussian import Gaussian
from mixveil.encoders.singular import CERTIFIED_ALPHA, Singular
from mixveil.errors import ArgumentError
from mixveil.features import Features
from mixveil.keys import Stream
from mixveil.projection import (
    Projected,
    Projection,
    directions_for_records,
    directions_for_sums,
)
from mixveil.release import in_memory
from mixveil.statistics import class_sums, directions
from mixveil.train import discriminant
from mixveil.train.discriminant import Discriminant
from mixveil.train.layers import Layers
from mixveil.types import Mu, Release

Protocol = Literal["two-step", "two-step-gaussian", "one-step", "sums", "sums-twice"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)


@dataclass(frozen=True)
class Learned:
    """A head and the projection before it. k: public directions of the first step."""

    head: Discriminant
    projection: Projection
    k: int

    def accuracy(self, features: Features) -> float:
        """The share of rows that it names right."""
        found = Layers.of(self.head, self.projection).named(features)
        return float(found.eq(features.labels).double().mean())


def learn(
    parties: Sequence[Features], projection: Projection, protocol: Protocol, mu: float, *, stream: Stream
) -> Learned:
    """What a server learns from all parties at a total μ a record, in memory. projection: with all its directions."""
    if protocol not in PROTOCOLS:
        raise ArgumentError(f"protocol must be one of {', '.join(PROTOCOLS)}, got {protocol!r}")
    checks.positive("mu", mu)
    rows, classes = sum(len(part) for part in parties), len(parties[0].classes)
    if protocol == "one-step":
        k = directions_for_records(projection, rows=rows, classes=classes, mu=mu, alpha=CERTIFIED_ALPHA)
        return Learned(_from_records(parties, projection.first(k), mu, "one-step", stream), projection.first(k), k)
    first = mu if protocol == "sums" else mu / math.sqrt(2)
    k = directions_for_sums(projection, parties=len(parties), rows=rows, classes=classes, mu=first)
    wide = projection.first(k)
    digest = "0" * 64
    sums = [
        class_sums(Projected(part, wide), digest, first, party=str(i), stream=stream.fork(f"sums {i}"))[0]
        for i, part in enumerate(parties)
    ]
    if protocol == "sums":
        return Learned(discriminant.from_sums(sums), wide, k)
    narrow = directions(sums, wide, digest)
    if protocol == "sums-twice":
        again = [
            class_sums(Projected(part, narrow), digest, first, party=str(i), stream=stream.fork(f"again {i}"))[0]
            for i, part in enumerate(parties)
        ]
        return Learned(discriminant.from_sums(again), narrow, k)
    return Learned(_from_records(parties, narrow, first, protocol, stream), narrow, k)


def _from_records(
    parties: Sequence[Features], projection: Projection, mu: float, protocol: Protocol, stream: Stream
) -> Discriminant:
    releases = [
        released(
            Projected(part, projection), mu, plain=protocol == "two-step-gaussian", stream=stream.fork(f"party {i}")
        )
        for i, part in enumerate(parties)
    ]
    return discriminant.from_records(releases, projection)


def released(rows: Projected, mu: float, *, plain: bool, stream: Stream, label_epsilon: float | None = None) -> Release:
    """Projected records at μ, mixed or plain, in memory."""
    facts = calibration.settled_facts(rows, certified=True, public=None, clip=rows.projection.clip)
    encoder, guarantees = (Gaussian() if plain else Singular()).calibrate(Mu(mu), facts)
    return in_memory(rows, encoder, guarantees, party="party", stream=stream, label_epsilon=label_epsilon)
