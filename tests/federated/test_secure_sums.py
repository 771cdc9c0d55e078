"""Secure sums: honest parties, and a server that lies to them in every way there is."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import hmac
import json
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mixveil.core.errors import ArgumentError, ManifestError, SecureSumError, StreamError
from mixveil.federated import secure_sums
from mixveil.federated.roster import Roster
from mixveil.federated.secure_sums import Agreement, Announcement, Context, Rules, Signed, SumAttempt, summed

NAMES = ("east", "north", "south", "west")
KEYS = {name: Ed25519PrivateKey.generate() for name in NAMES}
ROSTER = Roster({name: key.public_key().public_bytes_raw() for name, key in KEYS.items()})
CONTEXT = Context("ab" * 16, 3, 0, "residual-sums", NAMES, 2, hashlib.sha256(b"terms").digest())
OTHERS: Mapping[str, Any] = {
    "job": "cd" * 16,
    "round": 4,
    "attempt": 1,
    "kind": "class-sums",
    "parties": NAMES[:3],
    "honest": 3,
    "terms": hashlib.sha256(b"other terms").digest(),
}
RULES = Rules(honest=3, smallest=3)


def begun(context: Context = CONTEXT, **changed: Any) -> dict[str, SumAttempt]:
    terms = {"roster": ROSTER, "rules": RULES, **changed}
    return {name: SumAttempt(context, name, key=KEYS[name], **terms) for name in context.parties}


def announcements(attempts: Mapping[str, SumAttempt]) -> list[Announcement]:
    return [attempt.announcement for attempt in attempts.values()]


def agreements(attempts: Mapping[str, SumAttempt]) -> list[Agreement]:
    shown = announcements(attempts)
    return [attempt.agree(shown) for attempt in attempts.values()]


def confirmed(context: Context = CONTEXT) -> dict[str, SumAttempt]:
    attempts = begun(context)
    signed = agreements(attempts)
    for attempt in attempts.values():
        attempt.confirm(signed)
    return attempts


def over(attempt: SumAttempt) -> bool:
    """Whether an attempt can take no step any more. It asks for all of them."""
    steps: tuple[Callable[[], object], ...] = (
        lambda: attempt.agree([]),
        lambda: attempt.confirm([]),
        lambda: attempt.masked(np.zeros(1, np.int64)),
    )
    for step in steps:
        with pytest.raises(StreamError, match="over"):
            step()
    return True


def changed(signed: Signed, **fields: Any) -> Any:
    return dataclasses.replace(signed, **fields)


def refuses_to_agree(attempt: SumAttempt, shown: Sequence[Announcement], why: str) -> None:
    with pytest.raises(SecureSumError, match=why):
        attempt.agree(shown)
    assert over(attempt)


def refuses_to_confirm(attempt: SumAttempt, shown: Sequence[Agreement], why: str) -> None:
    with pytest.raises(SecureSumError, match=why):
        attempt.confirm(shown)
    assert over(attempt)


# The sum


@given(st.integers(3, 6), st.integers(1, 40), st.data())
@settings(max_examples=25, deadline=None)
def test_the_masked_vectors_sum_to_the_plain_sum(parties: int, count: int, data: st.DataObject) -> None:
    names = tuple(f"p{i}" for i in range(parties))
    keys = {name: Ed25519PrivateKey.generate() for name in names}
    roster = Roster({name: key.public_key().public_bytes_raw() for name, key in keys.items()})
    context = dataclasses.replace(CONTEXT, parties=names)
    attempts = {name: SumAttempt(context, name, roster, keys[name], Rules(honest=2)) for name in names}
    signed = agreements(attempts)
    whole = st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=count, max_size=count)
    values, masked = {name: data.draw(whole) for name in names}, {}
    for name, attempt in attempts.items():
        attempt.confirm(signed)
        masked[name] = attempt.masked(np.array(values[name], np.int64))
    total = [sum(each) % (1 << 64) for each in zip(*values.values(), strict=True)]  # whole numbers without a bound
    assert [value % (1 << 64) for value in summed(masked, names, count).tolist()] == total


def test_the_server_refuses_a_party_too_few_or_too_many_and_another_length() -> None:
    masked = {name: attempt.masked(np.arange(5)) for name, attempt in confirmed().items()}
    assert summed(masked, NAMES, 5).tolist() == [0, 4, 8, 12, 16]
    with pytest.raises(SecureSumError, match="1 missing, 0 unknown"):
        summed({name: masked[name] for name in NAMES[1:]}, NAMES, 5)
    with pytest.raises(SecureSumError, match="0 missing, 1 unknown"):
        summed({**masked, "centre": masked["east"]}, NAMES, 5)
    for wrong in (b"", masked["east"][:-1], masked["east"] + bytes(8)):
        with pytest.raises(SecureSumError, match="east must send 40 bytes"):
            summed({**masked, "east": wrong}, NAMES, 5)


# What the server sees


def looks_uniform(words: NDArray[np.uint64]) -> bool:
    """Whether each of the 64 bits is set in about half of the words, and independently of the bit beside it: none is 7
    deviations off."""
    bits = np.unpackbits(words.view(np.uint8).reshape(-1, 8), axis=1)
    beside = bits[:, 1:] ^ bits[:, :-1]
    worst = max(float(abs(part.mean(0) - 0.5).max()) for part in (bits, beside))
    return bool(worst < 7 * 0.5 / len(words) ** 0.5)


def words(data: bytes) -> NDArray[np.uint64]:
    return np.frombuffer(data, np.dtype("<u8"))


def test_a_masked_vector_alone_is_uniform_also_for_all_but_two_of_the_parties() -> None:
    attempts = confirmed()
    masked = {name: words(attempt.masked(np.full(4000, 7))) for name, attempt in attempts.items()}
    for vector in masked.values():
        assert looks_uniform(vector)
    for left_out in NAMES:  # any three of four
        assert looks_uniform(sum((masked[name] for name in NAMES if name != left_out), np.zeros(4000, np.uint64)))
    assert not looks_uniform(sum(masked.values(), np.zeros(4000, np.uint64)))  # the sum is what is seen


def test_a_coalition_that_takes_its_own_masks_away_still_sees_a_uniform_vector() -> None:
    """South and west work for the server: they take the masks that they share with east off its vector."""
    attempts = begun()
    seen = secure_sums.announced(announcements(attempts))
    secrets = {name: attempts[name]._ready[1] for name in ("south", "west", "north")}  # type: ignore[index]
    signed = agreements(attempts)
    attempts["east"].confirm(signed)
    vector, theirs = words(attempts["east"].masked(np.zeros(4000, np.int64))).copy(), attempts["east"].announcement
    for name in ("south", "west"):
        key = secure_sums.pair_key(secrets[name], theirs.value, CONTEXT.digest(), seen, name, "east")
        vector -= secure_sums.expanded(key, 4000)
    assert looks_uniform(vector)
    key = secure_sums.pair_key(secrets["north"], theirs.value, CONTEXT.digest(), seen, "north", "east")
    assert not (vector - secure_sums.expanded(key, 4000)).any()  # north's alone hid it: with all others it is bare


def test_without_masks_a_vector_does_not_look_uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secure_sums, "expanded", lambda key, count: np.zeros(count, np.uint64))
    vector = words(confirmed()["east"].masked(np.random.default_rng(0).integers(-1000, 1000, 4000)))
    assert not looks_uniform(vector)


def test_each_attempt_and_each_pair_has_masks_of_its_own() -> None:
    vectors = [attempt.masked(np.zeros(4, np.int64)) for _ in range(3) for attempt in confirmed().values()]
    assert len({*vectors}) == len(vectors)


def test_a_changed_masked_vector_spoils_the_sum_and_shows_nothing() -> None:
    """The server has both vectors anyway: what it adds comes out, and no more."""
    masked = {name: attempt.masked(np.full(4000, 7)) for name, attempt in confirmed().items()}
    noise = np.random.default_rng(0).integers(0, 1 << 64, 4000, np.uint64)
    spoilt = summed({**masked, "east": (words(masked["east"]) + noise).tobytes()}, NAMES, 4000)
    assert (spoilt.view(np.uint64) - noise == 28).all() and (spoilt != 28).any()
    assert looks_uniform(summed({**masked, "east": bytes(32000)}, NAMES, 4000).view(np.uint64))


# A server that lies about announcements


def test_a_key_of_the_servers_own_in_place_of_a_partys() -> None:
    attempts, server = begun(), Ed25519PrivateKey.generate()
    secret = X25519PrivateKey.generate().public_key().public_bytes_raw()
    forged = Announcement.sign(server, "west", CONTEXT.digest(), secret)
    shown = [item for item in announcements(attempts) if item.party != "west"] + [forged]
    refuses_to_agree(attempts["east"], shown, "west is not signed with its roster key")


def test_a_false_roster_at_one_party_stops_the_attempt() -> None:
    """The party that was given the server's key in place of west's believes the server; the others do not."""
    server = Ed25519PrivateKey.generate()
    false = Roster({**ROSTER.keys, "west": server.public_key().public_bytes_raw()})
    attempts, deceived = begun(), SumAttempt(CONTEXT, "east", false, KEYS["east"], RULES)
    fake = SumAttempt(CONTEXT, "west", false, server, RULES)
    shown = [deceived.announcement, *(attempts[n].announcement for n in ("north", "south")), fake.announcement]
    deceived.agree(shown)
    refuses_to_agree(attempts["north"], shown, "west is not signed with its roster key")
    refuses_to_confirm(deceived, [fake.agree(shown)], "not the agreed set: 3 missing")


def test_a_party_named_twice() -> None:
    attempts = begun()
    shown = announcements(attempts)
    refuses_to_agree(attempts["east"], [*shown, shown[-1]], "named twice")
    again = SumAttempt(CONTEXT, "west", ROSTER, KEYS["west"], RULES).announcement
    refuses_to_agree(attempts["north"], [*shown, again], "named twice")


def test_a_missing_and_an_unknown_party() -> None:
    attempts = begun()
    shown = announcements(attempts)
    refuses_to_agree(attempts["east"], shown[:-1], "1 missing, 0 unknown")
    refuses_to_agree(attempts["north"], [*shown[:-1], changed(shown[-1], party="centre")], "1 missing, 1 unknown")
    refuses_to_agree(attempts["south"], [], "4 missing")


@pytest.mark.parametrize("field", ["value", "signature", "context"])
def test_an_altered_announcement(field: str) -> None:
    attempts = begun()
    first, *others = announcements(attempts)
    octets = getattr(others[0], field)
    altered = changed(others[0], **{field: bytes([octets[0] ^ 1]) + octets[1:]})
    refuses_to_agree(attempts["east"], [first, altered, *others[1:]], "another attempt|not signed")


def test_the_own_announcement_exchanged_for_an_earlier_one() -> None:
    """It has the right signature: the party itself made it, for an attempt that it began before."""
    attempts, earlier = begun(), begun()["east"].announcement
    refuses_to_agree(
        attempts["east"], [earlier, *announcements(attempts)[1:]], "announcement of this party was changed"
    )


@pytest.mark.parametrize("field", [*OTHERS])
def test_messages_of_another_context_are_not_taken(field: str) -> None:
    other = dataclasses.replace(CONTEXT, **{field: OTHERS[field]})
    before, attempts = begun(other), begun()
    replayed = before["east"].announcement
    refuses_to_agree(attempts["north"], [replayed, *announcements(attempts)[1:]], "another attempt, set, kind or other")
    forged = changed(replayed, context=CONTEXT.digest())  # the server writes what it likes
    refuses_to_agree(attempts["south"], [forged, *announcements(attempts)[1:]], "not signed with its roster key")
    earlier, attempts = agreements(before)[0], begun()
    signed = agreements(attempts)
    refuses_to_confirm(attempts["north"], [earlier, *signed[1:]], "another attempt, set, kind or other terms")
    forged = changed(earlier, context=CONTEXT.digest(), value=signed[0].value)
    refuses_to_confirm(attempts["south"], [forged, *signed[1:]], "not signed with its roster key")


def test_a_key_of_small_order_gives_no_mask() -> None:
    """West works for the server, and announces a key with which every secret is zero."""
    attempts = begun()
    weak = Announcement.sign(KEYS["west"], "west", CONTEXT.digest(), bytes(32))
    shown = [*announcements(attempts)[:3], weak]
    signed = [attempts[name].agree(shown) for name in NAMES[:3]]
    signed.append(Agreement.sign(KEYS["west"], "west", CONTEXT.digest(), signed[0].value))
    refuses_to_confirm(attempts["east"], signed, "west announced is not one")


# A server that lies about agreements


def test_two_sets_shown_to_two_parties() -> None:
    """West works for the server: it announces two keys, both rightly signed, one to each half of the parties."""
    attempts, second = begun(), SumAttempt(CONTEXT, "west", ROSTER, KEYS["west"], RULES)
    one = announcements(attempts)
    other = [*one[:3], second.announcement]
    signed = [attempts["east"].agree(one), attempts["north"].agree(other)]
    signed += [attempts["south"].agree(other), second.agree(other)]
    refuses_to_confirm(attempts["east"], signed, "north was shown other announcements")
    refuses_to_confirm(attempts["north"], signed, "east was shown other announcements")


def test_a_party_agrees_once() -> None:
    attempts = begun()
    shown = announcements(attempts)
    attempts["east"].agree(shown)
    with pytest.raises(StreamError):
        attempts["east"].agree(shown)
    assert over(attempts["east"])


def test_missing_doubled_and_altered_agreements() -> None:
    attempts = begun()
    signed = agreements(attempts)
    refuses_to_confirm(attempts["east"], signed[:-1], "1 missing")
    refuses_to_confirm(attempts["north"], [*signed, signed[0]], "named twice")
    altered = changed(signed[3], signature=bytes(64))
    refuses_to_confirm(attempts["south"], [*signed[:3], altered], "west is not signed")


def test_an_announcement_is_no_agreement() -> None:
    attempts = begun()
    shown, digest = announcements(attempts), CONTEXT.digest()
    signed = agreements(attempts)
    passed_off = Announcement.sign(KEYS["west"], "west", digest, signed[0].value)
    with pytest.raises(ArgumentError, match="type Agreement"):
        attempts["east"].confirm([*signed[:3], passed_off])  # type: ignore[list-item]
    read = Agreement.read(passed_off.plain())
    refuses_to_confirm(attempts["north"], [*signed[:3], read], "not signed with its roster key")
    assert [Announcement.read(item.plain()) for item in shown] == shown


# A mask is used once


def test_a_mask_is_used_once() -> None:
    attempts = confirmed()
    attempts["east"].masked(np.arange(3))
    assert over(attempts["east"])
    with pytest.raises(ArgumentError, match="int64"):
        attempts["north"].masked(np.zeros(3))  # type: ignore[arg-type]
    assert over(attempts["north"])  # whatever went wrong, the keys are gone


def test_nothing_is_masked_before_all_have_agreed() -> None:
    attempts = begun()
    for name, early in (("east", False), ("north", True)):
        if early:
            attempts[name].agree(announcements(attempts))
        with pytest.raises(StreamError):
            attempts[name].masked(np.arange(3))
        assert over(attempts[name])


@pytest.mark.parametrize("carried", [pickle.dumps, copy.copy, copy.deepcopy])
def test_an_attempt_is_never_copied_or_stored(carried: Callable[[Any], Any]) -> None:
    for attempt in (begun()["east"], confirmed()["east"]):
        with pytest.raises(StreamError, match="never copied or stored"):
            carried(attempt)


def test_a_forked_process_cannot_mask() -> None:
    attempt = confirmed()["east"]
    child = os.fork()
    if not child:
        try:
            attempt.masked(np.arange(3))
        except StreamError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert len(attempt.masked(np.arange(3))) == 24


def test_a_restarted_party_has_other_keys() -> None:
    """The same context, the same roster key: the first attempt left nothing, and its agreements are of no use."""
    attempts = begun()
    signed = agreements(attempts)
    again = begun()["east"]
    assert again.announcement.value != attempts["east"].announcement.value
    again.agree([again.announcement, *announcements(attempts)[1:]])
    refuses_to_confirm(again, signed, "was shown other announcements")


# A party's own rules


@pytest.mark.parametrize(
    ("rules", "context", "party", "why"),
    [
        (Rules(3), {"parties": NAMES[:3]}, "east", "set has 3 parties, and this party accepts 4"),
        (Rules(3, 4), {"parties": NAMES[:3]}, "east", "accepts 4 or more"),
        (Rules(2, 3), {"honest": 3}, "east", r"honest must be in \[2, 2\] .* got 3"),
        (Rules(9, 3), {"honest": 5}, "east", r"honest must be in \[2, 4\] .* got 5"),
        (Rules(3, 3), {"honest": 1}, "east", r"honest must be in \[2, 3\] .* got 1"),
        (Rules(3, 3), {"parties": NAMES[1:]}, "east", "east is not in the set"),
        (Rules(3, 3), {"parties": ("centre", *NAMES)}, "east", "roster does not name centre"),
    ],
)
def test_a_party_signs_nothing_against_its_rules(rules: Rules, context: Any, party: str, why: str) -> None:
    with pytest.raises(SecureSumError, match=why):
        SumAttempt(dataclasses.replace(CONTEXT, **context), party, ROSTER, KEYS[party], rules)


def test_no_rules_accept_two_parties_or_one_honest_one() -> None:
    for honest, smallest in ((1, 3), (2, 2), (0, None), (2, 0)):
        with pytest.raises(ArgumentError, match="must be at least"):
            Rules(honest, smallest)


def test_a_key_that_the_roster_does_not_know_signs_nothing() -> None:
    with pytest.raises(ArgumentError, match="another key of east"):
        SumAttempt(CONTEXT, "east", ROSTER, KEYS["west"], RULES)


# What is written


@pytest.mark.parametrize(
    "wrong",
    [
        {"job": "AB" * 16},
        {"job": "ab"},
        {"round": -1},
        {"round": True},
        {"attempt": 1.0},
        {"kind": "records"},
        {"parties": ("b", "a", "c")},
        {"parties": ("a", "a", "b")},
        {"parties": ["a", "b", "c"]},
        {"parties": ("a", "b", "../c")},
        {"honest": "2"},
        {"terms": bytes(31)},
        {"terms": "ab" * 16},
    ],
)
def test_a_context_has_one_form(wrong: Any) -> None:
    with pytest.raises(ArgumentError):
        dataclasses.replace(CONTEXT, **wrong)


def test_every_field_of_a_context_is_in_its_digest() -> None:
    assert OTHERS.keys() == {field.name for field in dataclasses.fields(Context)}
    others = [dataclasses.replace(CONTEXT, **{name: value}) for name, value in OTHERS.items()]
    assert len({context.digest() for context in (CONTEXT, *others)}) == len(others) + 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"party": "../east"},
        {"party": 1},
        {"value": "00" * 31},
        {"value": "AB" * 32},
        {"signature": "00" * 32},
        {"context": None},
        {"more": 1},
    ],
)
def test_signed_messages_are_read_strictly(wrong: Any) -> None:
    plain = json.loads(json.dumps(begun()["east"].announcement.plain()))
    assert Announcement.read(plain).plain() == plain
    with pytest.raises(ManifestError):
        Announcement.read({**plain, **wrong})
    for name in plain:
        with pytest.raises(ManifestError, match=f"missing {name}"):
            Announcement.read({key: text for key, text in plain.items() if key != name})


def test_fixed_keys_give_fixed_bytes() -> None:
    """Versions of mixveil that sum together must agree on these."""
    names = ("a", "b", "c")
    context = Context("00" * 16, 0, 0, "class-sums", names, 2, bytes(32)).digest()
    keys = [Ed25519PrivateKey.from_private_bytes(bytes([i] * 32)) for i in range(3)]
    secrets = [X25519PrivateKey.from_private_bytes(bytes([16 + i] * 32)) for i in range(3)]
    shown = [
        Announcement.sign(key, name, context, secret.public_key().public_bytes_raw())
        for key, name, secret in zip(keys, names, secrets, strict=True)
    ]
    seen = secure_sums.announced(shown)
    key = secure_sums.pair_key(secrets[0], shown[1].value, context, seen, "a", "b")
    assert key == secure_sums.pair_key(secrets[1], shown[0].value, context, seen, "b", "a")
    mask = secure_sums.expanded(key, 1000).tobytes()
    found = [context, seen, Agreement.sign(keys[0], "a", context, seen).signature, key, mask]
    assert [hashlib.sha256(data).hexdigest()[:32] for data in found] == [
        "6467be3a8f730acd56f5c718bf386df0",
        "47c99684dbde50678f26468b23fba199",
        "2da42b2ca03242c2363d28f9aa85daa4",
        "3f9b43d2c05a8aaedd7e9acf823f667c",
        "3c89777a00c3db9521472b1fd3d70d00",
    ]


def test_a_mask_is_what_the_standards_say() -> None:
    """HKDF (RFC 5869) from bare HMACs, and counter mode a block at a time."""
    mine, theirs = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    shared = mine.exchange(theirs.public_key())
    info = b"mixveil secure sums 1 mask\n" + b"c" * 32 + b"s" * 32 + b'["a", "b"]'
    key = hmac.digest(hmac.digest(bytes(32), shared, "sha256"), info + b"\x01", "sha256")
    public = theirs.public_key().public_bytes_raw()
    assert secure_sums.pair_key(mine, public, b"c" * 32, b"s" * 32, "b", "a") == key
    block = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305, one block at a time
    stream = b"".join(block.update(i.to_bytes(16, "big")) for i in range(5))
    assert secure_sums.expanded(key, 9).tolist() == [
        int.from_bytes(stream[i : i + 8], "little") for i in range(0, 72, 8)
    ]
