"""Rosters: which parties take part in secure sums, and the public keys by which they know each other.

Every party gets the roster beforehand, by a way that it trusts, and compares its fingerprint with the other parties. A
roster never comes from the server within a job: a server that hands out keys can put its own in their place, and read
every message. A roster does not stop one organisation from appearing under several names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from mixveil.core import files, strict_json
from mixveil.core.errors import ArgumentError, DataFormatError, ManifestError, OutputError
from mixveil.federated import key_files
from mixveil.federated.jobs.messages import check_name

FORMAT, KEY_FORMAT, VERSION = "mixveil-roster", "mixveil-roster-key", 1
ROSTER, PUBLIC, PRIVATE = "roster.json", ".roster", ".roster.key"
"""The name of a roster's file; how the names of a party's public and of its private file end."""

LEAST = 3
"""Parties of a roster and of a secure sum: of two, each could subtract its own part and read the other's."""

_LIMIT = 1 << 20


@dataclass(frozen=True)
class Roster:
    """The parties that know each other by their keys.

    Attributes:
        keys: The Ed25519 public key of each party, 32 bytes, by name.
    """

    keys: Mapping[str, bytes]

    def __post_init__(self) -> None:
        if len(self.keys) < LEAST:
            raise ArgumentError(f"a roster must name at least {LEAST} parties, got {len(self.keys)}")
        owners: dict[bytes, str] = {}
        for name, key in self.keys.items():
            check_name("party", name)
            if len(key) != 32:
                raise ArgumentError(f"the key of {name} must have 32 bytes, got {len(key)}")
            if (other := owners.setdefault(key, name)) != name:
                raise ArgumentError(f"{other} and {name} have the same key: a party is named once")

    def key(self, party: str) -> Ed25519PublicKey:
        return Ed25519PublicKey.from_public_bytes(self.keys[party])

    def data(self) -> bytes:
        """The bytes of its file: the same for the same parties and keys."""
        parties = {name: self.keys[name].hex() for name in sorted(self.keys)}
        return (json.dumps({"format": FORMAT, "version": VERSION, "parties": parties}, indent=2) + "\n").encode()

    def fingerprint(self) -> str:
        """What the parties read to each other. It has all 64 digits: a party that chooses its own key could find two
        rosters with the same few."""
        return key_files.read_out(self.data(), 64)


def read(path: Path) -> Roster:
    """A roster from its file."""
    files.check_there(path, "a roster, which `mixveil keys roster` makes")
    data = files.read_small(path, _LIMIT)
    with _fault_of(path):
        parties = strict_json.mapping("parties", _fields(data, FORMAT, {"parties"})["parties"])
        return Roster({name: _key(f"the key of {strict_json.shown(name)}", text) for name, text in parties.items()})


def together(public: Sequence[Path]) -> Roster:
    """A roster of parties' public files."""
    members: dict[str, bytes] = {}
    for path in public:
        party, key = read_public(path)
        if party in members:
            raise ArgumentError(f"{party} is named twice: give one public file of each party")
        members[party] = key
    return Roster(members)


def write(out: Path, roster: Roster) -> None:
    files.check_new(out)
    files.check_parent(out)
    files.write_whole(out, roster.data())


def make_key(folder: Path, party: str) -> Path:
    """A party's roster key in its folder of keys, which is made if it is not there, and beside it the public file.
    Returns where that is. The private file never leaves."""
    check_name("party", party)
    private, public = folder / f"{party}{PRIVATE}", folder / f"{party}{PUBLIC}"
    for path in (private, public):
        files.check_new(path)
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    whole = {"format": KEY_FORMAT, "version": VERSION, "party": party, "key": key.public_key().public_bytes_raw().hex()}
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write_file(private, pem, 0o600)
        files.write_file(public, (json.dumps(whole, indent=2) + "\n").encode())
    except OSError as error:
        raise OutputError(f"{folder} could not be written: {error}") from None
    return public


def read_public(path: Path) -> tuple[str, bytes]:
    """Whose public file this is, and the key in it."""
    files.check_there(path, "a party's public file, which `mixveil keys roster-key` makes")
    data = files.read_small(path, _LIMIT)
    with _fault_of(path):
        whole = _fields(data, KEY_FORMAT, {"party", "key"})
        return check_name("party", strict_json.text("party", whole["party"])), _key("key", whole["key"])


def read_key(path: Path) -> Ed25519PrivateKey:
    """A party's private roster key. One that others on this machine could read is refused."""
    files.check_there(path, "the private roster key, which `mixveil keys roster-key` makes")
    key_files.check_private(path)
    try:
        key = serialization.load_pem_private_key(files.read_small(path, _LIMIT), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise DataFormatError(f"{path} is not a private roster key: `mixveil keys roster-key` makes one")
    return key


def fingerprint(key: bytes) -> str:
    """Of one party's public key: what its owner reads to the others."""
    return key_files.read_out(key)


@contextmanager
def _fault_of(path: Path) -> Iterator[None]:
    try:
        yield
    except (ArgumentError, ManifestError) as error:
        raise DataFormatError(f"{path}: {error}") from None


def _fields(data: bytes, form: str, names: set[str]) -> dict[str, Any]:
    whole = strict_json.mapping("the file", strict_json.parsed(data))
    strict_json.only("the file", whole, {"format", "version", *names})
    if (whole["format"], whole["version"]) != (form, VERSION) or whole["version"] is True:
        found = strict_json.shown([whole["format"], whole["version"]])
        raise ManifestError(f"it must be of the format {form}, version {VERSION}, got {found}")
    return whole


def _key(where: str, text: Any) -> bytes:
    return bytes.fromhex(strict_json.text(where, text, "[0-9a-f]{64}"))
