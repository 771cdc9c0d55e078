"""Rosters and their keys: files that parties gave each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mixveil.core.errors import ArgumentError, DataFormatError, MissingPathError, OutputExistsError, ServiceError
from mixveil.federated import roster
from mixveil.federated.roster import Roster

KEYS = {name: bytes([i] * 32) for i, name in enumerate(("north", "south", "west"))}


@pytest.fixture
def public(tmp_path: Path) -> list[Path]:
    return [roster.make_key(tmp_path / name, name) for name in KEYS]


def test_from_keys_to_a_roster_and_back(public: list[Path], tmp_path: Path) -> None:
    made = roster.together(public)
    roster.write(tmp_path / "roster.json", made)
    again = roster.read(tmp_path / "roster.json")
    assert again == made and again.fingerprint() == made.fingerprint() and sorted(again.keys) == sorted(KEYS)
    for path in public:
        key = roster.read_key(path.with_name(f"{path.stem}.roster.key"))
        again.key(path.stem).verify(key.sign(b"hello"), b"hello")
    with pytest.raises(OutputExistsError):
        roster.write(tmp_path / "roster.json", made)


def test_the_order_of_parties_does_not_change_a_roster() -> None:
    turned = Roster(dict(reversed(KEYS.items())))
    assert turned.data() == Roster(KEYS).data() and turned.fingerprint() == Roster(KEYS).fingerprint()


def test_fingerprints_differ_by_name_and_by_key() -> None:
    prints = {Roster(KEYS).fingerprint(), Roster({**KEYS, "west": b"w" * 32}).fingerprint()}
    prints.add(Roster({("east" if name == "west" else name): key for name, key in KEYS.items()}).fingerprint())
    assert len(prints) == 3 and all(len(text.split()) == 16 for text in prints)
    assert len(roster.fingerprint(KEYS["north"]).split()) == 8


def test_a_private_key_is_its_owners_alone(public: list[Path]) -> None:
    private = public[0].with_name("north.roster.key")
    assert private.stat().st_mode & 0o777 == 0o600 and private.parent.stat().st_mode & 0o777 == 0o700
    assert private.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")
    private.chmod(0o640)
    with pytest.raises(ServiceError, match="chmod 600"):
        roster.read_key(private)


def test_no_key_is_overwritten(public: list[Path], tmp_path: Path) -> None:
    before = public[0].with_name("north.roster.key").read_bytes()
    with pytest.raises(OutputExistsError):
        roster.make_key(tmp_path / "north", "north")
    assert public[0].with_name("north.roster.key").read_bytes() == before
    assert roster.make_key(tmp_path / "north", "other").exists()  # beside other keys


def test_what_is_no_private_key_is_refused(tmp_path: Path) -> None:
    other = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for data in (b"", b"no key", other):
        path = tmp_path / "a.roster.key"
        path.write_bytes(data)
        path.chmod(0o600)
        with pytest.raises(DataFormatError, match="not a private roster key"):
            roster.read_key(path)
    with pytest.raises(MissingPathError, match="roster-key"):
        roster.read_key(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({}, "at least 3 parties, got 0"),
        ({name: KEYS[name] for name in ("north", "south")}, "at least 3 parties, got 2"),
        ({**KEYS, "east": KEYS["west"]}, "west and east have the same key"),
        ({**KEYS, "../east": b"e" * 32}, "party must be"),
        ({**KEYS, "east": b"e" * 31}, "32 bytes, got 31"),
    ],
)
def test_what_is_no_roster_is_refused(keys: dict[str, bytes], why: str) -> None:
    with pytest.raises(ArgumentError, match=why):
        Roster(keys)


WHOLE: dict[str, Any] = json.loads(Roster(KEYS).data())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ("[]", "type dict"),
        (json.dumps({**WHOLE, "version": 2}), "version 1, got"),
        (json.dumps({**WHOLE, "version": True}), "version 1, got"),
        (json.dumps({**WHOLE, "format": "mixveil-roster-key"}), "format mixveil-roster,"),
        (json.dumps({**WHOLE, "more": 1}), "unknown 'more'"),
        (json.dumps({"format": "mixveil-roster", "version": 1}), "missing parties"),
        (json.dumps({**WHOLE, "parties": [*KEYS]}), "type dict"),
        (json.dumps({**WHOLE, "parties": {**WHOLE["parties"], "east": "00"}}), "key of 'east'"),
        (json.dumps({**WHOLE, "parties": {**WHOLE["parties"], "east": "AB" * 32}}), "key of 'east'"),
        (json.dumps({**WHOLE, "parties": {**WHOLE["parties"], "east": "00" * 32}}), "north and east have the same"),
        (json.dumps({**WHOLE, "parties": {"north": "00" * 32}}), "at least 3 parties"),
        (json.dumps(WHOLE).replace('"south"', '"north"'), "given twice"),
    ],
)
def test_a_roster_is_read_strictly(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "roster.json").write_text(text)
    with pytest.raises(DataFormatError, match=f"roster.json: .*{why}"):
        roster.read(tmp_path / "roster.json")
    with pytest.raises(DataFormatError, match=r"roster\.json: "):
        roster.read_public(tmp_path / "roster.json")


def test_two_files_of_one_party_make_no_roster(public: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="north is named twice"):
        roster.together([*public, public[0]])
    again = roster.make_key(tmp_path / "again", "north")
    with pytest.raises(ArgumentError, match="north is named twice"):
        roster.together([*public, again])
