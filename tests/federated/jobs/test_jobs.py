"""Jobs between a server and parties, in one process: what is sent, what is kept, who is believed."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import threading
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from mixveil.core.errors import ArgumentError, MismatchError, OutputError, TrainingError
from mixveil.core.randomness import SeededStream
from mixveil.core.wording.notes import Note, note, read
from mixveil.data.opening import open_data
from mixveil.encoders.grid import stored_dtype
from mixveil.encoders.singular import CalibratedSingular
from mixveil.features import projection_file, projection_fit, shipped
from mixveil.features.cache import extract
from mixveil.features.cache import load as load_networks
from mixveil.features.extractor import Extractor
from mixveil.federated.algorithms import federated, new_head, weights_of
from mixveil.federated.jobs import learning
from mixveil.federated.jobs.approval import approve, unfinished, waiting
from mixveil.federated.jobs.inbox import Inbox
from mixveil.federated.jobs.job import Job, begin, ended_as, status_of
from mixveil.federated.jobs.job_config import JobConfig
from mixveil.federated.jobs.messages import MANIFEST, Message, Refusal
from mixveil.federated.jobs.party import Party
from mixveil.federated.jobs.party_config import PartyConfig
from mixveil.learn.batches import RemixedEveryBatch
from mixveil.learn.class_means import directions
from mixveil.learn.model import read_model
from mixveil.learn.training import opened, train, train_mlp
from mixveil.releases.ledger import Ledger
from mixveil.releases.reading import read_release
from mixveil.releases.records import write_release
from tests.federated.here import (
    Answer,
    Clock,
    Here,
    a_party,
    a_projection,
    approving,
    done,
    events,
    figures,
    job_of,
    never,
    refused,
    saved,
    until,
    why,
)
from tests.federated.lies import (
    changed,
    fewer,
    floats,
    lying_mu,
    nan_labels,
    off_the_grid,
    one_bit,
    other_name,
    seeded,
    tensors,
    too_large,
)
from tests.made import Tiny, blobs, features_of, images, tiny_weights

NAMES = ("a", "b", "c")
pytestmark = pytest.mark.usefixtures("clock")


@pytest.fixture
def three(tmp_path: Path) -> dict[str, Answer]:
    return {name: a_party(tmp_path, name, seed).answer for seed, name in enumerate(NAMES)}


def kept(folder: Path, name: str, kind: str = "records") -> Path:
    """What a party keeps of its only job."""
    (found,) = (folder / f"jobs-{name}").glob(f"*/*/{kind}")
    return found


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# What arrives is what was kept


def test_one_release_of_each_party_arrives_byte_for_byte_and_the_model_comes_back(
    tmp_path: Path, three: dict[str, Answer]
) -> None:
    job = job_of(tmp_path)
    whole = done(job, Here(three))
    assert whole["ok"], whole
    for name in NAMES:
        assert files_of(job.folder / "records" / name) == files_of(kept(tmp_path, name))
        assert whole["parties"][name]["state"] == "arrived" and whole["parties"][name]["returned"]
        assert files_of(kept(tmp_path, name, "model")) == files_of(Path(whole["model"]))
    model = read_model(Path(whole["model"]))
    alone = train(opened([kept(tmp_path, name) for name in NAMES]))  # as files
    for (weight, bias), (wanted, other) in zip(model.layers.layers, alone.layers.layers, strict=True):
        assert torch.equal(weight, wanted) and torch.equal(bias, other)
    test = blobs(300, 9)
    assert float(model.layers.named(features_of(test)).eq(test.labels).double().mean()) > 0.5
    assert model.card["mu"] == {"a": 4.0, "b": 4.0, "c": 4.0}


def test_two_steps_cost_what_one_would(tmp_path: Path, three: dict[str, Answer]) -> None:
    job = job_of(tmp_path, method="two-step", projection=str(a_projection(tmp_path)))
    whole = done(job, Here(three))
    assert whole["ok"], whole
    for name in NAMES:
        sums = read_release(job.folder / "statistics" / name)
        records = read_release(job.folder / "records" / name)
        assert sums.mu == pytest.approx(4 / math.sqrt(2))
        assert records.guarantees[0].nominal == pytest.approx(4 / math.sqrt(2))
        assert records.assets["projection"] == projection_file.read(job.directions_path)[1]
    assert read_model(Path(whole["model"])).card["mu"]["a"] == pytest.approx(4.0)
    assert len(Ledger().entries()) == 6


def test_labels_cost_what_was_allowed_in_the_step_that_shows_them(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0, label_epsilon=6.0)
    job = job_of(tmp_path, method="two-step", parties=1, projection=str(a_projection(tmp_path)))
    assert done(job, Here({"a": party.answer}))["ok"]
    assert read_release(job.folder / "statistics" / "a").label_epsilon is None
    assert read_release(job.folder / "records" / "a").label_epsilon == 6.0
    assert Ledger().total().label_epsilon == 6.0


def test_a_party_makes_it_once_however_often_it_is_asked(tmp_path: Path, three: dict[str, Answer]) -> None:
    """The server forgets everything; the party sends the same bytes again."""
    job = job_of(tmp_path)
    assert done(job, Here(three))["ok"]
    first = {name: files_of(kept(tmp_path, name)) for name in NAMES}
    task = job.identity.plain()
    for name in NAMES:
        answer = three[name](Message({**task, "ask": "offer", "kind": "records", "projection": None}))
        assert answer.files[MANIFEST] == first[name][MANIFEST]
        sent = three[name](Message({**task, "ask": "file", "kind": "records", "file": "shard-00000.safetensors"}))
        assert sent.files["shard-00000.safetensors"] == first[name]["shard-00000.safetensors"]
    assert len(Ledger().entries()) == 3


def test_a_file_that_does_not_go_with_its_manifest_is_asked_for(
    tmp_path: Path, three: dict[str, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mixveil.federated.jobs.making.INLINE", 100)
    monkeypatch.setattr("mixveil.releases.records.SHARD_BYTES", 1000)
    job, fleet = job_of(tmp_path), Here(three)
    assert done(job, fleet)["ok"]
    shards = len(list((job.folder / "records" / "a").glob("shard-*")))
    assert shards > 2 and fleet.asked.count(("a", "file")) == shards
    assert files_of(job.folder / "records" / "a") == files_of(kept(tmp_path, "a"))


def test_a_server_that_died_asks_for_the_rest_alone(
    tmp_path: Path, three: dict[str, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mixveil.federated.jobs.making.INLINE", 100)
    monkeypatch.setattr("mixveil.releases.records.SHARD_BYTES", 1000)
    job = job_of(tmp_path)
    inbox, task = Inbox(job.folder), job.identity.plain()
    answer = three["a"](Message({**task, "ask": "offer", "kind": "records", "projection": None}))
    needed = inbox.offer("a", "records", answer.files[MANIFEST], None)
    for name in list(needed)[:2]:
        sent = three["a"](Message({**task, "ask": "file", "kind": "records", "file": name}))
        inbox.take("a", "records", name, sent.files[name])
    fleet = Here(three)
    assert done(job_of(tmp_path), fleet)["ok"]  # another process, in the same folder
    assert fleet.asked.count(("a", "file")) == len(needed) - 2
    again = Here({"b": three["b"], "c": three["c"], "a": never})
    whole = done(job_of(tmp_path, wait=1.0), again)
    assert whole["ok"] and ("a", "file") not in again.asked and ("b", "offer") not in again.asked
    assert Path(whole["model"]).name == "model-2"
    assert events(job.folder, "party-sent-before")


# Who is not there


def test_it_goes_on_without_those_that_say_nothing_and_says_so(tmp_path: Path, three: dict[str, Answer]) -> None:
    job = job_of(tmp_path, wait=1.0, min_parties=2, parties=4)
    whole = done(job, Here({**three, "c": never}))
    late = {"code": "not-in-time", "figures": {"seconds": 1.0}}
    assert whole["ok"] and whole["parties"]["c"] == {
        "state": "expected", "why": late, "bytes": 0, "returned": False, "rounds": 0, "messages": 0
    }  # fmt: skip
    over = events(job.folder, "time-over")[0]["figures"]
    assert over["parties"] == {"code": "parties-named-and-absent", "figures": {"names": ["c"], "absent": 1}}
    assert sorted(read_model(Path(whole["model"])).card["mu"]) == ["a", "b"]


def after_hello(answer: Answer) -> Answer:
    """A party that is there, and says nothing more."""
    return lambda message: answer(message) if message.about["ask"] == "hello" else never(message)


def test_too_few_are_no_job(tmp_path: Path, three: dict[str, Answer]) -> None:
    mute = {name: after_hello(three[name]) for name in ("b", "c")}
    whole = done(job_of(tmp_path, wait=1.0, min_parties=2), Here({"a": three["a"], **mute}))
    assert not whole["ok"] and why(whole) == "too-few-sent" and ended_as(whole) == "failed"
    assert figures(whole) == {"count": 1, "needed": 2, "kind": "records"}
    assert whole["model"] is None


def test_nobody_makes_anything_for_a_job_that_cannot_be(tmp_path: Path, three: dict[str, Answer]) -> None:
    refusing = a_party(tmp_path, "c", 2, allow="two-step")
    fleet = Here({"a": three["a"], "b": never, "c": refusing.answer})
    whole = done(job_of(tmp_path, wait=1.0, min_parties=2), fleet)
    assert not whole["ok"] and why(whole) == "too-few-agreed" and figures(whole) == {"count": 1, "needed": 2}
    assert ended_as(whole) == "refused" and ended_as({**whole, "why": {"code": "nothing-learnt"}}) == "failed"
    assert not Ledger().entries() and {ask for _, ask in fleet.asked} == {"hello", "ended"}


def test_a_key_that_is_known_by_another_name_costs_nothing(tmp_path: Path, three: dict[str, Answer]) -> None:
    said: list[Note] = []
    party = a_party(tmp_path, "d", 4)
    party.log = said.append
    whole = done(job_of(tmp_path), Here({"a": three["a"], "b": three["b"], "c": party.answer}))
    assert whole["parties"]["c"]["state"] == "refused" and len(Ledger().entries()) == 2
    assert said == [note("refused-job", job="first", why=note("other-name", known_as="c", party="d"))]


def test_those_that_did_not_come_are_named(tmp_path: Path, three: dict[str, Answer]) -> None:
    order = job_of(tmp_path, wait=1.0, min_parties=2, parties=3).config
    job = begin(tmp_path / "server", order, NAMES)
    whole = done(job, Here({"a": three["a"], "b": three["b"]}))
    assert whole["ok"] and whole["parties"]["c"]["state"] == "expected"
    over = events(job.folder, "time-over")[0]["figures"]
    assert over["parties"] == {"code": "parties-named", "figures": {"names": ["c"]}}


def test_parties_hear_that_it_ended(tmp_path: Path, three: dict[str, Answer]) -> None:
    said: list[Note] = []
    party = a_party(tmp_path, "d", 4)
    party.log = said.append
    done(job_of(tmp_path, wait=1.0, min_parties=2, parties=2), Here({"d": party.answer}))
    assert said == [note("job-ended-there", job="first", why=note("too-few-agreed", count=1, needed=2))]


def test_of_a_job_that_it_never_heard_of_a_party_says_nothing(tmp_path: Path) -> None:
    """A server would write its log, as often as it likes."""
    said: list[Note] = []
    party = a_party(tmp_path, "d", 4)
    party.log = said.append
    forged = {"code": "server-error", "figures": {"error": f"{' ' * 60}12:30 your key has expired"}}
    for number in range(5):
        asked(party, job=f"{number:032x}", ask="ended", why=forged)
    assert not said
    asked(party, job="7" * 32, ask="hello")
    for _ in range(5):
        asked(party, job="7" * 32, ask="ended", why=forged)
    assert said == [note("job-ended-there", job="j", why=note("no-reason-given"))]


def test_what_comes_too_late_is_not_trained_on(tmp_path: Path, three: dict[str, Answer], clock: Clock) -> None:
    gate = threading.Event()

    def slow(message: Message) -> Message:
        answer = three["c"](message)
        with clock.silence():
            gate.wait()
        return answer

    job = job_of(tmp_path, wait=1.0, min_parties=2)
    whole = done(job, Here({"a": three["a"], "b": three["b"], "c": slow}))
    gate.set()
    clock.settle()
    assert whole["ok"] and not (job.folder / "records" / "c").exists()


# Who is not believed


def not_json(whole: dict[str, Any], files: dict[str, bytes]) -> None:
    whole.clear()


def unknown_file(whole: dict[str, Any], files: dict[str, bytes]) -> None:
    files["../../up.safetensors"] = b"x"


def without_rows(whole: dict[str, Any], files: dict[str, bytes]) -> None:
    whole["files"][0]["rows"] = None


LIES = {
    nan_labels: "NotFiniteError",
    off_the_grid: "GridError",
    floats: "DtypeError",
    fewer: "ShapeError",
    lying_mu: "FalseClaimError",
    seeded: "FalseClaimError",
    other_name: "signed-as-another",
    too_large: "ShardSizeError",
    one_bit: "HashError",
    not_json: "ManifestError",
    unknown_file: "unknown-file",
    without_rows: "ManifestError",
}
"""The code, or the type of error, with which each is rejected."""


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_a_lie_is_rejected_with_a_reason_and_costs_the_others_nothing(
    tmp_path: Path, three: dict[str, Answer], lie: Any
) -> None:
    job = job_of(tmp_path)
    whole = done(job, Here({**three, "c": changed(three["c"], lie)}))
    assert whole["ok"] and sorted(read_model(Path(whole["model"])).card["mu"]) == ["a", "b"]
    status = whole["parties"]["c"]
    assert status["state"] == "rejected" and LIES[lie] in (why(whole, "c"), figures(whole, "c").get("error")), status
    assert str(tmp_path) not in json.dumps(status["why"]) and not status["returned"]
    assert not (job.folder / "records" / "c").exists() and not any((job.folder / "incoming").iterdir())
    assert not (tmp_path / "up.safetensors").exists()


def test_more_bytes_than_the_server_takes_are_not_asked_for(tmp_path: Path, three: dict[str, Answer]) -> None:
    def large(whole: dict[str, Any], files: dict[str, bytes]) -> None:
        whole["files"][0]["bytes"] = 2 << 20
        del files[whole["files"][0]["name"]]

    fleet = Here({**three, "c": changed(three["c"], large)})
    whole = done(job_of(tmp_path, limit=1), fleet)
    assert why(whole, "c") == "too-many-bytes" and figures(whole, "c") == {"bytes": 2 << 20, "most": 1 << 20}
    assert ("c", "file") not in fleet.asked


def test_a_seeded_release_is_not_taken(tmp_path: Path, three: dict[str, Answer]) -> None:
    party = a_party(tmp_path, "c", 2)

    def seeded_party(message: Message) -> Message:
        if message.about["ask"] == "hello":
            return party.answer(message)
        folder = tmp_path / "seeded"
        if not folder.exists():
            honest = read_release(kept(tmp_path, "c")) if list(tmp_path.glob("jobs-c/*/*/records")) else None
            party.answer(message)
            honest = honest or read_release(kept(tmp_path, "c"))
            data = open_data(party.config.data)
            write_release(folder, data, honest.encoder, honest.guarantees, party="c", stream=SeededStream(1))
        return Message({"state": "ready", "party": "c", "why": None}, files_of(folder))

    whole = done(job_of(tmp_path), Here({**three, "c": seeded_party}))
    assert why(whole, "c") == "seeded-noise"


def test_a_release_of_an_earlier_job_is_not_taken_again(tmp_path: Path, three: dict[str, Answer]) -> None:
    assert done(job_of(tmp_path), Here(three))["ok"]
    old = files_of(kept(tmp_path, "c"))
    fleet = Here({**three, "c": lambda message: Message({"state": "ready", "party": "c", "why": None}, old)})
    whole = done(job_of(tmp_path, job="second"), fleet)
    assert whole["ok"] and whole["parties"]["c"]["state"] == "rejected"
    assert why(whole, "c") == "taken-before"
    assert (figures(whole, "c")["job"], figures(whole, "c")["party"]) == ("first", "c")


@pytest.mark.parametrize("kind", ["records-5", "statistics-2"])
def test_a_job_of_an_earlier_version_beside_it_changes_nothing(
    tmp_path: Path, three: dict[str, Answer], kind: str
) -> None:
    job = job_of(tmp_path)
    old = job.folder.parent / "years-ago" / kind.partition("-")[0] / "a"
    shutil.copytree(Path(__file__).parents[2] / "releases" / "stored" / kind, old)
    assert done(job, Here(three))["ok"]


def test_the_same_rows_under_another_id_are_not_taken_again(tmp_path: Path, three: dict[str, Answer]) -> None:
    assert done(job_of(tmp_path), Here(three))["ok"]
    old = files_of(kept(tmp_path, "c"))
    old[MANIFEST] = json.dumps({**json.loads(old[MANIFEST]), "id": "7" * 32}).encode()
    fleet = Here({**three, "c": lambda message: Message({"state": "ready", "party": "c", "why": None}, old)})
    whole = done(job_of(tmp_path, job="second"), fleet)
    assert why(whole, "c") == "taken-before"


def test_one_partys_wrong_statistics_do_not_end_the_job_of_all(tmp_path: Path, three: dict[str, Answer]) -> None:
    def narrower(message: Message) -> Message:
        found = three["c"](message)
        if "sums.safetensors" not in found.files:
            return found
        data = save({"sums": load(found.files["sums.safetensors"])["sums"][:, :-1].contiguous()})
        whole = json.loads(found.files[MANIFEST])
        whole["payload"]["dimension"] -= 1
        whole["files"][0] |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        return Message(found.about, {MANIFEST: json.dumps(whole).encode(), "sums.safetensors": data})

    job = job_of(tmp_path, method="two-step", projection=str(a_projection(tmp_path)))
    whole = done(job, Here({**three, "c": narrower}))
    assert whole["ok"] and why(whole, "c") == "not-of-projection"
    assert sorted(read_model(Path(whole["model"])).card["mu"]) == ["a", "b"]


def other_figures(**change: float) -> Any:
    """A party whose manifest states other figures, and claims less than they would give; all else fits them."""

    def lie(whole: dict[str, Any], files: dict[str, bytes]) -> None:
        for guarantee in whole["guarantees"]:
            guarantee |= {"nominal": 1e90, "realised": 1e90}
        if whole["kind"] == "sums":
            whole["payload"] |= change
            files["sums.safetensors"] = save({"sums": torch.zeros_like(load(files["sums.safetensors"])["sums"])})
            digest = hashlib.sha256(files["sums.safetensors"]).hexdigest()
            whole["files"][0] |= {"bytes": len(files["sums.safetensors"]), "sha256": digest}
            return
        whole["payload"]["encoder"]["settings"] |= change
        encoder = CalibratedSingular(**whole["payload"]["encoder"]["settings"])
        bound = encoder.index_bound or 0
        whole["payload"]["grid"] = {"step": encoder.step, "bound": bound}
        most = min(bound, 1 << 30)
        tensors(whole, files, lambda found: {**found, "x": found["x"].long().clamp(-most, most).to(stored_dtype(most))})

    return lie


@pytest.mark.parametrize("change", [{"sigma": 1e60}, {"sigma": 1e-60}, {"centre": 1e300}, {"amplitude": 1e-90},
                                    {"clip": 1e80, "amplitude": 1e80}])  # fmt: skip
@pytest.mark.parametrize("through", [False, True], ids=["pixels", "projected"])
def test_figures_that_no_data_have_do_not_end_the_job_of_all(
    tmp_path: Path, three: dict[str, Answer], change: dict[str, float], through: bool
) -> None:
    job = job_of(tmp_path, projection=str(a_projection(tmp_path)) if through else "")
    whole = done(job, Here({**three, "c": changed(three["c"], other_figures(**change))}))
    assert whole["ok"] and whole["parties"]["c"]["state"] == "rejected", whole
    assert sorted(read_model(Path(whole["model"])).card["mu"]) == ["a", "b"]


@pytest.mark.parametrize("change", [{"clip": 0.5}, {"sigma": 1e200}, {"sigma": 1e-60}])
def test_statistics_that_no_data_have_do_not_end_the_job_of_all(
    tmp_path: Path, three: dict[str, Answer], change: dict[str, float]
) -> None:
    """A smaller clip norm is a claim that can be true of a release, and not of this job."""

    def lie(whole: dict[str, Any], files: dict[str, bytes]) -> None:
        if whole["kind"] == "sums":
            clip = whole["payload"]["clip"]
            whole["payload"] |= {name: value * clip if name == "clip" else value for name, value in change.items()}
            whole["guarantees"][0] |= {"nominal": 1e90, "realised": 1e90}

    job = job_of(tmp_path, method="two-step", projection=str(a_projection(tmp_path)))
    for _ in range(2):  # and when it is begun again
        whole = done(job, Here({**three, "c": changed(three["c"], lie)}))
        assert whole["ok"] and whole["parties"]["c"]["state"] == "rejected", whole
        assert sorted(read_model(Path(whole["model"])).card["mu"]) == ["a", "b"]


def failing(real: Any, parts: Any, wrong: Any) -> Any:
    """A computation that some parties' figures make impossible."""

    def call(first: Any, *more: Any) -> Any:
        if wrong({part.party for part in parts(first)}):
            raise TrainingError("the algorithm failed to converge")
        return real(first, *more)

    return call


def test_all_that_make_training_impossible_are_set_aside(
    tmp_path: Path, three: dict[str, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two: without one of them it is still impossible. And again, when the job is begun again."""
    monkeypatch.setattr(
        "mixveil.learn.training.train", failing(train, lambda job: job.releases, lambda names: names & {"a", "b"})
    )
    for _ in range(2):
        whole = done(job_of(tmp_path), Here(three))
        assert whole["ok"], whole
        assert {name for name in NAMES if why(whole, name) == "blocks-learning"} == {"a", "b"}
        assert sorted(read_model(Path(whole["model"])).card["mu"]) == ["c"]


@pytest.mark.parametrize("kind", ["statistics", "records"])
def test_who_makes_training_impossible_with_others_is_set_aside(
    tmp_path: Path, three: dict[str, Answer], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone its figures are fine."""

    def wrong(names: set[str]) -> bool:
        return "b" in names and len(names) > 1

    if kind == "statistics":
        monkeypatch.setattr(learning, "directions", failing(directions, lambda parts: parts, wrong))
    else:
        monkeypatch.setattr("mixveil.learn.training.train", failing(train, lambda job: job.releases, wrong))
    path = str(a_projection(tmp_path))
    whole = done(job_of(tmp_path, method="two-step", projection=path), Here(three))
    assert whole["ok"] and why(whole, "b") == "blocks-learning"
    assert figures(whole, "b") == {"kind": kind, "error": "TrainingError"}
    assert sorted(source["party"] for source in read_model(Path(whole["model"])).card["trained_on"]) == ["a", "c"]
    short = done(job_of(tmp_path, job="all", method="two-step", projection=path, min_parties=3), Here(three))
    assert not short["ok"] and why(short) == "nothing-learnt"


def test_what_is_nobodys_fault_is_nobodys(
    tmp_path: Path, three: dict[str, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, or too little memory, at the server's."""
    for error in (OutputError("No space left on device"), RuntimeError("can't allocate memory")):

        def fail(job: Any, error: Exception = error) -> Any:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr("mixveil.learn.training.train", fail)
            job = job_of(tmp_path)
            if isinstance(error, OutputError):
                assert figures(done(job, Here(three)))["error"] == "OutputError"
            else:
                with pytest.raises(RuntimeError):
                    done(job, Here(three))
        assert not (job.folder / "set-aside").exists()
    assert done(job_of(tmp_path), Here(three))["ok"]


def test_two_that_fail_only_together_are_both_kept(
    tmp_path: Path, three: dict[str, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can tell which of them it is."""
    wrong = failing(train, lambda job: job.releases, lambda names: names >= {"a", "b"})
    monkeypatch.setattr("mixveil.learn.training.train", wrong)
    job = job_of(tmp_path, parties=2)
    whole = done(job, Here({"a": three["a"], "b": three["b"]}))
    assert not whole["ok"] and not (job.folder / "set-aside").exists()


def test_a_party_that_comes_after_a_training_was_stopped_is_no_fault(
    tmp_path: Path, three: dict[str, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state that the training of two parties left is not that of three."""
    monkeypatch.setattr("mixveil.learn.training.EVERY", 0.0)
    monkeypatch.setattr(train_mlp, "__kwdefaults__", {**(train_mlp.__kwdefaults__ or {}), "every": 0.0})
    order = {"head": "mlp", "epochs": 2, "min_parties": 2, "wait": 3.0}
    with monkeypatch.context() as patch:
        patch.setattr(
            "mixveil.federated.jobs.learning.checkpoint.discard", lambda path: None
        )  # as if it had been killed
        assert done(job_of(tmp_path, **order), Here({"a": three["a"], "b": three["b"]}))["ok"]
    assert list((tmp_path / "server" / "jobs" / "first").glob(".training-*"))
    whole = done(job_of(tmp_path, **order), Here(three))
    assert whole["ok"] and whole["parties"]["c"]["state"] == "arrived", whole
    assert sorted(read_model(Path(whole["model"])).card["mu"]) == ["a", "b", "c"]


def test_a_party_of_one_class_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone it has no directions, and others are to blame."""
    parties = {
        name: a_party(tmp_path, name, seed, images=blobs(60, seed, rare=2 if name == "a" else 0)).answer
        for seed, name in enumerate((*NAMES, "d"))
    }
    wrong = failing(directions, lambda parts: parts, lambda names: names & {"b", "c"})
    monkeypatch.setattr(learning, "directions", wrong)
    job = job_of(tmp_path, method="two-step", projection=str(a_projection(tmp_path)), parties=4)
    whole = done(job, Here(parties))
    assert whole["ok"] and whole["parties"]["a"]["state"] == "arrived", whole
    assert {name for name in parties if whole["parties"][name]["state"] == "rejected"} == {"b", "c"}


def test_records_without_statistics_do_not_end_the_job_of_all(tmp_path: Path, three: dict[str, Answer]) -> None:
    def second_step_only(message: Message) -> Message:
        if message.about.get("kind") == "statistics":
            return never(message)
        return three["c"](message)

    job = job_of(tmp_path, method="two-step", projection=str(a_projection(tmp_path)), wait=2.0, min_parties=2)
    whole = done(job, Here({**three, "c": second_step_only}))
    assert why(whole, "c") == "no-statistics-sent"
    assert whole["ok"] and sorted(read_model(Path(whole["model"])).card["mu"]) == ["a", "b"]


def test_no_file_is_larger_than_a_release_makes_them(tmp_path: Path, three: dict[str, Answer]) -> None:
    def large(whole: dict[str, Any], files: dict[str, bytes]) -> None:
        whole["files"][0]["bytes"] = 1 << 31

    fleet = Here({**three, "c": changed(three["c"], large)})
    whole = done(job_of(tmp_path), fleet)
    assert figures(whole, "c")["error"] == "ManifestError" and ("c", "file") not in fleet.asked


def test_no_party_writes_the_coordinators_log(tmp_path: Path, three: dict[str, Answer]) -> None:
    evil = "x\n05:00:00 a: rejected: it lied\x1b[2J"

    def forging(message: Message) -> Message:
        found = three["c"](message)
        return Message(found.about, {**found.files, evil: b"x"})

    job = job_of(tmp_path)
    whole = done(job, Here({**three, "c": forging}))
    (event,) = events(job.folder, "party-out")
    shown = str(read(event))
    assert whole["parties"]["c"]["state"] == "rejected" and event["party"] == "c"
    assert shown.isprintable() and not shown.startswith("05:00:00")


def test_what_came_stays_when_the_time_is_over(
    tmp_path: Path, three: dict[str, Answer], monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr("mixveil.federated.jobs.making.INLINE", 100)
    monkeypatch.setattr("mixveil.releases.records.SHARD_BYTES", 1000)
    count, ended = 0, threading.Event()

    def stalling(message: Message) -> Message:
        nonlocal count
        count += message.about["ask"] == "file"
        if count > 2:
            with clock.silence():
                ended.wait()
            raise Refusal("job-over")  # as the network says then
        return three["c"](message)

    job = job_of(tmp_path, wait=1.5, min_parties=2)
    assert done(job, Here({**three, "c": stalling}))["ok"]
    ended.set()
    clock.settle()
    assert len(list((job.folder / "incoming" / "records-c").glob("shard-*"))) == 2


def test_another_partys_release_is_not_taken(tmp_path: Path, three: dict[str, Answer]) -> None:
    whole = done(job_of(tmp_path), Here({**three, "c": three["a"]}))
    assert why(whole, "c") == "other-name" and figures(whole, "c") == {"known_as": "c", "party": "a"}
    assert whole["parties"]["a"]["state"] == "arrived"
    lying = Here({**three, "c": lambda message: three["a"](Message({**message.about, "you": "a"}, message.files))})
    whole = done(job_of(tmp_path, job="second"), lying)
    assert why(whole, "c") == "says-another-name" and figures(whole, "c") == {"named": "'a'", "party": "c"}


def test_strangers_are_turned_away_and_said(tmp_path: Path, three: dict[str, Answer]) -> None:
    twice = note("same-name-twice", named="a")
    whole = done(job_of(tmp_path), Here(three, {"node 7": twice}))
    assert whole["ok"] and whole["unknown"] == {"node 7": twice.plain()}


ESCAPES = "no\x1b[2J"


@pytest.mark.parametrize(
    ("about", "code"),
    [
        ({}, "says-another-name"),
        ({"state": "ready", "party": "c"}, "files-missing"),
        ({"state": 7, "party": "c"}, "unexpected-answer"),
        ({"state": "refused", "party": "c"}, "no-reason-given"),
        ({"state": "refused", "party": "c", "why": {"code": "owner-refused"}}, "owner-refused"),
        ({"state": "refused", "party": "c", "why": {"code": "model-made"}}, "no-reason-given"),
        ({"state": "refused", "party": "c", "why": "owner-refused"}, "no-reason-given"),
        ({"state": "refused", "party": "c", "why": {"code": ["a"]}}, "no-reason-given"),
        ({"state": "refused", "party": "c", "why": {"code": "owner-refused", "figures": {"x": 1}}}, "no-reason-given"),
        ({"state": "refused", "party": "c", "why": {"code": "too-many-waiting"}}, "no-reason-given"),
        (
            {"state": "refused", "party": "c", "why": {"code": "too-many-waiting", "figures": {"count": "9"}}},
            "no-reason-given",
        ),
        (
            {"state": "refused", "party": "c", "why": {"code": "too-many-waiting", "figures": {"count": 1 << 60}}},
            "no-reason-given",
        ),
        (
            {"state": "refused", "party": "c", "why": {"code": "other-weights", "figures": {"extractor": ESCAPES}}},
            "no-reason-given",
        ),
        (
            {"state": "refused", "party": "c", "why": {"code": "other-weights", "figures": {"extractor": "x" * 81}}},
            "no-reason-given",
        ),
        (
            {"state": "refused", "party": "c", "why": {"code": "other-weights", "figures": {"extractor": {"a": 1}}}},
            "no-reason-given",
        ),
    ],
)
def test_nonsense_is_no_answer(tmp_path: Path, three: dict[str, Answer], about: dict[str, Any], code: str) -> None:
    """What a party says is shown only if it is a known code with just its figures, of their types."""
    whole = done(job_of(tmp_path), Here({**three, "c": lambda message: Message(about)}))
    assert whole["ok"] and why(whole, "c") == code


def test_a_minority_with_other_classes_or_shapes_is_left_out(tmp_path: Path, three: dict[str, Answer]) -> None:
    other = a_party(tmp_path, "d", 5, images=blobs(60, 5, classes=2))
    whole = done(job_of(tmp_path, parties=4), Here({**three, "d": other.answer}))
    assert whole["ok"] and whole["parties"]["d"]["state"] == "rejected"
    assert why(whole, "d") == "differs-from-most"


def test_no_majority_is_no_job(tmp_path: Path, three: dict[str, Answer]) -> None:
    other = a_party(tmp_path, "d", 5, images=blobs(60, 5, classes=2))
    job = job_of(tmp_path, parties=2, min_parties=1)
    whole = done(job, Here({"a": three["a"], "d": other.answer}))
    assert not whole["ok"] and why(whole) == "no-majority"
    assert figures(whole) == {"first": "a", "second": "d", "kind": "records"}


def test_too_few_that_agree_are_no_job_and_may_send_anew(tmp_path: Path, three: dict[str, Answer]) -> None:
    other = a_party(tmp_path, "d", 5, images=blobs(60, 5, classes=2))
    job = job_of(tmp_path, parties=4, min_parties=4)
    whole = done(job, Here({**three, "d": other.answer}))
    assert not whole["ok"] and why(whole) == "too-few-agree-on-data"


def test_more_nodes_than_parties_are_all_waited_for(tmp_path: Path, three: dict[str, Answer]) -> None:
    """A fast refusal does not push out a slow and honest party."""
    party, refused = a_party(tmp_path, "d", 5, allow="two-step"), threading.Event()

    def refusing(message: Message) -> Message:
        answer = party.answer(message)
        refused.set()
        return answer

    def slow(message: Message) -> Message:
        assert refused.wait(300)
        return three["a"](message)

    job = job_of(tmp_path, parties=3)
    whole = done(job, Here({**three, "a": slow, "d": refusing}))
    assert whole["ok"] and whole["parties"]["a"]["state"] == "arrived"
    assert not events(job.folder, "time-over")


def test_records_through_another_projection_are_not_taken(tmp_path: Path, three: dict[str, Answer]) -> None:
    inbox = Inbox(job_of(tmp_path).folder)
    job = job_of(tmp_path, job="other")
    answer = three["a"](Message({**job.identity.plain(), "ask": "offer", "kind": "records", "projection": None}))
    known = projection_file.read(a_projection(tmp_path))
    with pytest.raises(Refusal) as error:
        inbox.offer("a", "records", answer.files[MANIFEST], known)
    assert error.value.note == note("other-projection", sent="none", needed=known[1][:8])


# What a party decides


def asked(party: Any, method: str = "one-shot", **about: Any) -> Message:
    whole = {"version": 1, "job": "0" * 32, "name": "j", "method": method, "ask": "offer", "kind": "records"}
    found: Message = party.answer(Message({**whole, "projection": None, **about}))
    return found


def test_a_party_takes_part_in_nothing_that_it_did_not_allow(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0)
    for method in ("fedavg", "fedprox"):
        assert refused(asked(party, method, kind="updates")) == "method-not-allowed"
    only = a_party(tmp_path, "b", 1, allow="two-step")
    assert asked(only).about["state"] == "refused"
    assert not Ledger().entries() and not list(tmp_path.glob("jobs-*/*/*/*"))


@pytest.mark.parametrize(
    "about",
    [
        {"version": 2},
        {"job": "../../etc"},
        {"name": "../up"},
        {"method": "all"},
        {"ask": "data"},
        {"kind": "originals"},
        {"kind": "statistics"},
        {"projection": 5},
        {"projection": "x" * 64},
    ],
)
def test_a_party_refuses_what_it_does_not_know(tmp_path: Path, about: dict[str, Any]) -> None:
    answer = asked(a_party(tmp_path, "a", 0), **about)
    assert answer.about["state"] in ("refused", "failed") and not answer.files
    assert not Ledger().entries()


def test_only_files_of_the_release_are_sent(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0)
    asked(party)
    for name in ("../job.json", "/etc/passwd", "manifest.json", "shard-00001.safetensors", "../../a.npz"):
        answer = asked(party, ask="file", file=name)
        assert answer.about["state"] in ("refused", "failed") and not answer.files, name


def test_what_goes_wrong_with_the_data_is_for_the_owner_alone(tmp_path: Path) -> None:
    said: list[Note] = []
    party = a_party(tmp_path, "a", 0)
    party.log = said.append
    Path(party.config.data).write_bytes(b"patient 4711 is not an archive")
    answer = asked(party)
    assert answer.about == {"state": "failed", "party": "a", "why": {"code": "not-made"}} and not answer.files
    assert any(str(tmp_path) in str(event) for event in said)


def test_the_budget_ends_it(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0, budget=5.0)
    assert asked(party).about["state"] == "ready"
    for ask in ("hello", "offer"):
        answer = asked(party, job="1" * 32, ask=ask).about
        assert answer == {"state": "refused", "party": "a", "why": {"code": "over-budget"}}
    assert asked(party).about["state"] == "ready"  # what is there may still be sent
    assert len(Ledger().entries()) == 1 and len(list(tmp_path.glob("jobs-a/a/*/"))) == 1


def test_two_steps_are_not_begun_where_the_second_could_not_be_paid(tmp_path: Path) -> None:
    path = a_projection(tmp_path)
    party = a_party(tmp_path, "a", 0, budget=5.0)
    assert asked(party).about["state"] == "ready"  # 4 are spent: one step of 2.83 would fit, both do not
    said: list[Note] = []
    party.log = said.append
    job = job_of(tmp_path, method="two-step", parties=1, projection=str(path))
    whole = done(job, Here({"a": party.answer}))
    assert whole["parties"]["a"]["state"] == "refused" and len(Ledger().entries()) == 1
    assert said[0] == note("beyond-budget", job="first", mu=pytest.approx(math.sqrt(32)), budget=5.0, spent=4.0)


def test_a_second_step_is_held_back_from_other_jobs(tmp_path: Path) -> None:
    """Two jobs at once: the statistics of both fit, the records of both do not."""
    path = a_projection(tmp_path)
    sent, digest = {"projection": path.read_bytes()}, projection_file.read(path)[1]
    party = a_party(tmp_path, "a", 0, budget=5.0)
    first = {"version": 1, "job": "1" * 32, "name": "one", "method": "two-step", "ask": "offer", "kind": "statistics"}
    second = {**first, "job": "2" * 32, "name": "two"}
    assert party.answer(Message({**first, "projection": digest}, sent)).about["state"] == "ready"
    assert refused(party.answer(Message({**second, "projection": digest}, sent))) == "over-budget"
    assert refused(party.answer(Message({**second, "ask": "hello"}))) == "over-budget"
    assert refused(asked(party, job="3" * 32, ask="hello")) == "over-budget"
    assert len(Ledger().entries()) == 1
    party.answer(Message({**first, "ask": "ended", "why": {"code": "server-error"}}))
    assert asked(party, job="3" * 32, ask="hello").about["state"] == "ready"


def test_two_steps_are_done_with_the_settings_that_they_were_begun_with(tmp_path: Path) -> None:
    path = a_projection(tmp_path)
    job = job_of(tmp_path, method="two-step", parties=1, projection=str(path))
    party = a_party(tmp_path, "a", 0)
    dearer = Party(replace(party.config, mu=8.0))

    def answer(message: Message) -> Message:
        return (dearer if message.about.get("kind") == "records" else party).answer(message)

    whole = done(job, Here({"a": answer}))
    assert why(whole, "a") == "settings-changed"
    assert [entry.stated for entry in Ledger().entries()] == [pytest.approx(4 / math.sqrt(2))]


def test_what_failed_after_it_was_entered_is_not_made_with_other_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner agreed to other ones."""
    party = a_party(tmp_path, "a", 0, approve=True, mu=1.0)
    assert asked(party).about["state"] == "waiting"
    (item,) = waiting(tmp_path / "jobs-a")
    item.approve("figures")
    with monkeypatch.context() as patch:
        patch.setattr(
            "mixveil.releases.writing.traces.save_trace", lambda *_: (_ for _ in ()).throw(OutputError("full disk"))
        )
        assert asked(party).about["state"] == "failed" and len(Ledger().entries()) == 1
    for other in ({"mu": 8.0}, {"label_epsilon": 1.0}, {"data": str(saved(blobs(120, 9), tmp_path / "o.npz"))}):
        answer = asked(Party(replace(party.config, **other)))
        assert refused(answer) == "settings-changed", other
    assert asked(party).about["state"] == "ready" and len(Ledger().entries()) == 2  # both tries count


def test_nothing_is_computed_for_a_projection_that_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server could name features of any width, and fill the memory with them."""
    folder = tiny_weights(tmp_path / "data", monkeypatch)
    data = images(40, shape=(3, 32, 32), classes=3)
    loaded = load_networks(Extractor.parse("tiny"), folder)
    wide = load_networks(Extractor.parse("tiny", stage="stem"), folder)
    found = projection_fit.fit(extract(images(60, shape=(3, 32, 32), classes=3, seed=5), loaded, None), loaded.digest)
    path = tmp_path / "wide.safetensors"
    digest = projection_file.write(path, replace(found, extractor=wide.extractor, weights=wide.digest))
    party = a_party(tmp_path, "a", 0, images=data, data_dir=str(folder))
    work: list[int] = []
    real = Tiny.maps

    def counted(self: Tiny, x: torch.Tensor) -> Any:
        work.append(len(x))
        return real(self, x)

    monkeypatch.setattr(Tiny, "maps", counted)
    about = {"version": 1, "job": "0" * 32, "name": "j", "method": "one-shot", "ask": "offer", "kind": "records"}
    message = Message({**about, "projection": digest}, {"projection": path.read_bytes()})
    assert refused(party.answer(message)) == "other-width" and sum(work) == 1
    monkeypatch.setattr("mixveil.federated.jobs.party_config._MEMORY", 100)
    digest = projection_file.write(tmp_path / "right.safetensors", found)
    message = Message({**about, "projection": digest}, {"projection": (tmp_path / "right.safetensors").read_bytes()})
    assert refused(party.answer(message)) == "features-too-large" and sum(work) == 2
    assert not list(tmp_path.glob("jobs-a/a/*/"))


def test_questions_leave_nothing(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0)
    for number in range(20):
        assert asked(party, job=f"{number:032x}", ask="hello").about["state"] == "ready"
        assert asked(party, job=f"{number:032x}", projection="1" * 64).about["state"] == "send projection"
    assert not list(tmp_path.glob("jobs-a/a/*/"))


def test_what_was_made_for_one_server_is_not_sent_to_another(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0, server="A")
    assert asked(party).about["state"] == "ready"
    other = Party(replace(party.config, server="B"))
    for ask in ("hello", "offer", "file", "model", "ended"):
        answer = asked(other, ask=ask, file="shard-00000.safetensors")
        assert refused(answer) == "other-server" and not answer.files
    assert asked(party).files


def test_the_ledger_says_to_whom_it_went(tmp_path: Path) -> None:
    asked(a_party(tmp_path, "a", 0, server="1A2B 3C4D"))
    assert [entry.recipient for entry in Ledger().entries()] == ["1A2B 3C4D, job j"]


def test_labels_have_a_budget(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0, mu=0.1, label_epsilon=1.0, label_budget=2.5)
    states = [asked(party, job=f"{number:032x}", ask="hello").about["state"] for number in range(2)]
    assert states == ["ready"] * 2
    states = [asked(party, job=f"{number:032x}").about["state"] for number in range(4)]
    assert states == ["ready", "ready", "refused", "refused"]
    assert Ledger().total().label_epsilon == 2.0


def test_half_a_job_holds_back_what_its_labels_will_cost(tmp_path: Path) -> None:
    """Two-step jobs that are never finished: the second step's ε is held back, and nothing is beyond the budget."""
    path = a_projection(tmp_path)
    sent, digest = {"projection": path.read_bytes()}, projection_file.read(path)[1]
    party = a_party(tmp_path, "a", 0, mu=0.1, label_epsilon=1.0, label_budget=2.5)
    about = {"version": 1, "name": "j", "method": "two-step", "ask": "offer", "kind": "statistics"}
    states = [
        party.answer(Message({**about, "job": f"{number:032x}", "projection": digest}, sent)).about["state"]
        for number in range(4)
    ]
    assert states == ["ready", "ready", "refused", "refused"] and Ledger().total().label_epsilon == 0.0


@pytest.mark.parametrize("each", [1, 2, 3, 4])
def test_two_steps_of_units_cost_what_they_should(tmp_path: Path, each: int) -> None:
    images = blobs(120, 0)
    x, y = images.take(torch.arange(120))
    patients = np.array([f"patient {row // each}" for row in range(120)])
    path = tmp_path / "units.npz"
    np.savez(path, x=x.numpy(), y=y.argmax(1).numpy(), classes=np.array(images.classes), patient=patients)
    settings = PartyConfig(party="a", data=str(path), folder=str(tmp_path / "u"), mu=2.0, budget=2.0, unit="patient")
    job = job_of(tmp_path, method="two-step", parties=1, projection=str(a_projection(tmp_path)))
    whole = done(job, Here({"a": Party(settings).answer}))
    assert whole["ok"], whole
    assert Ledger().spent(Ledger().owners(settings.images())).most == pytest.approx(2.0)


def test_a_server_does_not_fill_a_partys_disk(tmp_path: Path, three: dict[str, Answer]) -> None:
    job = job_of(tmp_path)
    whole = done(job, Here(three))
    model = files_of(Path(whole["model"]))
    party = a_party(tmp_path, "d", 4)
    about = {**job.identity.plain(), "ask": "model"}
    assert refused(party.answer(Message(about, model))) == "took-no-part"
    for number in range(30):
        card = {**json.loads(model["card.json"]), "created": f"at {number}"}
        three["a"](Message(about, {**model, "card.json": json.dumps(card).encode()}))
    assert len(list((tmp_path / "jobs-a" / "a" / f"first-{job.identity.id}").glob("model*"))) == 20


def test_of_what_cannot_be_made_nothing_is_kept(tmp_path: Path) -> None:
    path = a_projection(tmp_path)
    digest, files = projection_file.read(path)[1], {"projection": path.read_bytes()}
    party = a_party(tmp_path, "a", 0, budget=5.0)
    asked(party)
    for number in range(1, 5):  # beyond the budget
        asked(party, job=f"{number:032x}", projection=digest)
        party.answer(Message({"version": 1, "job": f"{number:032x}", "name": "j", "method": "one-shot", "ask": "offer",
                             "kind": "records", "projection": digest}, files))  # fmt: skip
    broken = a_party(tmp_path, "b", 1)
    Path(broken.config.data).write_bytes(b"no archive")
    for number in range(5):  # nothing can be made of its data
        broken.answer(Message({"version": 1, "job": f"{number:032x}", "name": "j", "method": "one-shot", "ask": "offer",
                              "kind": "records", "projection": digest}, files))  # fmt: skip
    assert len(list(tmp_path.glob("jobs-a/a/*/"))) == 1 and not list(tmp_path.glob("jobs-b/b/*/"))


def test_a_projection_has_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mixveil.federated.jobs.job_folder.PROJECTION_LIMIT", 1000)
    monkeypatch.setattr("mixveil.federated.jobs.job_folder.MODELS_LIMIT", 1000)
    path = a_projection(tmp_path)
    party = a_party(tmp_path, "a", 0)
    about = {"version": 1, "job": "0" * 32, "name": "j", "method": "one-shot", "ask": "offer", "kind": "records"}
    answer = party.answer(
        Message({**about, "projection": projection_file.read(path)[1]}, {"projection": path.read_bytes()})
    )
    assert refused(answer) == "projection-too-large" and answer.about["why"]["figures"]["most"] == 1000
    asked(party)
    large = Message({**about, "ask": "model"}, {"model.safetensors": bytes(2000), "card.json": b"{}"})
    assert refused(party.answer(large)) == "models-too-large"


def test_not_many_jobs_wait_for_an_owner_at_a_time(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0, approve=True)
    states = [asked(party, job=f"{number:032x}").about["state"] for number in range(12)]
    assert states == ["waiting"] * 10 + ["refused"] * 2 and not Ledger().entries()
    assert asked(party, job=f"{3:032x}").about["state"] == "waiting"
    for item in waiting(tmp_path / "jobs-a")[:2]:
        item.approve("figures")
    assert asked(party, job=f"{11:032x}").about["state"] == "waiting"  # those that have their answer do not wait


def test_what_waits_since_the_owner_wants_to_look_is_shown(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0)
    assert asked(party).about["state"] == "ready" and not waiting(tmp_path / "jobs-a")
    careful = Party(replace(party.config, approve=True))
    assert asked(careful).about["state"] == "waiting"
    (item,) = waiting(tmp_path / "jobs-a")
    item.approve("figures")
    assert asked(careful).about["state"] == "ready"


def test_who_said_no_is_not_asked_for_ever(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0, approve=True)
    assert asked(party).about["state"] == "waiting"
    (item,) = waiting(tmp_path / "jobs-a")
    item.refuse()
    assert refused(asked(party)) == "owner-refused" and not waiting(tmp_path / "jobs-a")


def test_classes_are_no_oracle(tmp_path: Path) -> None:
    """Whether its data have certain classes is not said before anything is entered."""
    path = a_projection(tmp_path)
    found = projection_file.read(path)[0]
    narrow = replace(found, classes=("x", "y"), means=found.means.new_zeros(2, found.dimension),
                     precision=found.precision.new_ones(2))  # fmt: skip
    other = tmp_path / "other.safetensors"
    digest = projection_file.write(other, narrow)
    party = a_party(tmp_path, "a", 0)
    about = {"version": 1, "job": "0" * 32, "name": "j", "method": "one-shot", "ask": "offer", "kind": "records"}
    answer = party.answer(Message({**about, "projection": digest}, {"projection": other.read_bytes()}))
    assert answer.about == {"state": "failed", "party": "a", "why": {"code": "not-made"}}


def test_a_job_that_calls_itself_another_is_refused(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0)
    assert asked(party).about["state"] == "ready"
    again = asked(party, "two-step", kind="statistics")
    assert refused(again) == "other-job"


def test_directions_must_come_from_the_partys_own_statistics(tmp_path: Path) -> None:
    path = a_projection(tmp_path)
    digest = projection_file.read(path)[1]
    party = a_party(tmp_path, "a", 0)
    answer = asked(party, "two-step", projection=digest)
    assert answer.about["state"] == "send projection"
    whole = {"version": 1, "job": "0" * 32, "name": "j", "method": "two-step", "ask": "offer", "projection": digest}
    sent = Message({**whole, "kind": "records"}, {"projection": path.read_bytes()})
    assert refused(party.answer(sent)) == "no-statistics-sent"
    assert not list(tmp_path.glob("jobs-a/a/*/"))  # of what was not begun nothing is kept
    step = Message({**whole, "kind": "statistics"}, sent.files)
    assert party.answer(step).about["state"] == "ready"
    assert refused(party.answer(sent)) == "directions-not-own"


def test_a_projection_must_be_what_it_is_called(tmp_path: Path) -> None:
    path = a_projection(tmp_path)
    party = a_party(tmp_path, "a", 0)
    digest = projection_file.read(path)[1]
    whole = {"version": 1, "job": "0" * 32, "name": "j", "method": "one-shot", "ask": "offer", "kind": "records"}
    wrong = Message({**whole, "projection": "1" * 64}, {"projection": path.read_bytes()})
    assert refused(party.answer(wrong)) == "projection-other"
    junk = b"no projection"
    named = Message({**whole, "projection": hashlib.sha256(junk).hexdigest()}, {"projection": junk})
    assert refused(party.answer(named)) == "projection-unreadable"
    right = Message({**whole, "projection": digest}, {"projection": path.read_bytes()})
    assert party.answer(right).about["state"] == "ready"


def test_a_changed_manifest_is_not_sent(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0)
    asked(party)
    path = kept(tmp_path, "a") / MANIFEST
    path.write_text(path.read_text().replace('"a"', '"b"'))
    assert asked(party).about["state"] == "failed"


# What an owner approves


def test_nothing_is_made_before_its_owner_has_agreed(tmp_path: Path, three: dict[str, Answer]) -> None:
    party = a_party(tmp_path, "c", 2, approve=True)
    job = job_of(tmp_path, wait=20.0)
    fleet = Here({**three, "c": party.answer})
    found: dict[str, Any] = {}
    thread = threading.Thread(target=lambda: found.update(done(job, fleet)))
    thread.start()
    (item,) = until(lambda: waiting(tmp_path / "jobs-c"))
    assert item.question == "job" and item.job.name == "first"
    assert asked(party, job=item.job.id, name="first").about["state"] == "waiting"
    assert not Ledger().entries() and {ask for _, ask in fleet.asked} == {"hello"}  # nobody has made anything
    item.approve("figures")
    thread.join(300)
    assert found["ok"] and found["parties"]["c"]["state"] == "arrived" and not found["parties"]["c"]["why"]
    assert not waiting(tmp_path / "jobs-c")


def test_who_cannot_or_will_not_costs_nobody_anything(tmp_path: Path, three: dict[str, Answer]) -> None:
    """One party has too small a budget, one says no: the third has paid nothing, and neither have they."""
    poor = a_party(tmp_path, "b", 1, budget=5.0)
    asked(poor, job="7" * 32)
    before = Ledger().entries()
    careful = a_party(tmp_path, "c", 2, approve=True)

    def says_no(message: Message) -> Message:
        found = careful.answer(message)
        for item in waiting(tmp_path / "jobs-c"):
            item.refuse()
        return found

    for method in ("one-shot", "two-step"):
        path = str(a_projection(tmp_path)) if method == "two-step" else ""
        fleet = Here({"a": three["a"], "b": poor.answer, "c": says_no})
        whole = done(job_of(tmp_path, job=method, method=method, projection=path, min_parties=2), fleet)
        assert not whole["ok"] and why(whole) == "too-few-agreed"
        assert why(whole, "b") == "over-budget" and why(whole, "c") == "owner-refused"
        assert {ask for _, ask in fleet.asked} == {"hello", "ended"}
    assert Ledger().entries() == before


def test_who_says_no_between_the_steps_costs_nobody_the_second(tmp_path: Path, three: dict[str, Answer]) -> None:
    careful = a_party(tmp_path, "c", 2, approve=True)

    def changing(message: Message) -> Message:
        found = approving(careful)(message)
        if message.about.get("kind") == "statistics" and found.files:
            for item in unfinished(tmp_path / "jobs-c"):
                item.refuse()
        return found

    job = job_of(tmp_path, method="two-step", projection=str(a_projection(tmp_path)), min_parties=3)
    whole = done(job, Here({**three, "c": changing}))
    assert not whole["ok"] and why(whole) == "too-few-still-agree" and figures(whole) == {"count": 2, "needed": 3}
    assert [entry.kind for entry in Ledger().entries()] == ["sums"] * 3
    assert whole["parties"]["a"]["state"] == "arrived" and why(whole, "c") == "owner-refused"


def test_an_approval_is_of_what_was_looked_at(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0, approve=True, mu=None, tau=0.5, allow="one-shot", budget=None)
    assert asked(party).about["state"] == "waiting" and not Ledger().entries()
    (item,) = waiting(tmp_path / "jobs-a")
    item.approve("figures")
    dearer = Party(replace(party.config, tau=0.9))
    assert asked(dearer).about["state"] == "waiting" and not Ledger().entries()  # the owner agreed to something else
    (item,) = waiting(tmp_path / "jobs-a")
    assert item.question == "job" and item.config.tau == 0.9
    assert asked(party).about["state"] == "waiting"
    (item,) = waiting(tmp_path / "jobs-a")
    assert item.question == "records"  # what promises nothing waits again, to be attacked
    approve(item.folder, "records", looked_at="audit")
    assert asked(party).about["state"] == "ready"
    path = item.folder / "approved-records.json"
    path.write_text(json.dumps({"sha256": "0" * 64}))
    assert asked(party).about["state"] == "waiting"
    answer = asked(party, ask="file", file="shard-00000.safetensors")
    assert answer.about["state"] == "waiting" and not answer.files


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"budget": None}, "say what they may cost"),
        ({"mu": None, "tau": 0.5, "allow": "one-shot", "budget": None}, "releases for tau"),
        ({"allow": "fedavg,one-shot", "budget": None}, "what fedavg would give away"),
        ({"label_epsilon": 1.0}, "say what they may cost a label"),
    ],
)
def test_a_party_does_not_join_where_nothing_bounds_what_it_gives_away(
    tmp_path: Path, more: dict[str, Any], said: str
) -> None:
    settings = a_party(tmp_path, "a", 0, **more).config
    with pytest.raises(ArgumentError, match=said):
        settings.check_bounded()
    replace(settings, approve=True).check_bounded()


@pytest.mark.parametrize("more", [{"allow": "one-shot,fedavg"}, {"mu": None, "tau": 0.5, "allow": "one-shot"}])
def test_a_budget_that_could_not_hold_is_refused(tmp_path: Path, more: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="no budget holds with"):
        a_party(tmp_path, "a", 0, approve=True, **more).config.check_bounded()


def test_a_party_that_is_asked_twice_at_once_makes_it_once(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0)
    answers: list[Message] = []
    threads = [threading.Thread(target=lambda: answers.append(asked(party))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.about["state"] for answer in answers} == {"ready"} and len(Ledger().entries()) == 1


def test_parties_that_share_a_folder_do_not_send_one_anothers(tmp_path: Path) -> None:
    parties = {name: a_party(tmp_path, name, seed) for seed, name in enumerate(NAMES)}
    for party in parties.values():
        party.__init__(replace(party.config, folder=str(tmp_path / "shared")))  # type: ignore[misc]
    assert done(job_of(tmp_path), Here({name: party.answer for name, party in parties.items()}))["ok"]


def test_a_standing_budget_is_a_budget(tmp_path: Path) -> None:
    Ledger().set_budget(10.0)
    a_party(tmp_path, "a", 0, budget=None).config.check_bounded()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"party": "a"}, "the setting data is missing"),
        ({"muu": 1.0}, "no setting 'muu'"),
        ({"mu": "two"}, "the setting mu cannot be 'two'"),
        ({"mu": True}, "the setting mu cannot be True"),
        ({"mu": -1.0}, "mu must be"),
        ({"party": "../a"}, "party must be"),
        ({"folder": "here"}, "absolute"),
        ({"tau": 1.0}, "mu .* or tau"),
        ({"budget": 0.5}, "budget is 0.5"),
        ({"label-epsilon": 2.0, "label-budget": 1.0}, "label_budget is 1"),
        ({"label-budget": 1.0, "allow": "two-step"}, "label_budget is 1"),
        ({"honest": 2}, "roster .* and honest"),
        ({"allow": "rounds-secure"}, "roster .* is missing"),
        ({"roster": "/r", "roster-key": "/k", "honest": 1}, "honest must be"),
        ({"roster": "/r", "roster-key": "/k", "honest": 2, "smallest": 2}, "smallest must be"),
        ({"allow": "everything"}, "allow must name"),
    ],
)
def test_settings_are_read_strictly(config: dict[str, Any], said: str) -> None:
    base = {} if config == {"party": "a"} else {"party": "a", "data": "digits", "folder": "/tmp/x", "mu": 1.0}  # noqa: S108
    with pytest.raises(ArgumentError, match=said):
        PartyConfig.read({**base, **config})


def test_settings_survive_being_written(tmp_path: Path) -> None:
    settings = a_party(tmp_path, "a", 0, unit="patient", label_epsilon=1.0).config
    assert PartyConfig.read(settings.plain()) == settings


# Rounds


def by_rounds(tmp_path: Path, **more: Any) -> tuple[Job, dict[str, Party], dict[str, Any]]:
    parties = {
        name: a_party(tmp_path, name, seed, allow="fedavg,fedprox", approve=True, budget=None)
        for seed, name in enumerate(NAMES)
    }
    job = job_of(tmp_path, **{"method": "fedavg", "rounds": 3, **more})
    return job, parties, done(job, Here({name: approving(party) for name, party in parties.items()}))


@pytest.mark.parametrize(("method", "proximal"), [("fedavg", None), ("fedprox", 0.1)])
@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_rounds_between_machines_are_those_in_memory_bit_for_bit(
    tmp_path: Path, method: str, proximal: float | None, head: Any
) -> None:
    more = {} if proximal is None else {"proximal": proximal}
    job, parties, whole = by_rounds(tmp_path, method=method, head=head, epochs=2, **more)
    assert whole["ok"], whole
    sources = []
    for name in NAMES:
        x, y = parties[name].config.images().take(torch.arange(120))
        sources.append(RemixedEveryBatch(x.flatten(1), y.argmax(1), 3, None))
    recipe = job.config.recipe
    model = new_head(head, 6, 3, recipe)
    *_, weights = federated(model, sources, recipe, job.config.schedule, proximal=proximal)
    model.load_state_dict(dict(weights))
    wanted = model.eval().layers()
    found = read_model(Path(whole["model"])).layers
    for (weight, bias), (other, more_bias) in zip(found.layers, wanted.layers, strict=True):
        assert torch.equal(weight, other) and torch.equal(bias, more_bias)
    card = read_model(Path(whole["model"])).card
    assert card["guarantee"] == [{"code": "model-promises-nothing"}] and card["mu"] == dict.fromkeys(NAMES)


def test_rounds_are_entered_once_as_something_that_promises_nothing(tmp_path: Path) -> None:
    by_rounds(tmp_path)
    entries = Ledger().entries()
    assert {(entry.kind, entry.encoder, entry.rows) for entry in entries} == {("updates", "fedavg", 120)}
    assert [(entry.sigma, entry.cost, entry.stated, entry.label_epsilon) for entry in entries] == [(None,) * 4] * 3


@pytest.mark.parametrize("epochs", [[0, 4], [2, 2], [-1, 1], [0, 1, 2], [0], [0, "1"], [0, 1.0], "01", None])
def test_epochs_that_no_round_has_are_not_trained(tmp_path: Path, epochs: Any) -> None:
    job, parties, _ = by_rounds(tmp_path)
    said: list[Note] = []
    parties["a"].log = said.append
    recipe = asdict(job.config.recipe)
    about: dict[str, Any] = {"ask": "round", "kind": "updates", "recipe": recipe}
    weights = save(dict(weights_of(new_head("linear", 6, 3, job.config.recipe))))
    about |= {**job.identity.plain(), "extractor": job.config.extractor.plain(), "head": "linear", "number": 0}
    for asked, state in (([0, 1], "ready"), (epochs, "failed")):
        assert parties["a"].answer(Message({**about, "epochs": asked}, {"weights": weights})).about["state"] == state
    assert [event.code for event in said] == ["sending-weights", "failed-job"]


def test_no_budget_holds_with_rounds(tmp_path: Path) -> None:
    Ledger().set_budget(10.0)
    _, _, whole = by_rounds(tmp_path)
    assert not whole["ok"] and {why(whole, name) for name in NAMES} == {"over-budget"}
    assert not Ledger().entries()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda found: {**found, "dense.bias": found["dense.bias"] * torch.nan}, "weights-not-finite"),
        (lambda found: {**found, "dense.bias": found["dense.bias"] + 1e30}, "weights-too-far"),
        (lambda found: {**found, "dense.bias": found["dense.bias"] + 1e3}, "moved-too-far"),
        (lambda found: {"dense.bias": found["dense.bias"]}, "weights-of-another-model"),
        (lambda found: {**found, "dense.bias": found["dense.bias"].double()}, "weights-of-another-model"),
    ],
)
def test_weights_that_are_none_are_rejected_and_the_others_go_on(tmp_path: Path, change: Any, code: str) -> None:
    parties = {
        name: a_party(tmp_path, name, seed, allow="fedavg", approve=True, budget=None)
        for seed, name in enumerate(NAMES)
    }
    job = job_of(tmp_path, method="fedavg", rounds=2)

    def wrong(message: Message) -> Message:
        answer = approving(parties["c"])(message)
        if "weights" not in answer.files:
            return answer
        return Message(answer.about, {"weights": save(change(load(answer.files["weights"])))})

    whole = done(job, Here({"a": approving(parties["a"]), "b": approving(parties["b"]), "c": wrong}))
    assert whole["ok"] and why(whole, "c") == code
    assert whole["parties"]["a"]["rounds"] == 2 and whole["parties"]["c"]["rounds"] == 0


@pytest.mark.parametrize("lie", ["negative variance", "huge", "huge and of any sign"])
@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_one_liar_does_not_end_the_rounds_of_all(tmp_path: Path, lie: str, head: str) -> None:
    parties = {
        name: a_party(tmp_path, name, seed, allow="fedavg", approve=True, budget=None)
        for seed, name in enumerate(NAMES)
    }

    def change(name: str, found: torch.Tensor) -> torch.Tensor:
        if lie == "negative variance":
            return found.new_full(found.shape, -1e3) if name.endswith("running_var") else found
        signs = 1 if lie == "huge" else SeededStream(1).signs(*found.shape)
        return (1e3 * signs * torch.ones_like(found)).to(found.dtype)

    def lying(message: Message) -> Message:
        answer = approving(parties["c"])(message)
        if "weights" not in answer.files:
            return answer
        found = load(answer.files["weights"])
        return Message(answer.about, {"weights": save({name: change(name, found[name]) for name in found})})

    job = job_of(tmp_path, method="fedavg", rounds=3, head=head, min_parties=2)
    whole = done(job, Here({"a": approving(parties["a"]), "b": approving(parties["b"]), "c": lying}))
    assert whole["ok"], whole
    assert whole["parties"]["a"]["rounds"] == whole["parties"]["b"]["rounds"] == 3
    honest = lie == "negative variance" and head == "linear"  # which has none
    assert (whole["parties"]["c"]["state"] == "rejected") != honest


def test_who_has_many_rows_may_go_far(tmp_path: Path) -> None:
    parties = {
        name: a_party(tmp_path, name, seed, allow="fedavg", approve=True, budget=None, images=blobs(rows, seed))
        for seed, (name, rows) in enumerate({"a": 40, "b": 60, "c": 6000}.items())
    }
    job = job_of(tmp_path, method="fedavg", rounds=2, optimiser="sgd", learning_rate=1e-2, min_parties=2)
    whole = done(job, Here({name: approving(party) for name, party in parties.items()}))
    assert whole["ok"] and {status["rounds"] for status in whole["parties"].values()} == {2}, whole


def test_parties_that_move_nothing_do_not_end_rounds(tmp_path: Path) -> None:
    parties = {
        name: a_party(tmp_path, name, seed, allow="fedavg", approve=True, budget=None)
        for seed, name in enumerate(NAMES)
    }

    def echo(name: str) -> Answer:
        def answer(message: Message) -> Message:
            found = approving(parties[name])(message)
            return Message(found.about, message.files) if "weights" in found.files else found

        return answer

    job = job_of(tmp_path, method="fedavg", rounds=2)
    assert done(job, Here({"a": approving(parties["a"]), "b": echo("b"), "c": echo("c")}))["ok"]


def test_what_a_party_does_not_compute_is_not_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds promise nothing: once entered, no budget would hold."""
    monkeypatch.setattr("mixveil.federated.jobs.party_config._MEMORY", 100)
    _, _, whole = by_rounds(tmp_path)
    assert not whole["ok"] and not Ledger().entries()


def test_rounds_go_on_where_the_server_died(tmp_path: Path) -> None:
    job, parties, whole = by_rounds(tmp_path)
    straight = read_model(Path(whole["model"])).layers
    order = replace(job.config, job="killed")
    answers = {name: approving(party) for name, party in parties.items()}
    count = 0

    def dying(message: Message) -> Message:
        nonlocal count
        count += message.about["ask"] == "round"
        return answers["a"](message) if count <= 2 else never(message)

    second = begin(tmp_path / "server", replace(order, wait=2.0, min_parties=3))
    dead = done(second, Here({**answers, "a": dying}))  # two of three rounds
    assert not dead["ok"] and status_of(dead["parties"]["a"]).startswith("sent 2 of 3 messages, ")
    assert dead["parties"]["b"]["state"] == "arrived"
    third, fleet = begin(tmp_path / "server", order), Here(answers)
    whole = done(third, fleet)
    assert whole["ok"] and fleet.asked.count(("a", "round")) == 1
    assert {(own["state"], own["rounds"], own["messages"]) for own in whole["parties"].values()} == {("arrived", 3, 3)}
    assert events(third.folder, "rounds-kept")[0]["figures"] == {"rounds": 2}
    found = read_model(third.folder / "model").layers
    for one, other in zip(found.layers, straight.layers, strict=True):
        assert all(torch.equal(left, right) for left, right in zip(one, other, strict=True))
    fourth = begin(tmp_path / "server", order)
    assert done(fourth, fleet)["ok"] and fleet.asked.count(("a", "round")) == 1  # all rounds are done


def test_who_is_late_in_one_round_is_not_waited_for_in_the_next(tmp_path: Path, clock: Clock) -> None:
    parties = {
        name: a_party(tmp_path, name, seed, allow="fedavg", approve=True, budget=None)
        for seed, name in enumerate(NAMES)
    }
    answers = {name: approving(party) for name, party in parties.items()}

    def silent(message: Message) -> Message:
        return never(message) if message.about["ask"] == "round" else answers["c"](message)

    job = job_of(tmp_path, method="fedavg", rounds=4, wait=1.5, min_parties=2)
    there = Here({**answers, "c": silent})
    whole = done(job, there)
    assert whole["ok"] and clock.now < 2 * 1.5 + 1  # one round, and the model
    assert there.asked.count(("c", "round")) == 1
    assert status_of(whole["parties"]["c"]) == (
        "agreed, sent 0 of 4 messages, has the model: It did not finish within 1.5 s."
    )
    assert [source["party"] for source in read_model(Path(whole["model"])).card["trained_on"]] == ["a", "b"]


def test_rounds_need_the_owners_consent_whatever_they_call_themselves(tmp_path: Path) -> None:
    """The owner allowed one job of FedAvg, and no more."""
    job, parties, _ = by_rounds(tmp_path)
    party = Party(replace(parties["a"].config, allow="one-shot,two-step", approve=False, budget=100.0))
    weights = save(dict(new_head("linear", 6, 3, job.config.recipe).state_dict()))
    about = {
        **job.identity.plain(), "ask": "round", "kind": "updates", "extractor": job.config.extractor.plain(),
        "number": 0, "head": "linear", "epochs": [0, 1], "recipe": {"epochs": 3}, "proximal": None,
    }  # fmt: skip
    assert parties["a"].answer(Message(about, {"weights": weights})).files  # as it was allowed
    for changed_about in (about, {**about, "method": "one-shot", "kind": "records"}, {**about, "method": "two-step"}):
        answer = party.answer(Message(changed_about, {"weights": weights}))
        assert answer.about["state"] == "refused" and not answer.files
    loose = Party(replace(parties["a"].config, approve=False))  # as no party may join
    fresh = {**about, "job": "9" * 32}
    assert not loose.answer(Message(fresh, {"weights": weights})).files
    assert loose.answer(Message({**fresh, "ask": "offer", "projection": None})).about["state"] == "waiting"


def test_rounds_are_on_the_records_that_were_entered(tmp_path: Path) -> None:
    job, parties, _ = by_rounds(tmp_path)
    saved(blobs(120, 55), Path(parties["a"].config.data))
    other = Party(parties["a"].config)
    about = {**job.identity.plain(), "ask": "offer", "kind": "updates", "extractor": job.config.extractor.plain()}
    assert other.answer(Message({**about, "projection": None})).about["state"] == "failed"
    assert len(Ledger().entries()) == 3


@pytest.mark.parametrize("weights", [["a"], {"b": 1}, 7, "x" * 64])
def test_nonsense_of_one_party_does_not_end_the_rounds_of_all(tmp_path: Path, weights: Any) -> None:
    parties = {
        name: a_party(tmp_path, name, seed, allow="fedavg", approve=True, budget=None)
        for seed, name in enumerate(NAMES)
    }
    answers = {name: approving(party) for name, party in parties.items()}

    def wrong(message: Message) -> Message:
        found = answers["c"](message)
        return Message({**found.about, "weights": weights}, found.files)

    whole = done(job_of(tmp_path, method="fedavg", rounds=1), Here({**answers, "c": wrong}))
    assert whole["ok"] and whole["parties"]["c"]["state"] == "rejected"


# Orders


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ({"job": "../up"}, "job must be"),
        ({"method": "all"}, "method must be"),
        ({"parties": 0}, "parties"),
        ({"min_parties": 4}, "min_parties"),
        ({"wait": 0.0}, "wait"),
        ({"head": "linear"}, "head must be discriminant or mlp"),
        ({"method": "fedavg", "projection": "x"}, "projection must be empty"),
        ({"optimiser": "adam"}, "optimiser"),
        ({"proximal": -1.0}, "proximal"),
    ],
)
def test_an_order_that_cannot_be_is_refused(tmp_path: Path, order: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        job_of(tmp_path, **order)
    assert not (tmp_path / "server").exists()


def test_a_method_that_needs_a_projection_takes_the_shipped_one(tmp_path: Path) -> None:
    job = job_of(tmp_path, method="two-step")
    found = shipped.located("photographs")
    assert job.projection is not None and job.projection[1] == projection_file.read(found)[1]
    assert (tmp_path / "server" / "jobs" / "first" / "projection.safetensors").read_bytes() == found.read_bytes()
    with pytest.raises(MismatchError, match="another projection"):
        job_of(tmp_path, method="two-step", projection=str(a_projection(tmp_path)))
    for method in ("one-shot", "fedavg"):  # where none is needed, none is taken
        assert job_of(tmp_path, job=method, method=method).projection is None


def test_a_job_goes_on_as_what_it_is(tmp_path: Path) -> None:
    job_of(tmp_path)
    with pytest.raises(MismatchError, match="is a one-shot"):
        job_of(tmp_path, method="fedavg")
    with pytest.raises(MismatchError, match="another projection"):
        job_of(tmp_path, projection=str(a_projection(tmp_path)))


def test_an_order_is_what_the_app_knows() -> None:
    """The app's settings are a job's, and have its defaults."""
    import tomllib

    from mixveil.federated.transport.flower.environment import APP

    config = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    order = JobConfig(job="j", method="one-shot", parties=1)
    assert config == {**order.plain(), "job": "", "method": "", "parties": 0}
