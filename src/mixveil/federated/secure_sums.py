"""Secure sums: the server learns the sum of the parties' vectors, and nothing else of the honest ones.

Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning" (CCS 2017), without recovery of
parties that drop out. Each pair of parties shares a mask that one adds and the other subtracts, modulo 2⁶⁴. One attempt
at a message, at each party; the server relays what all of them return:

    attempt = SumAttempt(context, party, roster, key, rules)   → attempt.announcement, a fresh X25519 key, signed
    attempt.agree(all announcements)                           → an Agreement: a signature of all announcements
    attempt.confirm(all agreements)                            now enter the message in the ledger, and draw its noise
    attempt.masked(values)                                     → bytes, for `summed` at the server

Up to `confirm` nothing depends on data, and a failed attempt costs nothing. What fails later is begun again as a new
message: a new attempt number, new noise, a new entry. Never mask the same noisy values in two attempts: the difference
of sums over two sets would show one party's vector.

Formal guarantees, against the server and any parties together, if the roster is genuine (`roster`):

- Only the sum: given the sum of the honest parties' vectors modulo 2⁶⁴, their masked vectors are indistinguishable from
  uniform ones, if at least two parties of the set are honest.
- One set: a party masks only after every party of the set has signed, with its roster key, the same context and the
  same announcements. Two honest parties never mask for different sets, keys or terms.
- One attempt: a signature is worth nothing for any other job, round, attempt, kind, set, noise or terms.
- One use: an attempt masks one vector. A second call, a copy, a pickle, a fork and a restarted process are refused or
  have no key: keys are in memory alone. Every refusal ends the attempt.
- Own rules: before anything is signed, a party checks that the set holds at least `smallest` parties and never fewer
  than 3, that it relies on no more honest parties than it accepts, at least 2, and that the roster names all.

The server can always spoil the sum, and so can a party: a changed masked vector makes it garbage. That shows nothing.

With h honest parties in the set each party adds noise of variance σ²/h, and the sum is μ-GDP for a record that one
party has. Whatever the others do, what a party sends is μ·√h-GDP. A record that m parties have is in the sum m times
(`theory.shared_noise`).
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NoReturn, Self, TypeVar

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from mixveil.core import checks, randomness, strict_json
from mixveil.core.errors import ArgumentError, SecureSumError, StreamError
from mixveil.federated.jobs.messages import NAME, check_name
from mixveil.federated.roster import LEAST, Roster

KINDS = ("class-sums", "residual-sums", "second-moments")
_LABEL = b"mixveil secure sums 1 "
_WORD = np.dtype("<u8")
S = TypeVar("S", bound="Signed")


@dataclass(frozen=True)
class Context:
    """What all parties of one attempt at a message agree on. All of it is public.

    Attributes:
        job: 32 hexadecimal digits.
        round: Its number, from 0.
        attempt: Its number within the round, from 0.
        kind: One of `KINDS`.
        parties: The set: their names, sorted.
        honest: h: each party adds noise of variance σ²/h.
        terms: SHA-256 of all else that parties must agree on: the head, σ, clip norm, step and shape.
    """

    job: str
    round: int
    attempt: int
    kind: str
    parties: tuple[str, ...]
    honest: int
    terms: bytes

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-f]{32}", self.job):
            raise ArgumentError(f"job must be 32 hexadecimal digits, got {self.job!r:.80}")
        for name, value in (("round", self.round), ("attempt", self.attempt), ("honest", self.honest)):
            if type(value) is not int or not 0 <= value < 1 << 48:
                raise ArgumentError(f"{name} must be a whole number in [0, 2^48), got {value!r:.60}")
        if self.kind not in KINDS:
            raise ArgumentError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r:.60}")
        if not isinstance(self.parties, tuple) or self.parties != tuple(sorted({*self.parties})):
            raise ArgumentError(f"parties must be a tuple of names, sorted, each once, got {self.parties!r:.120}")
        for party in self.parties:
            check_name("party", party)
        if type(self.terms) is not bytes or len(self.terms) != 32:
            raise ArgumentError("terms must be the 32 bytes of a SHA-256")

    def digest(self) -> bytes:
        """SHA-256 of all fields, as JSON with sorted names: names of parties are ASCII, so it has one form alone."""
        whole = {**asdict(self), "terms": self.terms.hex()}
        text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(_LABEL + b"context\n" + text.encode("ascii")).digest()


@dataclass(frozen=True)
class Rules:
    """What a party accepts, by its own settings.

    Attributes:
        honest: The most honest parties, itself included, that it relies on in any set.
        smallest: The fewest parties of a set; None: the whole roster.
    """

    honest: int
    smallest: int | None = None

    def __post_init__(self) -> None:
        checks.at_least("honest", self.honest, 2)
        checks.at_least("smallest", LEAST if self.smallest is None else self.smallest, LEAST)

    def check(self, context: Context, party: str, roster: Roster) -> None:
        """Refuse an attempt that this party has no part in, or that would promise more than it relies on."""
        parties, smallest = context.parties, self.smallest or len(roster.keys)
        if unknown := sorted({*parties} - roster.keys.keys()):
            raise SecureSumError(f"the roster does not name {', '.join(unknown[:5])}")
        if party not in parties:
            raise SecureSumError(f"{party} is not in the set of this sum: {', '.join(parties[:5])}")
        if len(parties) < smallest:
            raise SecureSumError(f"the set has {len(parties)} parties, and this party accepts {smallest} or more")
        most = min(self.honest, len(parties))
        if not 2 <= context.honest <= most:
            raise SecureSumError(f"honest must be in [2, {most}] for this set and this party, got {context.honest}")


@dataclass(frozen=True)
class Signed:
    """32 bytes that a party signed for one attempt with its roster key.

    Attributes:
        party: The name of the party.
        context: The digest of the attempt's context, 32 bytes.
        value: What it says, 32 bytes.
        signature: Ed25519 of the kind of message, value, context and name, 64 bytes.
    """

    party: str
    context: bytes
    value: bytes
    signature: bytes

    label: ClassVar[bytes]

    @classmethod
    def sign(cls, key: Ed25519PrivateKey, party: str, context: bytes, value: bytes) -> Self:
        return cls(party, context, value, key.sign(cls._message(party, context, value)))

    @classmethod
    def _message(cls, party: str, context: bytes, value: bytes) -> bytes:
        return _LABEL + cls.label + value + context + party.encode("ascii")

    def check(self, roster: Roster, context: bytes) -> None:
        if self.context != context:
            raise SecureSumError(f"a message of {self.party} is of another attempt, set, kind or other terms")
        try:
            roster.key(self.party).verify(self.signature, self._message(self.party, self.context, self.value))
        except InvalidSignature:
            raise SecureSumError(f"a message of {self.party} is not signed with its roster key") from None

    def plain(self) -> dict[str, str]:
        """For JSON."""
        octets = {"context": self.context, "value": self.value, "signature": self.signature}
        return {"party": self.party, **{name: data.hex() for name, data in octets.items()}}

    @classmethod
    def read(cls, item: Any) -> Self:
        """From what another machine says. Nothing is believed before `check`."""
        whole = strict_json.mapping("signed", item)
        strict_json.only("signed", whole, {"party", "context", "value", "signature"})
        sizes = {"context": 32, "value": 32, "signature": 64}
        octets = {
            n: bytes.fromhex(strict_json.text(n, whole[n], f"[0-9a-f]{{{2 * size}}}")) for n, size in sizes.items()
        }
        return cls(strict_json.text("party", whole["party"], NAME), **octets)


class Announcement(Signed):
    """A party's fresh X25519 public key for one attempt."""

    label = b"announcement\n"


class Agreement(Signed):
    """A party's word that it saw these announcements: the SHA-256 of all of them."""

    label = b"agreement\n"


class SumAttempt:
    """A party's side of one attempt at one message: see the top of this file. Each step can be taken once, in order; a
    step that fails, or comes at the wrong time, ends the attempt.

    Attributes:
        context: What the parties agree on.
        announcement: What the party sends first.
    """

    def __init__(self, context: Context, party: str, roster: Roster, key: Ed25519PrivateKey, rules: Rules) -> None:
        """key: the party's private roster key."""
        rules.check(context, party, roster)
        if key.public_key().public_bytes_raw() != roster.keys[party]:
            raise ArgumentError(f"the roster has another key of {party}: give the private key that belongs to it")
        secret = X25519PrivateKey.from_private_bytes(randomness.exchange_secret())
        self.context, self._digest = context, context.digest()
        self.announcement = Announcement.sign(key, party, self._digest, secret.public_key().public_bytes_raw())
        self._party, self._roster, self._key = party, roster, key
        self._lock, self._process = threading.Lock(), randomness.this_process()
        self._ready: tuple[str, Any] | None = ("agree", secret)

    def agree(self, announcements: Sequence[Announcement]) -> Agreement:
        """Check the announcements of all parties, and sign that these are the ones."""
        secret = self._take("agree")
        by_name = _complete(Announcement, announcements, self.context, self._digest, self._roster)
        if by_name[self._party] != self.announcement:
            raise SecureSumError("the announcement of this party was changed on its way")
        seen = announced([by_name[party] for party in self.context.parties])
        self._ready = "confirm", (secret, by_name, seen)
        return Agreement.sign(self._key, self._party, self._digest, seen)

    def confirm(self, agreements: Sequence[Agreement]) -> None:
        """Check that all parties have signed the same announcements, and derive the keys of the masks."""
        secret, by_name, seen = self._take("confirm")
        for agreement in _complete(Agreement, agreements, self.context, self._digest, self._roster).values():
            if agreement.value != seen:
                raise SecureSumError(f"{agreement.party} was shown other announcements than this party")
        pairs = [
            (self._party < other, pair_key(secret, theirs.value, self._digest, seen, self._party, other))
            for other, theirs in by_name.items()
            if other != self._party
        ]
        self._ready = "masked", pairs

    def masked(self, values: NDArray[np.int64]) -> bytes:
        """Hide (n,) whole numbers, with their noise: 8n bytes for the server. The noise must be drawn for this attempt
        alone. This ends the attempt."""
        pairs = self._take("masked")
        if values.dtype != np.int64 or values.ndim != 1 or not len(values):
            raise ArgumentError(f"values must be (n,) int64, got {values.dtype} of shape {values.shape}")
        total = values.astype(_WORD)  # two's complement: the same numbers modulo 2⁶⁴
        for adds, key in pairs:
            mask = expanded(key, len(total))
            (np.add if adds else np.subtract)(total, mask, out=total)
        return total.tobytes()

    def _take(self, step: str) -> Any:
        """What a step needs. It is gone from here: a second call finds nothing."""
        if randomness.this_process() != self._process:
            raise StreamError("an attempt at a secure sum crossed into a forked process: its mask would be used twice")
        with self._lock:
            ready, self._ready = self._ready, None
        if ready is None or ready[0] != step:
            raise StreamError(
                f"{step} cannot be done now: the attempt is over, and its masks are gone. Begin a new one"
            )
        return ready[1]

    def __repr__(self) -> str:
        return f"SumAttempt({self.context!r}, {self._party!r})"

    def __reduce__(self) -> NoReturn:
        raise StreamError("an attempt at a secure sum is never copied or stored: its mask would be used twice")


def announced(announcements: Sequence[Announcement]) -> bytes:
    """SHA-256 of announcements in the order of the set."""
    text = json.dumps([item.plain() for item in announcements], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(_LABEL + b"announcements\n" + text.encode("ascii")).digest()


def pair_key(secret: X25519PrivateKey, public: bytes, context: bytes, seen: bytes, own: str, other: str) -> bytes:
    """The key of the mask that two parties share, 32 bytes: HKDF-SHA256 of their X25519 secret, for one context, one
    set of announcements (`seen`) and these two names."""
    try:
        shared = secret.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:  # a point of small order: the secret would be zero, whatever this party's key is
        raise SecureSumError(f"the key that {other} announced is not one") from None
    names = json.dumps(sorted([own, other])).encode("ascii")
    return HKDF(hashes.SHA256(), 32, None, _LABEL + b"mask\n" + context + seen + names).derive(shared)


def expanded(key: bytes, count: int) -> NDArray[np.uint64]:
    """(count,) words: AES-256 in counter mode from zero. A key serves one mask alone, so no nonce is needed."""
    cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * count)), _WORD)


def summed(masked: Mapping[str, bytes], parties: Collection[str], count: int) -> NDArray[np.int64]:
    """(count,) the sum of what the parties masked, modulo 2⁶⁴. A party that is missing or unknown, or sent another
    length, is an error. Whether a vector was changed cannot be seen: the sum is then garbage, and shows nothing."""
    if masked.keys() != {*parties}:
        missing, unknown = {*parties} - masked.keys(), masked.keys() - {*parties}
        raise SecureSumError(f"the sum needs all of its set: {len(missing)} missing, {len(unknown)} unknown")
    total = np.zeros(count, _WORD)
    for party, data in masked.items():
        if len(data) != 8 * count:
            raise SecureSumError(f"{party} must send {8 * count:,} bytes, got {len(data):,}")
        total += np.frombuffer(data, _WORD)
    return total.astype(np.uint64).view(np.int64)


def _complete(kind: type[S], items: Sequence[S], context: Context, digest: bytes, roster: Roster) -> dict[str, S]:
    """Signed messages by name: of each party of the set one, for this attempt, signed with its roster key."""
    if any(type(item) is not kind for item in items):  # each is checked as what it says it is
        raise ArgumentError(f"messages must be of the type {kind.__name__}")
    by_name = {item.party: item for item in items}
    if len(by_name) != len(items):
        raise SecureSumError("a party is named twice")
    if by_name.keys() != {*context.parties}:
        missing, unknown = {*context.parties} - by_name.keys(), by_name.keys() - {*context.parties}
        raise SecureSumError(f"not the agreed set: {len(missing)} missing, {len(unknown)} unknown")
    for item in items:
        item.check(roster, digest)
    return by_name
