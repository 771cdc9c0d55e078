"""Jobs in rounds of sums, in one process: what is made, once, within its plan; who goes on; what is refused."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mixveil.core.wording.notes import Note
from mixveil.features import projection_file
from mixveil.federated.jobs.approval import unfinished
from mixveil.federated.jobs.job import Job, status_of
from mixveil.federated.jobs.job_folder import JobFolder
from mixveil.federated.jobs.messages import MANIFEST, JobId, Message
from mixveil.federated.jobs.party import Party
from mixveil.federated.jobs.sums_plan import SumsPlan
from mixveil.federated.jobs.sums_state import load
from mixveil.learn.model import read_model
from mixveil.learn.rounds import head_bytes
from mixveil.releases.contributions import Head
from mixveil.releases.ledger import Ledger
from mixveil.releases.reading import read_envelope, read_release
from tests.federated.here import (
    ROUNDS,
    Answer,
    Here,
    a_party,
    done,
    events,
    job_of,
    never,
    refused,
    rounds_projection,
    why,
)
from tests.made import blobs, features_of

NAMES = ("a", "b", "c")
PLAN = ROUNDS.plan.plain()
pytestmark = pytest.mark.usefixtures("clock")


def rounds_job(folder: Path, **order: Any) -> Job:
    return job_of(folder, **{"method": "rounds", "projection": str(rounds_projection(folder)), **order})


@pytest.fixture
def three(tmp_path: Path) -> dict[str, Party]:
    return {name: a_party(tmp_path, name, seed) for seed, name in enumerate(NAMES)}


def answers(parties: dict[str, Party]) -> dict[str, Answer]:
    return {name: party.answer for name, party in parties.items()}


def kept(folder: Path, name: str) -> list[Path]:
    """The messages that a party keeps of its only job."""
    return sorted(path for path in (folder / f"jobs-{name}").glob("*/*/sums-*") if path.is_dir())


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def accuracy(whole: dict[str, Any]) -> float:
    test = blobs(300, 9)
    named = read_model(Path(whole["model"])).layers.named(features_of(test))
    return float(named.eq(test.labels).double().mean())


# A whole job


def test_a_job_learns_and_costs_what_was_agreed(tmp_path: Path, three: dict[str, Party]) -> None:
    job = rounds_job(tmp_path)
    whole = done(job, Here(answers(three)))
    assert whole["ok"], whole
    assert accuracy(whole) > 0.9
    for name in NAMES:
        sent = [read_envelope(path) for path in kept(tmp_path, name)]
        assert [path.name for path in kept(tmp_path, name)] == [f"sums-{number:02d}" for number in range(5)]
        assert math.hypot(*(own.mu or 0.0 for own in sent)) == pytest.approx(4.0)
        assert [own.settings.what for own in sent] == ["classes"] + 4 * ["residuals"]  # type: ignore[attr-defined]
        for path in kept(tmp_path, name):
            assert files_of(job.folder / path.name / name) == files_of(path)
        assert whole["parties"][name]["rounds"] == 5 and whole["parties"][name]["returned"]
    card = read_model(Path(whole["model"])).card
    assert card["mu"]["a"] == pytest.approx(4.0) and card["label_epsilon"] == dict.fromkeys(NAMES, 0.0)
    assert len(card["trained_on"]) == 15 and card["mu_alone"] == {} and card["honest"] == 1
    assert [told["code"] for told in card["guarantee"]][-1] == "model-labels-covered"
    assert len(Ledger().entries()) == 15 and not Ledger().reservations()
    assert Ledger().total().mu == pytest.approx(4 * math.sqrt(3)) and Ledger().total().label_epsilon == 0


def test_a_head_is_that_of_the_same_sums_in_memory(tmp_path: Path, three: dict[str, Party]) -> None:
    from mixveil.learn import rounds

    job = rounds_job(tmp_path)
    assert done(job, Here(answers(three)))["ok"]
    parts = [[read_release(job.folder / f"sums-{number:02d}" / name) for name in NAMES] for number in range(5)]
    state = rounds.from_class_sums(parts[0], ROUNDS)
    for some in parts[1:]:
        state = rounds.from_residuals(state, some, ROUNDS)
    found = load(job.folder)
    assert found is not None and found.learnt is not None and found.done
    assert rounds.head_digest(found.learnt.head) == rounds.head_digest(state.head)


def test_units_are_counted_and_clipped_together(tmp_path: Path) -> None:
    parties = {name: a_party(tmp_path, name, seed, unit="patient") for seed, name in enumerate(NAMES)}
    job = rounds_job(tmp_path)
    whole = done(job, Here(answers(parties)))
    assert whole["ok"], whole
    sent = read_envelope(job.folder / "sums-03" / "a")
    assert sent.rows == 40 and sent.settings.per == "unit"  # type: ignore[attr-defined]
    assert read_model(Path(whole["model"])).card["per"] == "unit"
    owners = Ledger().owners(parties["a"].config.images())
    assert Ledger().spent(owners).most == pytest.approx(4 * math.sqrt(3))  # patients of all three have the same names


# Who goes on


class KilledError(Exception):
    """Stands for the end of a process."""


def killed_at(answer: Answer, number: int, *, before: bool = False) -> Answer:
    """A link that breaks at a message, before the party answers it or after."""

    def broken(message: Message) -> Message:
        if message.about["ask"] != "sums" or message.about["number"] != number:
            return answer(message)
        if not before:
            answer(message)
        return never(message)

    return broken


def test_a_server_that_was_killed_goes_on_and_nothing_is_made_twice(tmp_path: Path, three: dict[str, Party]) -> None:
    broken = {name: killed_at(party.answer, 2) for name, party in three.items()}
    dead = done(rounds_job(tmp_path, wait=1.0), Here(broken))
    assert not dead["ok"] and {own["state"] for own in dead["parties"].values()} == {"sending"}
    assert status_of(dead["parties"]["a"]).startswith("sent 2 of 5 messages, ")
    assert status_of(dead["parties"]["a"]).endswith(" kB: It did not finish within 1 s.")
    before = {path: files_of(path) for name in NAMES for path in kept(tmp_path, name)}
    assert len(before) == 9 and len(Ledger().entries()) == 9
    job = rounds_job(tmp_path)  # another process, in the same folder
    whole = done(job, Here(answers(three)))
    assert whole["ok"] and accuracy(whole) > 0.9, whole
    assert {(own["state"], own["rounds"], own["messages"]) for own in whole["parties"].values()} == {("arrived", 5, 5)}
    assert events(job.folder, "rounds-kept")[0]["figures"] == {"rounds": 2}
    assert all(files_of(path) == was for path, was in before.items())
    assert len(Ledger().entries()) == 15 and not Ledger().reservations()


def test_a_party_that_was_killed_sends_what_it_kept(tmp_path: Path, three: dict[str, Party]) -> None:
    lost: list[int] = []

    def restarting(message: Message) -> Message:
        """The answer to every message is lost, and a new process gives it again."""
        if message.about["ask"] == "sums":
            assert three["b"].answer(message).about["state"] == "ready"
            lost.append(message.about["number"])
        return Party(three["b"].config).answer(message)

    whole = done(rounds_job(tmp_path), Here({**answers(three), "b": restarting}))
    assert whole["ok"] and lost == [0, 1, 2, 3, 4] and len(Ledger().entries()) == 15


@pytest.mark.parametrize("entered", [False, True])
def test_a_party_killed_while_it_makes_a_message_does_not_pay_twice(
    tmp_path: Path, three: dict[str, Party], monkeypatch: pytest.MonkeyPatch, entered: bool
) -> None:
    """Nothing was entered: it is made. It was entered, and its bytes are lost: the party is out."""
    party, times = three["b"], list[int]()

    def killed(message: Message) -> Message:
        if message.about["ask"] == "sums" and message.about["number"] == 2 and not times:
            times.append(1)
            own = party._sums
            assert own is not None
            write = own._write

            def half(*what: Any) -> None:
                if entered:
                    write(*what)
                    shutil.rmtree(own.folder.release(2))
                raise KilledError

            monkeypatch.setattr(own, "_write", half)
            monkeypatch.setattr(own.folder, "undo", lambda number: None)
            assert party.answer(message).about["state"] == "failed"
        return (Party(party.config) if times else party).answer(message)

    whole = done(rounds_job(tmp_path), Here({**answers(three), "b": killed}))
    assert whole["ok"], whole
    mine = [entry for entry in Ledger().entries() if entry.party == "b"]
    assert len(mine) == (3 if entered else 5)
    assert why(whole, "b") == ("message-used-up" if entered else None)
    assert not Ledger().reservations()


def test_a_party_killed_after_its_last_message_knows_that_all_is_made(tmp_path: Path, three: dict[str, Party]) -> None:
    folder = Path(three["a"].config.folder)

    def killed(message: Message) -> Message:
        if message.about["ask"] == "sums" and message.about["number"] == 4:
            assert three["a"].answer(message).about["state"] == "ready"
            for mark in folder.glob("*/*/sums"):
                mark.unlink()
        return Party(three["a"].config).answer(message)

    assert done(rounds_job(tmp_path), Here({**answers(three), "a": killed}))["ok"]
    assert not unfinished(folder)


def test_a_party_that_leaves_is_left_out_and_its_budget_is_free_again(tmp_path: Path, three: dict[str, Party]) -> None:
    left: list[float] = []

    def leaving(message: Message) -> Message:
        if message.about["ask"] == "sums" and message.about["number"] == 3 and not left:
            left.append(Ledger().total().mu)
            (mine,) = (item for item in unfinished(Path(three["c"].config.folder)))
            mine.refuse()
        return three["c"].answer(message)

    whole = done(rounds_job(tmp_path), Here({**answers(three), "c": leaving}))
    assert whole["ok"] and why(whole, "c") == "owner-refused", whole
    assert status_of(whole["parties"]["c"]).startswith("refused, sent 3 of 5 messages, ")
    spent = {name: [e.stated or 0 for e in Ledger().entries() if e.party == name] for name in NAMES}
    assert {name: len(own) for name, own in spent.items()} == {"a": 5, "b": 5, "c": 3}
    assert not Ledger().reservations() and Ledger().total().reserved == 0
    card = read_model(Path(whole["model"])).card
    assert card["mu"]["c"] == pytest.approx(math.hypot(*spent["c"])) and card["mu"]["c"] < 4.0


def test_a_party_that_is_late_once_is_not_waited_for_again(tmp_path: Path, three: dict[str, Party]) -> None:
    fleet = Here({**answers(three), "c": killed_at(three["c"].answer, 1, before=True)})
    job = rounds_job(tmp_path, wait=1.0, min_parties=2)
    whole = done(job, fleet)
    late = status_of(whole["parties"]["c"])
    assert late.startswith("sent 1 of 5 messages, ") and late.endswith(", has the model: It did not finish within 1 s.")
    assert whole["ok"] and fleet.asked.count(("c", "sums")) == 2 and fleet.asked.count(("a", "sums")) == 5
    few = done(rounds_job(tmp_path, wait=1.0, min_parties=3, job="second"), fleet)
    assert not few["ok"] and why(few) == "too-few-in-round"


def test_parties_hear_that_a_job_ended_and_hold_nothing_for_it(tmp_path: Path, three: dict[str, Party]) -> None:
    broken = {name: killed_at(party.answer, 1, before=True) for name, party in three.items()}
    broken["c"] = three["c"].answer
    whole = done(rounds_job(tmp_path, wait=1.0, min_parties=2), Here(broken))
    assert not whole["ok"] and not Ledger().reservations()
    again = done(rounds_job(tmp_path, min_parties=2), Here(answers(three)))  # what is left is reserved again
    assert again["ok"] and len(Ledger().entries()) == 15
    assert Ledger().total().mu == pytest.approx(4 * math.sqrt(3))


# What it may cost


def test_the_whole_plan_is_reserved_before_the_first_message(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0, mu=4.0, budget=5.0)
    held: list[float] = []

    def watched(message: Message) -> Message:
        answer = party.answer(message)
        if message.about["ask"] == "sums":
            held.append(Ledger().total().mu)
            other = {**job.identity.plain(), "job": "7" * 32, "name": "other", "ask": "hello"}
            assert refused(party.answer(Message(other))) == "over-budget"
        return answer

    job = rounds_job(tmp_path, parties=1)
    assert done(job, Here({"a": watched}))["ok"]
    assert held == pytest.approx([4.0] * 5)


def test_a_job_beyond_the_budget_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0, mu=4.0, budget=5.0)
    assert done(rounds_job(tmp_path, parties=1), Here({"a": party.answer}))["ok"]
    whole = done(rounds_job(tmp_path, parties=1, job="second"), Here({"a": party.answer}))
    assert not whole["ok"] and why(whole, "a") == "over-budget" and len(Ledger().entries()) == 5


def test_labels_that_mu_covers_need_no_label_budget(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0, label_budget=1.0)
    assert party.config.outlook() is None
    assert done(rounds_job(tmp_path, parties=1), Here({"a": party.answer}))["ok"]
    other = Party(replace(party.config, folder=str(tmp_path / "other")))
    assert (
        refused(other.answer(Message({**job_of(tmp_path, job="o").identity.plain(), "ask": "hello"}))) == "over-budget"
    )


# What a party refuses, without looking at its data


class Asked:
    """A party that was asked for class sums, and what a server may ask it next."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.party, self.log = a_party(folder, "a", 0, **more), list[Note]()
        self.party.log = self.log.append
        path = rounds_projection(folder)
        self.digest, self.sent = projection_file.read(path)[1], path.read_bytes()
        self.about = {**rounds_job(folder).identity.plain(), "kind": "sums", "projection": self.digest}
        self.party.answer(Message({**self.about, "ask": "offer"}, {"projection": self.sent}))

    def __call__(self, number: Any, head: bytes | None = None, **plan: Any) -> Message:
        whole = {**PLAN, "mu": None, "honest": 1, **plan}
        files = {} if head is None else {"head": head}
        return self.party.answer(Message({**self.about, "ask": "sums", "number": number, "plan": whole}, files))


def a_head(value: float = 0.0, directions: int = 4, classes: int = 3) -> bytes:
    zeros = [torch.zeros(*shape, dtype=torch.float64) for shape in ((directions, classes), (classes,), (directions,))]
    return head_bytes(Head(zeros[0] + value, *zeros[1:]))


@pytest.mark.parametrize(
    ("head", "code"),
    [
        (a_head(math.nan), "head-not-taken"),
        (a_head(math.inf), "head-not-taken"),
        (a_head(1e7), "head-not-taken"),
        (a_head(directions=5), "head-not-taken"),
        (a_head(classes=4), "head-not-taken"),
        (b"no head", "head-not-taken"),
        (None, "head-missing"),
    ],
)
def test_a_head_that_is_none_is_refused(tmp_path: Path, head: bytes | None, code: str) -> None:
    ask = Asked(tmp_path)
    assert ask(0).about["state"] == "ready"
    assert refused(ask(1, head)) == code and len(Ledger().entries()) == 1
    assert ask(1, a_head()).about["state"] == "ready"


def test_a_second_head_for_one_round_is_refused(tmp_path: Path) -> None:
    ask = Asked(tmp_path)
    ask(0)
    first = ask(1, a_head(0.1))
    assert refused(ask(1, a_head(0.2))) == "other-head"
    assert ask(1, a_head(0.1)).files == first.files and len(Ledger().entries()) == 2
    stated = json.loads(first.files[MANIFEST])
    assert stated["assets"]["head"] == hashlib.sha256(a_head(0.1)).hexdigest()


@pytest.mark.parametrize(
    ("number", "code"), [(5, "beyond-plan"), (-1, "beyond-plan"), (1, "out-of-order"), (0, "head-too-early")]
)
def test_messages_out_of_order_or_beyond_the_plan_are_refused(tmp_path: Path, number: int, code: str) -> None:
    ask = Asked(tmp_path)
    ask(0)
    ask(2, a_head())
    assert refused(ask(number, a_head())) == code and len(Ledger().entries()) == 2


@pytest.mark.parametrize("change", [{"rounds": 5}, {"share": 0.3}, {"clip": 0.4}, {"directions": 3}])
def test_another_plan_than_the_one_that_it_began_with_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    ask = Asked(tmp_path)
    ask(0)
    assert refused(ask(1, a_head(), **change)) == "other-plan" and len(Ledger().entries()) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"directions": 99},
        {"rounds": 1000},
        {"share": 1.0},
        {"clip": 0.0},
        {"mu": 5.0},
        {"mu": 3.0},
        {"honest": 2},
        {"x": 1},
    ],
)
def test_a_plan_that_is_none_is_refused_and_costs_nothing(tmp_path: Path, change: dict[str, Any]) -> None:
    ask = Asked(tmp_path)
    assert refused(ask(0, **change)) == "plan-not-taken"
    assert not Ledger().entries() and not Ledger().reservations()
    ask.party.answer(Message({**ask.about, "ask": "offer"}, {"projection": ask.sent}))
    assert ask(0).about["state"] == "ready"


def test_a_list_of_classes_that_was_read_off_the_data_does_not_leave(tmp_path: Path) -> None:
    """It says which labels occur, and the answer to an offer has no noise."""
    party, path = a_party(tmp_path, "a", 0), rounds_projection(tmp_path)
    whole = dict(np.load(party.config.data))
    np.savez(party.config.data, x=whole["x"], y=whole["y"])
    about = {**rounds_job(tmp_path).identity.plain(), "kind": "sums", "projection": projection_file.read(path)[1]}
    answer = party.answer(Message({**about, "ask": "offer"}, {"projection": path.read_bytes()}))
    assert answer.about["state"] == "failed" and not {"classes", "units"} & answer.about.keys()


def test_a_plan_of_another_mu_than_the_party_has_now_is_refused(tmp_path: Path) -> None:
    """Its owner lowers μ after a plan was pinned, before anything was made by it."""
    ask = Asked(tmp_path)
    kept = JobFolder(ask.party.folder, ask.party.config, JobId.read(ask.about), ask.log.append)
    kept.sums.pin(SumsPlan(ROUNDS.plan, 4.0))  # as a process does that is killed then
    ask.party = Party(replace(ask.party.config, mu=1.0))
    assert refused(ask(0, mu=4.0)) == "plan-not-taken" and not Ledger().entries()


def test_no_width_of_features_tells_how_many_rows_units_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of units is public, that of rows is not: what is refused as too large follows from the width alone."""
    monkeypatch.setattr("mixveil.federated.jobs.party_config._MEMORY", 100)
    assert Asked(tmp_path, unit="patient")(0).about["state"] == "ready"
    monkeypatch.setattr("mixveil.federated.jobs.party_config._WIDEST", 1)
    (other := tmp_path / "other").mkdir()
    assert refused(Asked(other, unit="patient")(0)) == "features-too-large"


def test_what_is_left_of_a_plan_is_that_of_the_messages_to_come() -> None:
    plan = SumsPlan(ROUNDS.plan, 2.0)
    for last in range(4):
        paid = math.hypot(*(plan.share(number) for number in range(last + 1)))
        assert math.hypot(paid, plan.left(range(last + 1))) == pytest.approx(2.0)
    assert plan.left([]) == pytest.approx(2.0) and plan.left([4]) == 0
    assert plan.left([3]) == plan.left([0, 3]) == plan.share(4)  # what was passed over is not made any more


def test_an_owner_hears_at_once_that_classes_must_be_named(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 1)
    images = party.config.images()
    told = party.config.unlisted(replace(images, declared=False))
    assert told is not None and told.code == "classes-not-named" and "rounds" in told.figures["methods"]
    assert party.config.unlisted(replace(images, declared=True)) is None
    nothing = replace(party.config, mu=None, tau=0.1, budget=None, allow="one-shot", approve=True)
    assert nothing.unlisted(replace(images, declared=False)) is None
