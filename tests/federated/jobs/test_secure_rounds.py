"""Jobs in rounds of secure sums, in one process: the server sees the sum, and no malicious variant of it more."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixveil.core.wording.notes import Note
from mixveil.features import projection_file
from mixveil.federated import roster
from mixveil.federated.jobs.job import Job
from mixveil.federated.jobs.messages import MANIFEST, Message
from mixveil.federated.jobs.party import Party
from mixveil.federated.jobs.sums_plan import SumsPlan
from mixveil.federated.jobs.sums_state import load
from mixveil.federated.secure_sums import SumAttempt
from mixveil.learn.model import read_model
from mixveil.releases.ledger import Ledger
from mixveil.releases.reading import read_envelope, read_release
from mixveil.theory import shared_noise
from tests.federated.here import ROUNDS, Answer, Here, a_party, done, events, figures, refused, rounds_projection, why
from tests.federated.jobs.test_rounds_of_sums import (
    NAMES,
    PLAN,
    a_head,
    accuracy,
    answers,
    files_of,
    kept,
    killed_at,
    rounds_job,
)
from tests.made import blobs

pytestmark = pytest.mark.usefixtures("clock")


def a_roster(folder: Path, names: tuple[str, ...] = NAMES) -> dict[str, dict[str, Any]]:
    """What each party is given: the roster, and its own key."""
    keys = folder / "roster-keys"
    found = roster.together([roster.make_key(keys, name) for name in names])
    roster.write(folder / "roster.json", found)
    return {
        name: {"roster": str(folder / "roster.json"), "roster_key": str(keys / f"{name}.roster.key")} for name in names
    }


def secure_parties(folder: Path, names: tuple[str, ...] = NAMES, **more: Any) -> dict[str, Party]:
    given = a_roster(folder, names)
    return {n: a_party(folder, n, seed, honest=2, **given[n], **more) for seed, n in enumerate(names)}


def secure_job(folder: Path, **order: Any) -> Job:
    return rounds_job(folder, method="rounds-secure", **order)


# A whole job


def test_a_job_learns_from_sums_alone(tmp_path: Path) -> None:
    parties, job = secure_parties(tmp_path), secure_job(tmp_path)
    whole = done(job, Here(answers(parties)))
    assert whole["ok"], whole
    assert accuracy(whole) > 0.9
    card = read_model(Path(whole["model"])).card
    assert card["honest"] == 2 and card["mu"]["a"] == pytest.approx(4.0)
    assert card["mu_alone"] == pytest.approx(dict.fromkeys(NAMES, 4 * math.sqrt(2)))
    assert [told["code"] for told in card["guarantee"]][:2] == ["model-mu", "model-mu-shared"]
    # A record at all three moves each sum three times, under the noise of three: 3·√(2/3) times as far as μ permits.
    several = shared_noise.at_several(4.0, 2, 3, 3)
    told = next(told for told in card["guarantee"] if told["code"] == "model-mu-record-at-several-shared")
    assert told["figures"] == {"parties": 3, "mu": pytest.approx(several)}
    assert card["mu_with_several_parties"] == pytest.approx(several) == pytest.approx(math.sqrt(6) * 4)
    entries = Ledger().entries()
    assert len(entries) == 15 and {entry.encoder for entry in entries} == {
        "class-sums-shared-2",
        "residual-sums-shared-2",
    }
    assert not Ledger().reservations()
    for name in NAMES:
        for path in kept(tmp_path, name):
            assert files_of(job.folder / path.name / name) == files_of(path)


def test_a_ledger_of_three_parties_with_the_same_records_adds_up_what_their_sums_cost(tmp_path: Path) -> None:
    """One organisation with three names: its records are in each sum three times, under the noise of one."""
    job = secure_job(tmp_path)
    assert done(job, Here(answers(secure_parties(tmp_path, images=blobs(120, 0)))))["ok"]
    book = Ledger()
    for mu in (book.total().mu, book.standing(book.everyone()).spent.most):
        assert mu == pytest.approx(3 * 4.0) and mu > shared_noise.at_several(4.0, 2, 3, 3)


def test_the_ledger_shows_both_figures(tmp_path: Path) -> None:
    from rich.console import Console

    from mixveil.cli.ledger import entries_table

    assert done(secure_job(tmp_path), Here(answers(secure_parties(tmp_path))))["ok"]
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(entries_table(Ledger().entries()))
    share = 4 * math.sqrt(0.2)
    assert f"{share:.4g} (alone {share * math.sqrt(2):.4g}" in console.export_text()


def test_the_sum_is_that_of_what_the_parties_hid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden: dict[int, list[np.ndarray[Any, Any]]] = {}
    masked = SumAttempt.masked

    def seen(self: SumAttempt, values: np.ndarray[Any, Any]) -> bytes:
        hidden.setdefault(self.context.round, []).append(values.copy())
        return masked(self, values)

    monkeypatch.setattr(SumAttempt, "masked", seen)
    job = secure_job(tmp_path)
    assert done(job, Here(answers(secure_parties(tmp_path))))["ok"]
    for number in range(5):
        parts = [read_release(job.folder / f"sums-{number:02d}" / name) for name in NAMES]
        with np.errstate(over="ignore"):
            total = sum(part.payload.numpy().astype(np.uint64) for part in parts).view(np.int64)
        assert np.array_equal(total.reshape(-1), sum(hidden[number]))
        for part, own in zip(parts, hidden[number], strict=True):
            assert not np.array_equal(part.payload.numpy().reshape(-1), own)
            assert part.payload.double().abs().median() > 1e17  # masks fill all 64 bits; honest sums are small
            assert max(abs(own)) < 1e12


def test_noise_is_shared_by_as_many_as_all_rely_on_at_the_least_mu_of_any(tmp_path: Path) -> None:
    given = a_roster(tmp_path)
    each: dict[str, dict[str, Any]] = {
        "a": {"honest": 3, "mu": 4.0},
        "b": {"honest": 2, "mu": 2.0},
        "c": {"honest": 3, "mu": 3.0},
    }
    parties = {name: a_party(tmp_path, name, seed, **given[name], **each[name]) for seed, name in enumerate(NAMES)}
    job = secure_job(tmp_path)
    whole = done(job, Here(answers(parties)))
    assert whole["ok"], whole
    card = read_model(Path(whole["model"])).card
    assert card["mu"] == pytest.approx(dict.fromkeys(NAMES, 2.0)) and card["honest"] == 2
    sigmas = {read_envelope(job.folder / "sums-02" / name).settings.noise for name in NAMES}
    assert len(sigmas) == 1


# Who is missing


def test_one_party_missing_ends_the_job_by_the_parties_own_rules(tmp_path: Path) -> None:
    parties = answers(secure_parties(tmp_path))
    missing = done(secure_job(tmp_path, wait=1.0, min_parties=2), Here({"a": parties["a"], "b": parties["b"]}))
    assert not missing["ok"] and why(missing) == "set-too-small" and figures(missing) == {"count": 2, "needed": 3}
    assert not Ledger().entries() and not Ledger().reservations()


@pytest.mark.parametrize("smallest", [None, 3])
def test_a_party_that_goes_away_uses_up_a_message(tmp_path: Path, smallest: int | None) -> None:
    """It masks, and is gone: the others go on with the next message where their rules allow it."""
    names = (*NAMES, "d")
    parties = answers(secure_parties(tmp_path, names, smallest=smallest))
    job = secure_job(tmp_path, parties=4, wait=1.0, min_parties=3)
    whole = done(job, Here({**parties, "d": killed_at(parties["d"], 2)}))
    assert whole["ok"] == (smallest is not None)
    failed = events(job.folder, "sum-failed")
    assert [event["figures"] for event in failed] == [{"number": 2, "parties": 3, "used": True}]
    if smallest is None:
        assert why(whole) == "set-too-small" and figures(whole) == {"count": 3, "needed": 4}
        return
    assert accuracy(whole) > 0.8
    state = load(job.folder)
    assert state is not None and state.learnt is not None and state.learnt.done == 3  # of four rounds
    mine = [entry for entry in Ledger().entries() if entry.party == "a"]
    assert len(mine) == 5 and not Ledger().reservations()


def test_class_sums_that_failed_are_tried_again_at_a_rounds_share(tmp_path: Path) -> None:
    names = (*NAMES, "d")
    parties = answers(secure_parties(tmp_path, names, smallest=3))
    job = secure_job(tmp_path, parties=4, wait=1.0, min_parties=3)
    whole = done(job, Here({**parties, "d": killed_at(parties["d"], 0)}))
    assert whole["ok"] and accuracy(whole) > 0.7, whole
    sent = [read_envelope(path) for path in kept(tmp_path, "a")]
    assert [own.settings.what for own in sent] == ["classes", "classes"] + 3 * ["residuals"]  # type: ignore[attr-defined]
    plan = SumsPlan(ROUNDS.plan, 4.0, 2)
    assert [own.mu for own in sent] == pytest.approx([plan.share(number) for number in range(5)])
    assert math.hypot(*(own.mu or 0.0 for own in sent)) == pytest.approx(4.0)


@pytest.mark.parametrize(("ask", "failures"), [("agree", [False]), ("sums", [True])])
def test_after_a_restart_an_attempt_is_gone_and_a_new_one_begins(
    tmp_path: Path, ask: str, failures: list[bool]
) -> None:
    parties, times = secure_parties(tmp_path), list[int]()

    def restarted(message: Message) -> Message:
        if message.about["ask"] == ask and message.about["number"] == 2 and not times:
            times.append(1)
            parties["b"] = Party(parties["b"].config)
        return parties["b"].answer(message)

    job = secure_job(tmp_path)
    whole = done(job, Here({**answers(parties), "b": restarted}))
    assert whole["ok"], whole
    assert [event["figures"]["used"] for event in events(job.folder, "sum-failed")] == failures
    entries = [sum(entry.party == name for entry in Ledger().entries()) for name in NAMES]
    assert entries == ([5, 4, 5] if failures == [True] else [5, 5, 5])
    assert [whole["parties"][name]["rounds"] for name in NAMES] == entries
    assert whole["parties"]["b"]["state"] == ("sending" if failures == [True] else "arrived")


@pytest.mark.parametrize("gone", [(), ("d",)])
def test_a_server_that_was_killed_collects_what_was_masked(tmp_path: Path, gone: tuple[str, ...]) -> None:
    """It is killed after all parties have masked a message. They send again what they kept, and make nothing twice; but
    where one of them is gone, the masks of the others do not cancel, and the message is used up."""
    names = (*NAMES, *gone)
    parties = secure_parties(tmp_path, names, smallest=3)
    order = {"parties": len(names), "min_parties": 3}
    job, stop = secure_job(tmp_path, **order), list[int]()

    def ending(name: str) -> Answer:
        def answer(message: Message) -> Message:
            found = parties[name].answer(message)
            if message.about["ask"] == "sums" and message.about["number"] == 2:
                stop.append(1)
                raise SystemExit  # the thread of the server ends, as if it were killed
            return found

        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("threading.excepthook", lambda told: None)
        patch.setattr("mixveil.federated.jobs.sums_state.SumsState.save", _after(2))
        with pytest.raises(RuntimeError):
            done(job, Here({name: ending(name) for name in names}))
    before = {path: files_of(path) for name in names for path in kept(tmp_path, name)}
    assert len(before) == 3 * len(names) == 3 * len(stop)
    again = done(secure_job(tmp_path, wait=1.0, **order), Here({name: parties[name].answer for name in NAMES}))
    state = load(job.folder)
    assert [again["parties"][name]["rounds"] for name in names] == ([4, 4, 4, 2] if gone else [5, 5, 5])
    assert again["ok"] and state is not None and state.learnt is not None and accuracy(again) > 0.8
    assert state.learnt.done == 4 - len(gone) and all(files_of(path) == was for path, was in before.items())
    assert sum(entry.party in NAMES for entry in Ledger().entries()) == 15


def _after(number: int) -> Any:
    from mixveil.federated.jobs.sums_state import SumsState

    save = SumsState.save

    def saving(self: SumsState, folder: Path) -> None:
        if self.number > number:
            raise RuntimeError("killed")
        save(self, folder)

    return saving


# A malicious server


class Attack:
    """Three parties, and a server that asks what it likes."""

    def __init__(self, folder: Path) -> None:
        self.parties = secure_parties(folder)
        self.log: list[Note] = []
        path = rounds_projection(folder)
        sent = {"projection": path.read_bytes()}
        self.about = {
            **secure_job(folder).identity.plain(),
            "kind": "sums",
            "projection": projection_file.read(path)[1],
        }
        for party in self.parties.values():
            party.log = self.log.append
            party.answer(Message({**self.about, "ask": "offer"}, sent))

    def __call__(self, name: str, ask: str, number: int = 0, head: bytes | None = None, **more: Any) -> Message:
        plan = {**PLAN, "mu": 4.0, "honest": 2, **more.pop("plan", {})}
        whole = {"number": number, "plan": plan, "attempt": 0, "parties": list(NAMES), **more}
        files = {} if head is None else {"head": head}
        return self.parties[name].answer(Message({**self.about, "ask": ask, **whole}, files))

    def announced(self, number: int = 0, head: bytes | None = None, **more: Any) -> list[Any]:
        return [self(name, "announce", number, head, **more).about["announcement"] for name in NAMES]

    def agreed(self, signed: list[Any], number: int = 0, **more: Any) -> list[Any]:
        return [self(name, "agree", number, signed=signed, **more).about["agreement"] for name in NAMES]

    def message(self, number: int = 0, head: bytes | None = None, **more: Any) -> list[Message]:
        signed = self.agreed(self.announced(number, head, **more), number, **more)
        return [self(name, "sums", number, signed=signed, **more) for name in NAMES]


def test_a_message_that_was_masked_is_sent_again_and_never_masked_again(tmp_path: Path) -> None:
    attack = Attack(tmp_path)
    first = attack.message()
    assert [answer.about["state"] for answer in first] == ["ready"] * 3 and MANIFEST in first[0].files
    again = attack("a", "sums", signed=[])
    assert again.files == first[0].files and len(Ledger().entries()) == 3
    made = attack("a", "announce", attempt=1).about
    assert made["made"] == first[0].about["context"] and "announcement" not in made


def test_two_heads_in_one_round_are_refused(tmp_path: Path) -> None:
    attack = Attack(tmp_path)
    attack.message()
    signed = [attack("a", "announce", 1, a_head(0.1)).about["announcement"]]
    signed += [attack(name, "announce", 1, a_head(0.2)).about["announcement"] for name in NAMES[1:]]
    for name in NAMES:
        assert refused(attack(name, "agree", 1, signed=signed)) == "attempt-refused"
    assert len(Ledger().entries()) == 3


def test_announcements_of_another_attempt_are_refused(tmp_path: Path) -> None:
    attack = Attack(tmp_path)
    old = attack.announced()
    new = attack.announced(attempt=1)
    assert refused(attack("a", "agree", attempt=1, signed=[new[0], old[1], new[2]])) == "attempt-refused"
    assert refused(attack("b", "agree", attempt=1, signed=old)) == "attempt-refused"
    assert attack("b", "agree", attempt=1, signed=new).about["gone"]  # a refusal ends the attempt
    assert not Ledger().entries()


def test_an_announcement_that_was_sent_before_under_the_same_number_is_refused(tmp_path: Path) -> None:
    """The server begins the attempt anew, and mixes: the party whose key is old does not agree, so that none masks."""
    attack = Attack(tmp_path)
    old, new = attack.announced(), attack.announced()
    mixed = [old[0], *new[1:]]
    assert refused(attack("a", "agree", signed=mixed)) == "attempt-refused"
    said = [attack(name, "agree", signed=mixed).about["agreement"] for name in NAMES[1:]]
    assert refused(attack("b", "sums", signed=said)) == "attempt-refused" and not Ledger().entries()


def test_parties_that_saw_other_announcements_do_not_mask(tmp_path: Path) -> None:
    attack, other = Attack(tmp_path), roster.make_key(tmp_path / "false", "c")
    signed = attack.announced()
    forged = dict(signed[2])
    key = roster.read_key(other.with_name("c.roster.key"))
    forged["signature"] = key.sign(b"anything").hex()
    assert refused(attack("a", "agree", signed=[*signed[:2], forged])) == "attempt-refused"
    assert not Ledger().entries()


@pytest.mark.parametrize(
    "parties", [["a", "b"], ["a", "b", "x"], ["a", "b", "c", "x"], ["b", "c"], ["c", "b", "a"], "abc"]
)
def test_a_set_that_is_not_the_roster_is_refused(tmp_path: Path, parties: Any) -> None:
    attack = Attack(tmp_path)
    assert refused(attack("a", "announce", parties=parties)) == "attempt-refused" and not Ledger().reservations()


@pytest.mark.parametrize("change", [{"honest": 3}, {"honest": 1}, {"mu": 4.5}, {"mu": None}, {"directions": 99}])
def test_a_plan_that_would_promise_less_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    attack = Attack(tmp_path)
    assert refused(attack("a", "announce", plan=change)) == "plan-not-taken" and not Ledger().entries()


def test_another_plan_is_refused_once_one_is_pinned(tmp_path: Path) -> None:
    attack = Attack(tmp_path)
    attack.message()
    for change in ({"mu": 3.0}, {"clip": 0.4}, {"rounds": 3}):
        assert refused(attack("a", "announce", 1, a_head(), plan=change)) == "other-plan"


def test_an_attempt_ends_with_the_plan_that_it_was_begun_by(tmp_path: Path) -> None:
    """A question that fails makes a party forget a job of which nothing is made, its plan too. An attempt by that plan
    would make a message beside all those of the next plan: more than μ for one job."""
    attack = Attack(tmp_path)
    other: dict[str, Any] = {"plan": {"rounds": 1, "share": 0.01}}
    signed = attack.agreed(attack.announced(1, **other), 1, **other)
    for party in attack.parties.values():
        bad = Message({**attack.about, "ask": "offer", "projection": "0" * 64}, {"projection": b"none"})
        assert party.answer(bad).about["state"] == "refused"
    for name in NAMES:
        assert "gone" in attack(name, "sums", 1, signed=signed, **other).about
    assert not Ledger().entries()


def test_nothing_is_made_before_all_have_agreed(tmp_path: Path) -> None:
    attack = Attack(tmp_path)
    signed = attack.agreed(attack.announced())
    assert refused(attack("a", "sums", signed=signed[:2])) == "attempt-refused" and not Ledger().entries()
    assert attack("a", "sums", signed=signed).about["gone"]
    assert attack("b", "sums", signed=signed).about["state"] == "ready" and len(Ledger().entries()) == 1


def test_terms_differ_where_anything_that_matters_does() -> None:
    plan = SumsPlan(ROUNDS.plan, 2.0, 2)
    base: tuple[Any, ...] = (1, 1.0, "h", "p", ("x", "y"))
    others: list[tuple[Any, ...]] = [
        (1, 2.0, *base[2:]), (1, 1.0, "i", *base[3:]), (*base[:3], "q", base[4]), (*base[:4], ("y", "x"))
    ]  # fmt: skip
    found = [plan.terms(*given) for given in (base, *others)]
    found += [SumsPlan(ROUNDS.plan, 2.5, 2).terms(*base), SumsPlan(ROUNDS.plan, 2.0, 3).terms(*base)]
    assert len({*found}) == len(found)


def test_a_plan_is_noisy_enough_for_its_grid() -> None:
    from mixveil.core.errors import ArgumentError

    with pytest.raises(ArgumentError, match="step must be at most"):
        SumsPlan(ROUNDS.plan, 1e12, 2)
    plan = SumsPlan(ROUNDS.plan, 10.0, 100)
    for number in range(5):
        assert 4 * plan.step(number, 3.0) <= plan.sigma(number, 3.0) < 2**32 * plan.step(number, 3.0)
        assert math.frexp(plan.step(number, 3.0) / 3.0)[0] == 0.5  # a clip norm is a whole number of steps
    assert json.loads(json.dumps(plan.plain())) == plan.plain() and SumsPlan.read(plan.plain()) == plan
