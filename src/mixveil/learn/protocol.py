"""Certified learning in memory: the features of all parties in, a head out, at one total μ.

The two-step protocol spends half of μ² on noisy class sums, which show the directions in which the classes differ, and
half on records in those few directions. Other protocols send no records: class sums alone, twice, with second moments,
or followed by rounds of residual sums. The number of public directions follows from the numbers of parties, rows and
classes, from μ and from public data, never from a private record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict, get_args

from mixveil.core import checks
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import Mu, Release
from mixveil.encoders import calibration
from mixveil.encoders.gaussian import Gaussian
from mixveil.encoders.singular import CERTIFIED_ALPHA, Singular
from mixveil.features.cache import Features
from mixveil.features.projection import Projected, Projection, held
from mixveil.features.projection_fit import directions_for_records, directions_for_sums
from mixveil.features.round_settings import RoundSettings, nearest, noise_of
from mixveil.learn import discriminant, rounds
from mixveil.learn.class_means import directions
from mixveil.learn.discriminant import Discriminant
from mixveil.learn.layers import Layers
from mixveil.releases import second_moments
from mixveil.releases.contributions import Head, unit_count
from mixveil.releases.records import in_memory
from mixveil.releases.sums import Sharing, class_sums, residual_sums

Protocol = Literal[
    "two-step", "two-step-gaussian", "one-step", "sums", "sums-twice", "moments", "rounds", "rounds-secure"
]
_DIGEST = "0" * 64  # of a projection without a file
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)


@dataclass(frozen=True)
class Learned:
    """A head and the projection before it.

    Attributes:
        head: On projected records.
        k: Public directions of the first step.
        up: Bytes that all parties sent, without manifests.
        down: Bytes of the directions, to all parties.
        messages: Sent in either direction before the model.
    """

    head: Discriminant
    projection: Projection
    k: int
    up: int
    down: int
    messages: int

    def accuracy(self, features: Features) -> float:
        """The share of rows whose class it names."""
        named = Layers.of(self.head, self.projection).named(features)
        return float(named.eq(features.labels).double().mean())


def learn(
    parties: Sequence[Features], projection: Projection, protocol: Protocol, mu: float, *, stream: Stream
) -> Learned:
    """What a server learns from all parties at a total μ a record. projection: with all its directions."""
    if protocol not in PROTOCOLS:
        raise ArgumentError(f"protocol must be one of {', '.join(PROTOCOLS)}, got {protocol!r}")
    checks.finite_positive("mu", mu)
    rows, classes = sum(len(part) for part in parties), len(parties[0].classes)
    if protocol in ("rounds", "rounds-secure"):
        return in_rounds(
            parties, projection, mu, honest=len(parties) if protocol == "rounds-secure" else 1, stream=stream
        )
    if protocol == "one-step":
        k = directions_for_records(projection, rows=rows, classes=classes, mu=mu, alpha=CERTIFIED_ALPHA)
        head, sent = _from_records(parties, projection.first(k), mu, "one-step", stream)
        return Learned(head, projection.first(k), k, sent, 0, len(parties))
    first = mu if protocol == "sums" else mu / math.sqrt(2)
    k = directions_for_sums(projection, parties=len(parties), rows=rows, classes=classes, mu=first)
    wide = projection.first(k)
    few = second_moments.directions(wide, parties=len(parties), rows=rows, mu=first) if protocol == "moments" else 0
    if protocol == "moments" and not few:
        return learn(parties, projection, "sums", mu, stream=stream)
    sums, sent = _sums(parties, wide, first, stream.fork("sums"))
    if protocol == "sums":
        return Learned(discriminant.from_sums(sums), wide, k, sent, 0, len(parties))
    if protocol == "moments":
        found = [
            second_moments.noisy(Projected(part, wide), few, first, stream=stream.fork(f"scatter {i}"))
            for i, part in enumerate(parties)
        ]
        sent += len(parties) * few * (few + 1) // 2 * 8  # one half of a symmetric matrix, int64
        return Learned(discriminant.from_moments(sums, found), wide, k, sent, 0, len(parties))
    narrow = directions(sums, wide, _DIGEST)
    down = len(parties) * narrow.matrix.nbytes
    if protocol == "sums-twice":
        again, more = _sums(parties, narrow, first, stream.fork("again"))
        return Learned(discriminant.from_sums(again), narrow, k, sent + more, down, 3 * len(parties))
    head, more = _from_records(parties, narrow, first, protocol, stream)
    return Learned(head, narrow, k, sent + more, down, 3 * len(parties))


def in_rounds(
    parties: Sequence[Features],
    projection: Projection,
    mu: float,
    *,
    honest: int = 1,
    settings: RoundSettings | None = None,
    stream: Stream,
    after: Callable[[Head], None] = lambda head: None,
) -> Learned:
    """Class sums and rounds of residual sums at a total μ. honest: how many parties share the noise, where the server
    sees their sum alone; settings: else those of the projection for this noise; after: called with every head."""
    rows = sum(unit_count(Projected(part, projection)) for part in parties)
    noise = noise_of(units=rows, classes=len(parties[0].classes), mu=mu, parties=len(parties), honest=honest)
    settings = settings or nearest(projection.rounds, noise)
    wide, sharing = projection.first(settings.directions), Sharing(honest)
    own = [held(Projected(part, wide)) for part in parties]

    def of(message: int, place: int) -> _Terms:
        mask = stream.fork(f"message {message}").fork(f"party {place}")
        return {"mu": settings.mu(message, mu), "party": str(place), "stream": mask, "sharing": sharing}

    state = rounds.from_class_sums([class_sums(z, _DIGEST, **of(0, i)) for i, z in enumerate(own)], settings)
    after(state.head)
    clip = settings.clip * wide.clip
    for message in range(1, settings.rounds + 1):
        head = state.head, rounds.head_digest(state.head), clip
        state = rounds.from_residuals(
            state, [residual_sums(z, _DIGEST, *head, **of(message, i)) for i, z in enumerate(own)], settings
        )
        after(state.head)
    values = len(parties[0].classes) * (wide.dimension + 1)
    up, down = 8 * values * (settings.rounds + 1), settings.rounds * len(rounds.head_bytes(state.head))
    sent, messages = (len(parties) * size for size in (up, 2 * settings.rounds + 1))
    return Learned(rounds.discriminant_of(state.head), wide, wide.dimension, sent, len(parties) * down, messages)


class _Terms(TypedDict):
    mu: float
    party: str
    stream: Stream
    sharing: Sharing


def _sums(parties: Sequence[Features], projection: Projection, mu: float, stream: Stream) -> tuple[list[Release], int]:
    """The noisy class sums of all parties, and their bytes."""
    found = [
        class_sums(Projected(part, projection), _DIGEST, mu, party=str(i), stream=stream.fork(f"party {i}"))
        for i, part in enumerate(parties)
    ]
    return found, sum(part.payload.nbytes for part in found)  # int64 takes as much as float64


def _from_records(
    parties: Sequence[Features], projection: Projection, mu: float, protocol: Protocol, stream: Stream
) -> tuple[Discriminant, int]:
    """A head from released records, and their bytes."""
    plain = protocol == "two-step-gaussian"
    releases = [
        released(Projected(part, projection), mu, plain=plain, stream=stream.fork(f"party {i}"))
        for i, part in enumerate(parties)
    ]
    return discriminant.from_records(releases, projection), sum(release.payload.bytes for release in releases)


def released(rows: Projected, mu: float, *, plain: bool, stream: Stream, label_epsilon: float | None = None) -> Release:
    """A release in memory of projected records at μ, with plain noise or mixed."""
    facts = calibration.settled_facts(rows, certified=True, public=None, clip=rows.projection.clip)
    encoder, guarantees = (Gaussian() if plain else Singular()).calibrate(Mu(mu), facts)
    return in_memory(rows, encoder, guarantees, party="party", stream=stream, label_epsilon=label_epsilon)
