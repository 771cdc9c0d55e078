"""Rounds of sums by files: the whole road in Python, what each message costs, and what both sides refuse."""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import mixveil
from mixveil.core import errors
from mixveil.core.randomness import SeededStream
from mixveil.data.images import Images
from mixveil.features.projection_file import read as read_projection
from mixveil.learn import public_tasks, rounds
from mixveil.learn.model import promises, read_model
from mixveil.learn.protocol import in_rounds
from mixveil.learn.round_state import read_state
from mixveil.learn.rounds import head_bytes as bare_head
from mixveil.releases import sums
from mixveil.releases.contributions import Head
from mixveil.releases.ledger import Ledger
from mixveil.releases.reading import read_release
from mixveil.releases.round_messages import SentRound
from mixveil.releases.round_notes import Notes
from mixveil.releases.round_plan import head_bytes, read_head, read_plan
from tests.made import blobs, features_of
from tests.sums import SETTINGS

ROUNDS, MU = 3, 2.0
NORTH, SOUTH = blobs(400, 2, classes=4), blobs(300, 3, classes=4)


@pytest.fixture
def road(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Road:
    """A projection and a plan of three rounds."""
    monkeypatch.setenv("MIXVEIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(public_tasks, "find", lambda *given, **more: (replace(SETTINGS, rounds=ROUNDS),))
    mixveil.prepare(blobs(600, 1, classes=4), tmp_path / "projection", backbone="none")
    mixveil.rounds_plan(
        tmp_path / "plan.json", projection=tmp_path / "projection", units=700, num_classes=4, parties=2, mu=MU
    )
    return Road(tmp_path)


class Road:
    """A coordinator and its parties in one folder, all with the same plan."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shared: dict[str, Any] = {"plan": folder / "plan.json", "projection": folder / "projection"}
        self.plan = read_plan(folder / "plan.json")

    def send(self, party: str, number: int, data: Images | None = None, **more: Any) -> SentRound:
        """A party's message, by its own number. The head is that of the step before, if more does not say otherwise."""
        head = None if number == 0 else self.folder / f"state-{number}" / "head.safetensors"
        given = {**self.shared, "mu": MU, "head": head, **more}
        rows = data or {"north": NORTH, "south": SOUTH}[party]
        return mixveil.send_round(rows, self.folder / f"{party}-{number}", party=party, **given)

    def step(self, number: int, parties: Sequence[str] = ("north", "south"), **more: Any) -> Any:
        """Learn from message number of these parties, and write `state-(number + 1)`."""
        state = None if number == 0 else self.folder / f"state-{number}"
        given = {"out": self.folder / f"state-{number + 1}", "state": state, **self.shared, **more}
        return mixveil.rounds_step([self.folder / f"{party}-{number}" for party in parties], **given)

    def first(self) -> None:
        for party in ("north", "south"):
            self.send(party, 0)
        self.step(0)

    def forged(self, message: int = 1, plan: Any = None, **changed: torch.Tensor) -> Path:
        """A head that asks for a message of the first state's."""
        head = read_state(self.folder / "state-1" / "state.safetensors", self.plan).state.head
        path = self.folder / f"forged-{message}"
        path.write_bytes(head_bytes(replace(head, **changed), plan or self.plan, message))
        return path


def test_the_whole_road_learns_and_costs_what_was_planned(road: Road) -> None:
    test, accuracies = blobs(500, 9, classes=4), []
    for number in range(ROUNDS + 1):
        for party in ("north", "south"):
            made = road.send(party, number)
            assert made.message == number and made.sums.mu == pytest.approx(road.plan.settings.mu(number, MU))
        done = road.step(number, model=road.folder / f"model-{number}", test=test)
        assert done.message == number and (done.head is None) == (number == ROUNDS) and not done.warnings
        accuracies.append(done.model.tested["accuracy"])
    assert accuracies[-1] > 0.9 and not (road.folder / "state-4" / "head.safetensors").exists()
    ledger = Ledger()
    assert [entry.kind for entry in ledger.entries()] == ["sums"] * 2 * (ROUNDS + 1)
    for data in (NORTH, SOUTH):
        standing = ledger.standing(ledger.owners(data))
        assert standing.spent.most == pytest.approx(MU) and standing.spent.releases == ROUNDS + 1
        assert standing.spent.covered and not standing.spent.reserved
    card, trained = read_model(road.folder / "model-3").card, done.model.trained
    assert card["mu"] == {"north": pytest.approx(MU), "south": pytest.approx(MU)} and len(card["trained_on"]) == 8
    assert card["label_epsilon"] == {"north": 0.0, "south": 0.0} and card["how"]["rounds"] == ROUNDS
    assert card["how"]["plan"]["id"] == road.plan.id
    assert [told.code for told in promises(trained)][-1] == "model-labels-covered"
    assert mixveil.predict(road.folder / "model-3", test).accuracy == accuracies[-1]


def test_files_learn_what_memory_learns(road: Road, monkeypatch: pytest.MonkeyPatch) -> None:
    """With noise that is next to nothing, the head is that of the same rounds in memory."""
    for number in range(ROUNDS + 1):
        for party in ("north", "south"):
            road.send(party, number, mu=1e6)
        road.step(number)
    projection = read_projection(road.folder / "projection")[0]
    parties = [features_of(NORTH), features_of(SOUTH)]
    heads: list[Head] = []
    stream, settings = SeededStream(0), road.plan.settings
    in_rounds(parties, projection, 1e6, settings=settings, stream=stream, after=heads.append)
    found = read_state(road.folder / "state-4" / "state.safetensors", road.plan)
    assert found.message == ROUNDS and len(heads) == ROUNDS + 1
    torch.testing.assert_close(found.state.head.weight, heads[-1].weight, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(found.state.head.centre, heads[-1].centre, atol=1e-3, rtol=1e-3)


def test_the_whole_budget_is_reserved_before_the_first_message(road: Road) -> None:
    made, ledger = road.send("north", 0), Ledger()
    (left,) = ledger.reservations().values()
    assert left == pytest.approx(MU * math.sqrt(1 - road.plan.settings.share))
    assert made.standing.spent.most == pytest.approx(MU)
    (notes,) = (ledger.folder / "rounds").glob("*.json")
    assert stat.S_IMODE(notes.stat().st_mode) == 0o600
    kept = json.loads(notes.read_text())
    assert (kept["mu"], kept["party"], kept["sent"]) == (MU, "north", {"0": ""})


def test_a_budget_that_the_plan_exceeds_refuses_the_first_message(road: Road) -> None:
    with pytest.raises(errors.BudgetError):
        road.send("north", 0, budget=MU - 0.1)
    assert not Ledger().entries() and not Ledger().reservations()
    road.send("north", 0, mu=1.0, budget=1.0)  # nothing was pinned: another μ may be given


def test_a_message_that_is_refused_before_its_entry_changes_nothing(road: Road) -> None:
    with pytest.raises(errors.ArgumentError, match="--classes"):
        road.send("north", 0, replace(NORTH, declared=False))
    assert not Ledger().entries() and not Ledger().reservations()
    road.send("north", 0)


def test_no_message_is_made_twice(road: Road) -> None:
    road.first()
    road.send("north", 1)
    head = road.folder / "state-1" / "head.safetensors"
    for path in (None, head, road.forged(1, bias=torch.zeros(4, dtype=torch.float64))):
        with pytest.raises(errors.RefusedError, match="cost again"):
            mixveil.send_round(NORTH, road.folder / "x", party="north", mu=MU, head=path, **road.shared)
    assert len(Ledger().entries()) == 3 and not (road.folder / "x").exists()


def test_messages_are_in_order_and_no_more_than_planned(road: Road) -> None:
    with pytest.raises(errors.ArgumentError, match="class sums come first"):
        road.send("north", 0, head=road.folder / "plan.json")
    road.first()
    road.send("north", 2, head=road.forged(2))  # it was away in the first round
    with pytest.raises(errors.RefusedError, match="order"):
        road.send("north", 1)
    with pytest.raises(errors.DataFormatError, match="beyond its 3 rounds"):
        road.send("north", 3, head=road.forged(4))
    assert len(Ledger().entries()) == 3 and len(Ledger().reservations()) == 2
    spent = road.send("north", 3, head=road.forged(3)).standing.spent  # the last: the round that was missed is not paid
    assert list(Ledger().reservations()) == [f"{road.plan.id} south"]
    assert math.sqrt(spent.most**2 - spent.reserved**2) == pytest.approx(MU * math.sqrt(0.2 + 0.8 * 2 / 3))


def test_other_terms_than_those_of_the_first_message_are_refused(road: Road) -> None:
    road.first()
    for more in ({"mu": 1.0}, {"data": blobs(400, 5, classes=4)}, {"data": NORTH.part(torch.arange(399))}):
        with pytest.raises(errors.MismatchError):
            road.send("north", 1, **more)
    renamed = replace(NORTH, classes=("a", "b", "c", "d"))
    with pytest.raises(errors.MismatchError, match="classes"):
        road.send("north", 1, renamed)
    changed = json.loads((road.folder / "plan.json").read_text())
    changed["settings"]["clip"] *= 2
    (road.folder / "other.json").write_text(json.dumps(changed))
    with pytest.raises(errors.MismatchError, match="was another one"):
        road.send("north", 1, plan=road.folder / "other.json")
    mixveil.prepare(blobs(500, 4, classes=4), road.folder / "other", backbone="none")
    with pytest.raises(errors.MismatchError, match="is for the projection"):
        road.send("north", 1, projection=road.folder / "other")
    assert len(Ledger().entries()) == 2


@pytest.mark.parametrize("wrong", ["nan", "large", "shape", "bare", "plan", "text"])
def test_a_head_that_is_refused_is_refused_before_data_are_read(
    wrong: str, road: Road, monkeypatch: pytest.MonkeyPatch
) -> None:
    road.first()
    path = road.forged(1)
    if wrong in ("nan", "large"):
        road.forged(1, bias=torch.full((4,), math.nan if wrong == "nan" else 1e7, dtype=torch.float64))
    elif wrong == "shape":
        road.forged(1, bias=torch.zeros(3, dtype=torch.float64))
    elif wrong == "bare":
        path.write_bytes(bare_head(read_head(path, road.plan, 4).head))
    elif wrong == "plan":
        road.forged(1, plan=replace(road.plan, id="0" * 32))
    else:
        path.write_text("no head")
    monkeypatch.setattr(Ledger, "owners", lambda *given: pytest.fail("data were read"))
    with pytest.raises(errors.DataFormatError, match="not a head for this plan"):
        road.send("north", 1, head=path)


def test_a_killed_message_counts_and_is_not_made_again(road: Road, monkeypatch: pytest.MonkeyPatch) -> None:
    road.first()
    name = f"{road.plan.id} north"
    with monkeypatch.context() as inside:
        inside.setattr(sums, "_noisy", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            road.send("north", 1)
    assert len(Ledger().entries()) == 3 and not (road.folder / "north-1").exists()
    rest = MU * math.sqrt(0.8 * 2 / 3)
    assert Ledger().reservations()[name] == pytest.approx(rest)
    with pytest.raises(errors.RefusedError, match="begun already"):
        road.send("north", 1)
    road.send("south", 1)
    done = road.step(1, ["south"])
    assert done.message == 1 and Ledger().reservations()[name] == pytest.approx(rest)
    road.send("north", 2)


def test_the_first_message_killed_leaves_its_reservation(road: Road, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as inside:
        inside.setattr(sums, "_noisy", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            road.send("north", 0)
    (left,) = Ledger().reservations().values()
    assert len(Ledger().entries()) == 1 and left == pytest.approx(MU * math.sqrt(0.8))
    with pytest.raises(errors.RefusedError, match="already"):
        road.send("north", 0)


def test_leaving_frees_what_is_reserved_and_ends_the_part(road: Road) -> None:
    with pytest.raises(errors.ArgumentError, match="sent nothing"):
        mixveil.leave_rounds(road.folder / "plan.json", party="north")
    road.first()
    assert mixveil.leave_rounds(road.folder / "plan.json", party="north") == pytest.approx(MU * math.sqrt(0.8))
    assert list(Ledger().reservations()) == [f"{road.plan.id} south"]
    with pytest.raises(errors.RefusedError, match="left the plan"):
        road.send("north", 1)
    assert Ledger().standing(Ledger().owners(NORTH)).total.releases == 2


def test_two_messages_at_once_do_not_share_a_number(road: Road, monkeypatch: pytest.MonkeyPatch) -> None:
    """The part is read under the lock, and a second process would wait for it."""
    held: list[bool] = []
    before = Notes.read

    def read(notes: Any) -> Any:
        import fcntl

        with notes.path.with_suffix(".lock").open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held.append(True)
        return before(notes)

    monkeypatch.setattr(Notes, "read", read)
    road.send("north", 0)
    assert held


def test_a_step_refuses_what_does_not_belong_to_it(road: Road) -> None:
    road.first()
    for party in ("north", "south"):
        road.send(party, 1)
    out = {"out": road.folder / "x", **road.shared}
    north, south, first = (road.folder / name for name in ("north-1", "south-1", "north-0"))
    state = road.folder / "state-1"
    with pytest.raises(errors.MismatchError, match="class sums, not residual sums"):
        mixveil.rounds_step([first], state=state, **out)
    with pytest.raises(errors.MismatchError, match="residual sums, not class sums"):
        mixveil.rounds_step([north], **out)
    with pytest.raises(errors.MismatchError, match="twice"):
        mixveil.rounds_step([north, north], state=state, **out)
    with pytest.raises(errors.ArgumentError):
        mixveil.rounds_step([], state=state, **out)
    with pytest.raises(errors.ArgumentError):
        mixveil.rounds_step([north], state=state, **road.shared)
    road.step(1)
    with pytest.raises(errors.MismatchError, match="another head"):
        mixveil.rounds_step([south], state=road.folder / "state-2", **out)
    other = mixveil.rounds_plan(
        road.folder / "p2.json", projection=road.folder / "projection", units=9, num_classes=4, parties=1, mu=1
    )
    assert other.id != road.plan.id
    with pytest.raises(errors.MismatchError, match="is of the plan"):
        mixveil.rounds_step([north], state=state, **{**out, "plan": road.folder / "p2.json"})
    assert not (road.folder / "x").exists()


def test_a_party_that_is_twice_in_a_step_is_refused(road: Road, monkeypatch: pytest.MonkeyPatch) -> None:
    road.send("north", 0)
    monkeypatch.setenv("MIXVEIL_STATE", str(road.folder / "elsewhere"))
    made = mixveil.send_round(SOUTH, road.folder / "n2", party="north", mu=MU, **road.shared)
    with pytest.raises(errors.MismatchError, match="north is there twice"):
        mixveil.rounds_step([road.folder / "north-0", made.folder], road.folder / "x", **road.shared)


def test_a_party_that_sent_no_class_sums_is_named(road: Road) -> None:
    road.send("north", 0)
    road.send("south", 0)
    road.step(0, ["north"])
    for party in ("north", "south"):
        road.send(party, 1)
    done = road.step(1, model=road.folder / "m")
    assert [(told.code, told.figures) for told in done.warnings] == [("party-without-class-sums", {"party": "south"})]
    one = road.plan.settings.mu(1, MU)
    assert done.model.trained.spent == {
        "north": pytest.approx(math.hypot(road.plan.settings.mu(0, MU), one)),
        "south": pytest.approx(one),
    }


def test_the_state_goes_on_exactly_and_is_checked(road: Road) -> None:
    road.first()
    path = road.folder / "state-1" / "state.safetensors"
    parts = [read_release(road.folder / f"{party}-0") for party in ("north", "south")]
    again, found = rounds.from_class_sums(parts, road.plan.settings), read_state(path, road.plan)
    assert all(torch.equal(found.state.learnt.tensors()[name], t) for name, t in again.learnt.tensors().items())
    assert (found.state.noise, found.message, torch.equal(found.state.velocity, again.velocity)) == (
        again.noise,
        0,
        True,
    )
    head = read_head(road.folder / "state-1" / "head.safetensors", road.plan, 4)
    assert (head.sha256, head.message) == (found.head, 1) and isinstance(head.head, Head)
    tensors = load_file(path)
    for bad in ({**tensors, "bias": tensors["bias"] * math.nan}, {**tensors, "bias": tensors["bias"][:2]}):
        path.unlink()
        path.write_bytes(_with(bad, found.to_bytes(), road.folder / "tmp"))
        with pytest.raises(errors.DataFormatError):
            read_state(path, road.plan)


def _with(tensors: dict[str, torch.Tensor], whole: bytes, path: Path) -> bytes:
    """The same header's settings with other tensors."""
    header = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])["__metadata__"]
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, header)
    return path.read_bytes()


@pytest.mark.parametrize(
    "change", [{"id": "x"}, {"version": 2}, {"more": 1}, {"settings": {}}, {"projection": "0"}, {"format": "plan"}]
)
def test_a_plan_is_read_strictly(change: dict[str, Any], road: Road) -> None:
    path = road.folder / "plan.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(errors.DataFormatError, match="not a plan for rounds"):
        road.send("north", 0)


def test_units_are_covered_as_a_whole(road: Road) -> None:
    data = replace(NORTH, units=tuple(f"p{i // 4}" for i in range(len(NORTH))))
    made = road.send("north", 0, data)
    assert made.standing.spent.unit == "unit" and made.standing.spent.most == pytest.approx(MU)
    road.step(0, ["north"])
    with pytest.raises(errors.MismatchError):
        road.send("north", 1)  # without units
    assert road.send("north", 1, data).sums.settings.per == "unit"  # type: ignore[attr-defined]
