"""What a secure sum costs a party and the server, beside the same sum in the clear: 8 bytes a value, added up."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.record import Found, Plain
from mixveil.core.randomness import release_id
from mixveil.federated.roster import Roster
from mixveil.federated.secure_sums import Agreement, Announcement, Context, Rules, Signed, SumAttempt, announced, summed

_REPETITIONS = 5


def secured(parties: Sequence[int] = (3, 10, 100), values: int = 10 * 1025) -> Found:
    """Class or residual sums of 10 classes and 1,024 features."""
    rows = [_figures(count, values) for count in parties]
    return Found(rows, {"warm_up": 1, "repetitions": _REPETITIONS, "statistic": "best"}, packages=("cryptography",))


def _figures(parties: int, values: int) -> dict[str, Plain]:
    names = tuple(f"party-{i:03d}" for i in range(parties))
    keys = {name: Ed25519PrivateKey.generate() for name in names}
    roster = Roster({name: key.public_key().public_bytes_raw() for name, key in keys.items()})
    context = Context(release_id(), 0, 0, "class-sums", names, parties, bytes(32))
    vector = np.random.default_rng(0).integers(-(1 << 40), 1 << 40, values)
    turns = [_turn(context, roster, keys, vector) for _ in range(_REPETITIONS + 1)][1:]  # the first only warms up
    masked = dict.fromkeys(names, vector.tobytes())  # what it adds up makes no difference to its speed
    server = min(_seconds(lambda: summed(masked, names, values)) for _ in range(_REPETITIONS))
    clear = min(_seconds(lambda: sum(np.frombuffer(data, np.int64) for data in masked.values())) for _ in turns)
    sent, received = turns[0][1:]
    return {
        "parties": parties,
        "values": values,
        "party_seconds": min(seconds for seconds, *_ in turns),
        "server_seconds": server,
        "server_seconds_in_the_clear": clear,
        "server_over_clear": server / clear,
        "bytes_sent": sent,
        "bytes_received": received,
        "bytes_sent_in_the_clear": 8 * values,
        "sent_over_clear": sent / (8 * values),
    }


def _turn(
    context: Context, roster: Roster, keys: Mapping[str, Ed25519PrivateKey], vector: np.ndarray[Any, Any]
) -> tuple[float, int, int]:
    """One attempt at one party: its seconds, and the bytes that it sends and receives as JSON and words. What the other
    parties do meanwhile is not counted."""
    own, *others = context.parties
    rules, digest = Rules(len(context.parties)), context.digest()
    shown = [SumAttempt(context, name, roster, keys[name], rules).announcement for name in others]
    start = time.perf_counter()
    attempt = SumAttempt(context, own, roster, keys[own], rules)
    first = time.perf_counter() - start
    shown = [attempt.announcement, *shown]
    relayed = _bytes(shown)
    start = time.perf_counter()
    agreement = attempt.agree([Announcement.read(item) for item in json.loads(relayed)])
    second = time.perf_counter() - start
    signed = _bytes([agreement, *(Agreement.sign(keys[name], name, digest, announced(shown)) for name in others)])
    start = time.perf_counter()
    attempt.confirm([Agreement.read(item) for item in json.loads(signed)])
    masked = attempt.masked(vector)
    third = time.perf_counter() - start
    sent = len(_bytes([attempt.announcement])) + len(_bytes([agreement])) + len(masked)
    return first + second + third, sent, len(relayed) + len(signed)


def _bytes(items: Sequence[Signed]) -> bytes:
    return json.dumps([item.plain() for item in items]).encode()


def _seconds(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
