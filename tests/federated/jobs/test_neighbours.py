"""Nothing that a server sees of a party depends on a single record, but through the noise.

Two data sets that differ in one record (in rounds of sums in its label, too) answer the same questions, with the same
randomness. What leaves must be the same, byte for byte, but for the values that noise was added to and the hashes of
their files.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load

from mixveil.core.errors import BudgetError
from mixveil.core.randomness import SecureStream
from mixveil.core.types import Mu
from mixveil.data.images import Images, from_tensors
from mixveil.encoders.calibration import calibrate
from mixveil.encoders.singular import Singular
from mixveil.features import projection_file, projection_fit
from mixveil.features.cache import extract
from mixveil.features.cache import load as load_networks
from mixveil.features.extractor import Extractor
from mixveil.federated.jobs.messages import MANIFEST, Message
from mixveil.federated.jobs.party import Party
from mixveil.releases.ledger import Ledger
from mixveil.releases.records import write_release
from tests.federated.here import Answer, Here, a_party, a_projection, approving, done, job_of, rounds_projection, saved
from tests.made import Tiny, blobs, images, tiny_weights

pytestmark = pytest.mark.usefixtures("clock")
ROW = 7  # the record in which the two data sets differ
MU = 4.0
EARLIER = blobs(60, 8)  # a cohort that was released before


def replaced(data: Images, image: torch.Tensor, *, label: bool = False) -> Images:
    """Another record. label: and of another class."""
    x, y = data.take(torch.arange(len(data)))
    x[ROW], classes = image, y.argmax(1)
    classes[ROW] = (classes[ROW] + label) % len(data.classes)
    return from_tensors(x, classes, classes=len(data.classes))


def with_a_copy(data: Images) -> Images:
    """Two records of the same class are the same image."""
    x, y = data.take(torch.arange(len(data)))
    x[ROW + 6] = x[ROW + 3]
    return from_tensors(x, y.argmax(1), classes=len(data.classes))


def pixels(data: Images, row: int) -> torch.Tensor:
    return data.take(torch.tensor([row])).x[0]


NEIGHBOURS: dict[str, Callable[[Images], torch.Tensor]] = {
    "released before": lambda data: pixels(EARLIER, ROW),
    "a third copy of another": lambda data: pixels(data, ROW + 3),
    "black": lambda data: torch.zeros(data.shape),
    "white": lambda data: torch.ones(data.shape),
    "used for the projection": lambda data: pixels(blobs(300, 77), ROW),
}


class Draws:
    """The operating system's randomness, the same for both data sets: it begins again with every message."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch

    def answer(self, party: Answer, number: int, message: Message) -> Message:
        count = 0

        def urandom(size: int) -> bytes:
            nonlocal count
            count += 1
            return hashlib.shake_256(f"{number} {count}".encode()).digest(size)

        with self.monkeypatch.context() as patch:
            patch.setattr("os.urandom", urandom)
            return party(message)


def shown(answer: Message) -> dict[str, Any]:
    """All that a server sees of an answer, but for noisy values."""
    seen: dict[str, Any] = {"about": dict(answer.about), "names": list(answer.files)}
    for name, data in answer.files.items():
        if name == MANIFEST:
            whole = json.loads(data)
            assert whole.pop("created")
            for file in whole["files"]:
                assert file.pop("sha256")
            seen[name] = whole, len(data)
            continue
        head = 8 + int.from_bytes(data[:8], "little")
        seen[name] = data[:head], len(data)
        if name != "sums.safetensors":
            seen[name] += (load(data)["y"].tolist(),)
    return seen


def a_world(folder: Path, data: Images, monkeypatch: pytest.MonkeyPatch, draws: Draws, **more: Any) -> Party:
    """A party with a state of its own, that released another cohort before, and has these data now."""
    folder.mkdir()
    monkeypatch.setenv("MIXVEIL_STATE", str(folder / "state"))
    earlier = a_party(folder, "a", 0, images=EARLIER, **{**more, "approve": False})
    offer = {"version": 1, "job": "e" * 32, "name": "earlier", "method": "one-shot", "ask": "offer", "kind": "records"}
    assert draws.answer(earlier.answer, -1, Message({**offer, "projection": None})).files
    return a_party(folder, "a", 0, images=data, **more)


BUDGETS = {"enough": 100.0, "too little for those that were released before": 1.2 * MU, "just enough": 1.4143 * MU}


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda name: name.replace(" ", "-"))
@pytest.mark.parametrize(
    ("method", "approve"),
    [
        ("one-shot", True),
        ("one-shot projected", False),
        ("one-shot labels", False),
        ("two-step", False),
        ("two-step", True),
        ("two-step units", True),
        ("statistics", False),
        ("statistics", True),
        ("rounds", False),
        ("rounds", True),
        ("rounds units", False),
    ],
)
def test_one_record_changes_nothing_that_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, approve: bool, budget: str
) -> None:
    monkeypatch.setattr("mixveil.federated.jobs.making.INLINE", 100)
    monkeypatch.setattr("mixveil.releases.records.SHARD_BYTES", 1000)
    draws, data, (kind, _, how) = Draws(monkeypatch), with_a_copy(blobs(120, 0)), method.partition(" ")
    more: dict[str, Any] = {"mu": MU, "budget": BUDGETS[budget], "approve": approve}
    if how == "labels":
        more |= {"label_epsilon": 1.0, "label_budget": 3.0}
    if how == "units":
        more |= {"unit": "patient"}

    def world(name: str, data: Images) -> Answer:
        party = a_world(tmp_path / name, data, monkeypatch, draws, **more)
        return approving(party) if approve else party.answer

    asked: list[tuple[Message, Message]] = []
    first = world("first", data)

    def recorded(message: Message) -> Message:
        if method == "statistics" and message.about.get("kind") == "records":
            return Message({"state": "refused", "party": "a", "why": None})
        asked.append((message, draws.answer(first, len(asked), message)))
        return asked[-1][1]

    path = rounds_projection(tmp_path) if kind == "rounds" else a_projection(tmp_path)
    order = {"method": "two-step" if kind == "statistics" else kind, "parties": 1}
    job = job_of(tmp_path, projection=str(path) if how == "projected" or kind != "one-shot" else "", **order)
    whole = done(job, Here({"a": recorded}))
    affordable = BUDGETS[budget] > math.sqrt(2) * MU
    assert whole["ok"] == (affordable and method != "statistics"), whole
    for name, change in NEIGHBOURS.items():
        second = world(name, replaced(data, change(data), label=kind == "rounds"))
        differing = 0
        for number, (message, before) in enumerate(asked):
            answer = draws.answer(second, number, message)
            assert shown(answer) == shown(before), (name, message.about)
            differing += answer.files != before.files
        assert bool(differing) == affordable, name  # the record itself is in what was compared


def test_a_changed_record_takes_no_other_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features that were kept from an earlier job would be there sooner where the images are the same."""
    folder = tiny_weights(tmp_path / "data", monkeypatch)
    loaded = load_networks(Extractor.parse("tiny"), folder)
    public = images(60, shape=(3, 16, 16), classes=3, seed=5)
    path = tmp_path / "public.safetensors"
    digest = projection_file.write(path, projection_fit.fit(extract(public, loaded, None), loaded.digest))
    data = images(40, shape=(3, 16, 16), classes=3, seed=6)
    party = a_party(tmp_path, "a", 0, images=data, data_dir=str(folder))
    work = 0
    real = Tiny.maps

    def counted(self: Tiny, x: torch.Tensor) -> Any:
        nonlocal work
        work += len(x)
        return real(self, x)

    monkeypatch.setattr(Tiny, "maps", counted)

    def job(number: int) -> int:
        nonlocal work
        work = 0
        about = {"version": 1, "job": f"{number:032x}", "name": "j", "method": "one-shot", "ask": "offer"}
        message = Message({**about, "kind": "records", "projection": digest}, {"projection": path.read_bytes()})
        assert party.answer(message).about["state"] == "ready"
        return work

    first, same = job(1), job(2)
    saved(replaced(data, torch.zeros(3, 16, 16)), Path(party.config.data))
    assert first == same == job(3) > 0
    assert not list(tmp_path.glob("jobs-a/a/**/features"))


def test_what_was_refused_at_home_decides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At home a budget is counted by record: one data set is released, its neighbour is refused. A server that asks
    afterwards must not learn which it was."""
    data, answers = blobs(120, 0), []
    for name, mine in {"without": data, "with": replaced(data, pixels(EARLIER, ROW))}.items():
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.setenv("MIXVEIL_STATE", str(folder / "state"))
        Ledger().set_budget(1.25 * MU)
        encoder, guarantees, _ = calibrate(Singular(), Mu(MU), EARLIER, stream=SecureStream())
        for place, rows in (("earlier", EARLIER), ("mine", mine)):
            with suppress(BudgetError):
                write_release(folder / place, rows, encoder, guarantees, party="a", stream=SecureStream())
        assert (folder / "mine").exists() == (name == "without")
        party = a_party(folder, "a", 0, images=mine, mu=MU / 2)
        about = {"version": 1, "job": "0" * 32, "name": "j", "method": "one-shot"}
        answers.append([party.answer(Message({**about, "ask": ask, "kind": "records"})) for ask in ("hello", "offer")])
    assert answers[0] == answers[1] and Ledger().total().refused


def test_the_ledger_of_the_owner_still_counts_by_record(tmp_path: Path) -> None:
    """Between machines no record decides; what each has cost is known at home all the same."""
    party = a_party(tmp_path, "a", 0)
    for number in range(2):
        about = {"version": 1, "job": f"{number:032x}", "name": "j", "method": "one-shot", "ask": "offer"}
        assert party.answer(Message({**about, "kind": "records", "projection": None})).files
    book = Ledger()
    assert book.spent(book.owners(party.config.images())).most == pytest.approx(MU * math.sqrt(2))
    assert book.spent(book.owners(EARLIER)).most == 0 and book.total().mu == pytest.approx(MU * math.sqrt(2))
