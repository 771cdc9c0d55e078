"""Jobs between a server and parties, in one process: what is sent, what is kept, who is believed."""

from __future__ import annotations

import hashlib
import json
import math
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from mixveil.core.errors import ArgumentError, MismatchError, OutputError, RefusedError, TrainingError
from mixveil.core.randomness import SeededStream
from mixveil.data.opening import open_data
from mixveil.encoders.grid import stored_dtype
from mixveil.encoders.singular import Singular
from mixveil.features import projection_file, projection_fit
from mixveil.features.cache import extract
from mixveil.features.cache import load as load_networks
from mixveil.features.extractor import Extractor
from mixveil.federated.algorithms import federated, new_head
from mixveil.federated.jobs import serving
from mixveil.federated.jobs.approval import unfinished, waiting
from mixveil.federated.jobs.inbox import Inbox
from mixveil.federated.jobs.messages import MANIFEST, Parcel
from mixveil.federated.jobs.orders import Job, Order, begin
from mixveil.federated.jobs.party import FAILED, Party
from mixveil.federated.jobs.settings import Settings
from mixveil.federated.jobs.storage import OVER, approve
from mixveil.learn.batches import RemixedEveryBatch
from mixveil.learn.model import read_model
from mixveil.learn.training import opened, train, train_mlp
from mixveil.releases import sums as statistics
from mixveil.releases.ledger import Ledger
from mixveil.releases.records import read_release, write_release
from mixveil.releases.sums import read_statistics
from tests.federated.here import Answer, Here, a_party, a_projection, approving, done, job_of, never, saved
from tests.made import Tiny, blobs, features_of, images, tiny_weights

NAMES = ("a", "b", "c")


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
        sums = read_statistics(job.folder / "statistics" / name)
        records = read_release(job.folder / "records" / name)
        assert sums.mu == pytest.approx(4 / math.sqrt(2))
        assert records.guarantees[0].nominal == pytest.approx(4 / math.sqrt(2))
        assert records.assets["projection"] == projection_file.read(job.directions_path)[1]
    assert read_model(Path(whole["model"])).card["mu"]["a"] == pytest.approx(4.0)
    assert len(Ledger().entries()) == 6


def test_labels_of_both_steps_cost_what_was_allowed(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0, label_epsilon=6.0)
    job = job_of(tmp_path, method="two-step", parties=1, projection=str(a_projection(tmp_path)))
    assert done(job, Here({"a": party.answer}))["ok"]
    assert read_statistics(job.folder / "statistics" / "a").label_epsilon == 3.0
    assert read_release(job.folder / "records" / "a").label_epsilon == 3.0


def test_a_party_makes_it_once_however_often_it_is_asked(tmp_path: Path, three: dict[str, Answer]) -> None:
    """The server forgets everything; the party sends the same bytes again."""
    job = job_of(tmp_path)
    assert done(job, Here(three))["ok"]
    first = {name: files_of(kept(tmp_path, name)) for name in NAMES}
    task = job.task.plain()
    for name in NAMES:
        answer = three[name](Parcel({**task, "ask": "offer", "kind": "records", "projection": None}))
        assert answer.files[MANIFEST] == first[name][MANIFEST]
        sent = three[name](Parcel({**task, "ask": "file", "kind": "records", "file": "shard-00000.safetensors"}))
        assert sent.files["shard-00000.safetensors"] == first[name]["shard-00000.safetensors"]
    assert len(Ledger().entries()) == 3


def test_a_file_that_does_not_go_with_its_manifest_is_asked_for(
    tmp_path: Path, three: dict[str, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mixveil.federated.jobs.storage.INLINE", 100)
    monkeypatch.setattr("mixveil.releases.records.SHARD_BYTES", 1000)
    job, fleet = job_of(tmp_path), Here(three)
    assert done(job, fleet)["ok"]
    shards = len(list((job.folder / "records" / "a").glob("shard-*")))
    assert shards > 2 and fleet.asked.count(("a", "file")) == shards
    assert files_of(job.folder / "records" / "a") == files_of(kept(tmp_path, "a"))


def test_a_server_that_died_asks_for_the_rest_alone(
    tmp_path: Path, three: dict[str, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mixveil.federated.jobs.storage.INLINE", 100)
    monkeypatch.setattr("mixveil.releases.records.SHARD_BYTES", 1000)
    job = job_of(tmp_path)
    inbox, task = Inbox(job.folder), job.task.plain()
    answer = three["a"](Parcel({**task, "ask": "offer", "kind": "records", "projection": None}))
    needed = inbox.offer("a", "records", answer.files[MANIFEST], None)
    for name in list(needed)[:2]:
        sent = three["a"](Parcel({**task, "ask": "file", "kind": "records", "file": name}))
        inbox.take("a", "records", name, sent.files[name])
    fleet = Here(three)
    assert done(job_of(tmp_path), fleet)["ok"]  # another process, in the same folder
    assert fleet.asked.count(("a", "file")) == len(needed) - 2
    again = Here({"b": three["b"], "c": three["c"], "a": never})
    whole = done(job_of(tmp_path, wait=1.0), again)
    assert whole["ok"] and ("a", "file") not in again.asked and ("b", "offer") not in again.asked
    assert Path(whole["model"]).name == "model-2"
    assert "came before, and are still here" in (job.folder / "events.log").read_text()


# Who is not there


def test_it_goes_on_without_those_that_say_nothing_and_says_so(tmp_path: Path, three: dict[str, Answer]) -> None:
    job = job_of(tmp_path, wait=1.0, least=2, parties=4)
    begun = time.monotonic()
    whole = done(job, Here({**three, "c": never}))
    assert whole["ok"] and time.monotonic() - begun < 15
    assert whole["parties"]["c"] == {
        "state": "expected", "why": "it did not finish within 1 s", "bytes": 0, "returned": False, "rounds": 0
    }  # fmt: skip
    assert "1 s are over: going on without c, 1 that never came" in (job.folder / "events.log").read_text()
    assert sorted(read_model(Path(whole["model"])).card["mu"]) == ["a", "b"]


def after_hello(answer: Answer) -> Answer:
    """A party that is there, and says nothing more."""
    return lambda parcel: answer(parcel) if parcel.about["ask"] == "hello" else never(parcel)


def test_too_few_are_no_job(tmp_path: Path, three: dict[str, Answer]) -> None:
    mute = {name: after_hello(three[name]) for name in ("b", "c")}
    whole = done(job_of(tmp_path, wait=1.0, least=2), Here({"a": three["a"], **mute}))
    assert not whole["ok"] and whole["reason"] == "1 part(ies) sent records, and 2 are needed at least"
    assert whole["model"] is None


def test_nobody_makes_anything_for_a_job_that_cannot_be(tmp_path: Path, three: dict[str, Answer]) -> None:
    refusing = a_party(tmp_path, "c", 2, allow="two-step")
    fleet = Here({"a": three["a"], "b": never, "c": refusing.answer})
    whole = done(job_of(tmp_path, wait=1.0, least=2), fleet)
    assert (
        not whole["ok"] and whole["reason"] == "1 part(ies) are there and willing, and 2 are needed: nothing was made"
    )
    assert not Ledger().entries() and {ask for _, ask in fleet.asked} == {"hello", "ended"}


def test_a_key_that_is_known_by_another_name_costs_nothing(tmp_path: Path, three: dict[str, Answer]) -> None:
    said: list[str] = []
    party = a_party(tmp_path, "d", 4)
    party.say = said.append
    whole = done(job_of(tmp_path), Here({"a": three["a"], "b": three["b"], "c": party.answer}))
    assert whole["parties"]["c"]["state"] == "refused" and len(Ledger().entries()) == 2
    assert said == ["first: refused: its key is known as 'c', and it calls itself another"]


def test_those_that_did_not_come_are_named(tmp_path: Path, three: dict[str, Answer]) -> None:
    order = job_of(tmp_path, wait=1.0, least=2, parties=3).order
    job = begin(tmp_path / "server", order, NAMES)
    whole = done(job, Here({"a": three["a"], "b": three["b"]}))
    assert whole["ok"] and whole["parties"]["c"]["state"] == "expected"
    assert "1 s are over: going on without c" in (job.folder / "events.log").read_text()


def test_parties_hear_that_it_ended(tmp_path: Path, three: dict[str, Answer]) -> None:
    said: list[str] = []
    party = a_party(tmp_path, "d", 4)
    party.say = said.append
    done(job_of(tmp_path, wait=1.0, least=2, parties=2), Here({"d": party.answer}))
    why = "1 part(ies) are there and willing, and 2 are needed: nothing was made"
    assert said == [f'first ended without a model: "{why}"']


def test_of_a_job_that_it_never_heard_of_a_party_says_nothing(tmp_path: Path) -> None:
    """A server would write its log, as often as it likes."""
    said: list[str] = []
    party = a_party(tmp_path, "d", 4)
    party.say = said.append
    blanks = f"{' ' * 200}12:30:00 your key has expired"
    for number in range(5):
        asked(party, job=f"{number:032x}", ask="ended", reason=blanks)
    assert not said
    asked(party, job="7" * 32, ask="hello")
    for _ in range(5):
        asked(party, job="7" * 32, ask="ended", reason=blanks)
    assert said == ['j ended without a model: " 12:30:00 your key has expired"']


def test_what_comes_too_late_is_not_trained_on(tmp_path: Path, three: dict[str, Answer]) -> None:
    gate = threading.Event()

    def slow(parcel: Parcel) -> Parcel:
        answer = three["c"](parcel)
        gate.wait(30)
        return answer

    job = job_of(tmp_path, wait=1.0, least=2)
    whole = done(job, Here({"a": three["a"], "b": three["b"], "c": slow}))
    gate.set()
    time.sleep(0.5)
    assert whole["ok"] and not (job.folder / "records" / "c").exists()


# Who is not believed


def changed(answer: Answer, change: Any) -> Answer:
    """A party whose files are changed on the way, after it made them honestly; its manifest fits them."""

    def lying(parcel: Parcel) -> Parcel:
        found = answer(parcel)
        if MANIFEST not in found.files:
            return found
        whole, files = json.loads(found.files[MANIFEST]), dict(found.files)
        change(whole, files)
        files[MANIFEST] = json.dumps(whole).encode()
        return Parcel(found.about, files)

    return lying


def tensors(whole: dict[str, Any], files: dict[str, bytes], change: Any) -> None:
    """Change the first shard's tensors, and the manifest with them."""
    name = whole["shards"][0]["file"]
    found = load(files[name])
    files[name] = save(change(found))
    whole["shards"][0] |= {"bytes": len(files[name]), "sha256": hashlib.sha256(files[name]).hexdigest()}


def nan_labels(whole: dict[str, Any], files: dict[str, bytes]) -> None:
    def change(found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        found["y"][3, 1] = torch.nan
        return found

    tensors(whole, files, change)


def off_the_grid(whole: dict[str, Any], files: dict[str, bytes]) -> None:
    def change(found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        found["x"].view(-1)[5] = torch.iinfo(found["x"].dtype).max
        return found

    tensors(whole, files, change)


def floats(whole: dict[str, Any], files: dict[str, bytes]) -> None:
    tensors(whole, files, lambda found: {"x": found["x"].float() + 0.5, "y": found["y"]})


def fewer(whole: dict[str, Any], files: dict[str, bytes]) -> None:
    tensors(whole, files, lambda found: {"x": found["x"][:-1].clone(), "y": found["y"][:-1].clone()})


def lying_mu(whole: dict[str, Any], files: dict[str, bytes]) -> None:
    whole["guarantees"][0]["nominal"] = whole["guarantees"][0]["realised"] = 0.1


def seeded(whole: dict[str, Any], files: dict[str, bytes]) -> None:
    whole |= {"reproducible": True, "certified": False, "guarantees": []}


def other_name(whole: dict[str, Any], files: dict[str, bytes]) -> None:
    whole["party"] = "a"


def too_large(whole: dict[str, Any], files: dict[str, bytes]) -> None:
    files[whole["shards"][0]["file"]] *= 10


def one_bit(whole: dict[str, Any], files: dict[str, bytes]) -> None:
    name = whole["shards"][0]["file"]
    files[name] = files[name][:-1] + bytes([files[name][-1] ^ 1])


def not_json(whole: dict[str, Any], files: dict[str, bytes]) -> None:
    whole.clear()


def unknown_file(whole: dict[str, Any], files: dict[str, bytes]) -> None:
    files["../../up.safetensors"] = b"x"


def without_rows(whole: dict[str, Any], files: dict[str, bytes]) -> None:
    whole["rows"] = 10 * whole["rows"]


LIES = {
    nan_labels: "a label is not finite (NotFiniteError)",
    off_the_grid: "(GridError)",
    floats: "(DtypeError)",
    fewer: "(ShapeError)",
    lying_mu: "(FalseClaimError)",
    seeded: "(FalseClaimError)",
    other_name: "it is signed as 'a', and came from c (RefusedError)",
    too_large: "(ShardSizeError)",
    one_bit: "(HashError)",
    not_json: "(ManifestError)",
    unknown_file: "its manifest names no file '../../up.safetensors' (RefusedError)",
    without_rows: "(ManifestError)",
}


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_a_lie_is_rejected_with_a_reason_and_costs_the_others_nothing(
    tmp_path: Path, three: dict[str, Answer], lie: Any
) -> None:
    job = job_of(tmp_path)
    whole = done(job, Here({**three, "c": changed(three["c"], lie)}))
    assert whole["ok"] and sorted(read_model(Path(whole["model"])).card["mu"]) == ["a", "b"]
    fate = whole["parties"]["c"]
    assert fate["state"] == "rejected" and LIES[lie] in fate["why"], fate
    assert str(tmp_path) not in fate["why"] and not fate["returned"]
    assert not (job.folder / "records" / "c").exists() and not any((job.folder / "incoming").iterdir())
    assert not (tmp_path / "up.safetensors").exists()


def test_more_bytes_than_the_server_takes_are_not_asked_for(tmp_path: Path, three: dict[str, Answer]) -> None:
    def large(whole: dict[str, Any], files: dict[str, bytes]) -> None:
        whole["shards"][0]["bytes"] = 2 << 20
        del files[whole["shards"][0]["file"]]

    fleet = Here({**three, "c": changed(three["c"], large)})
    whole = done(job_of(tmp_path, limit=1), fleet)
    assert whole["parties"]["c"]["why"] == "it has 2,097,152 bytes, and this server takes 1,048,576 (RefusedError)"
    assert ("c", "file") not in fleet.asked


def test_a_seeded_release_is_not_taken(tmp_path: Path, three: dict[str, Answer]) -> None:
    party = a_party(tmp_path, "c", 2)

    def seeded_party(parcel: Parcel) -> Parcel:
        if parcel.about["ask"] == "hello":
            return party.answer(parcel)
        folder = tmp_path / "seeded"
        if not folder.exists():
            honest = read_release(kept(tmp_path, "c")) if list(tmp_path.glob("jobs-c/*/*/records")) else None
            party.answer(parcel)
            honest = honest or read_release(kept(tmp_path, "c"))
            data = open_data(party.settings.data)
            write_release(folder, data, honest.encoder, honest.guarantees, party="c", stream=SeededStream(1))
        return Parcel({"state": "ready", "party": "c", "reason": ""}, files_of(folder))

    whole = done(job_of(tmp_path), Here({**three, "c": seeded_party}))
    assert whole["parties"]["c"]["why"].startswith("its noise came from a seeded stream")


def test_a_release_of_an_earlier_job_is_not_taken_again(tmp_path: Path, three: dict[str, Answer]) -> None:
    assert done(job_of(tmp_path), Here(three))["ok"]
    old = files_of(kept(tmp_path, "c"))
    fleet = Here({**three, "c": lambda parcel: Parcel({"state": "ready", "party": "c", "reason": ""}, old)})
    whole = done(job_of(tmp_path, job="second"), fleet)
    assert whole["ok"] and whole["parties"]["c"]["state"] == "rejected"
    assert "was taken before, in job first from c: nothing is taken twice" in whole["parties"]["c"]["why"]


def test_the_same_rows_under_another_id_are_not_taken_again(tmp_path: Path, three: dict[str, Answer]) -> None:
    assert done(job_of(tmp_path), Here(three))["ok"]
    old = files_of(kept(tmp_path, "c"))
    old[MANIFEST] = json.dumps({**json.loads(old[MANIFEST]), "id": "7" * 32}).encode()
    fleet = Here({**three, "c": lambda parcel: Parcel({"state": "ready", "party": "c", "reason": ""}, old)})
    whole = done(job_of(tmp_path, job="second"), fleet)
    assert "was taken before, in job first from c" in whole["parties"]["c"]["why"]


def test_one_partys_wrong_statistics_do_not_end_the_job_of_all(tmp_path: Path, three: dict[str, Answer]) -> None:
    def narrower(parcel: Parcel) -> Parcel:
        found = three["c"](parcel)
        if "sums.safetensors" not in found.files:
            return found
        data = save({"sums": load(found.files["sums.safetensors"])["sums"][:, :-1].contiguous()})
        whole = json.loads(found.files[MANIFEST])
        whole |= {"dimension": whole["dimension"] - 1}
        whole["file"] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        return Parcel(found.about, {MANIFEST: json.dumps(whole).encode(), "sums.safetensors": data})

    job = job_of(tmp_path, method="two-step", projection=str(a_projection(tmp_path)))
    whole = done(job, Here({**three, "c": narrower}))
    assert whole["ok"] and "its projection has" in whole["parties"]["c"]["why"]
    assert sorted(read_model(Path(whole["model"])).card["mu"]) == ["a", "b"]


def figures(**change: float) -> Any:
    """A party whose manifest states other figures, and claims less than they would give; all else fits them."""

    def lie(whole: dict[str, Any], files: dict[str, bytes]) -> None:
        for guarantee in whole["guarantees"]:
            guarantee |= {"nominal": 1e90, "realised": 1e90}
        if "counts" in whole:
            whole |= change
            files["sums.safetensors"] = save({"sums": torch.zeros_like(load(files["sums.safetensors"])["sums"])})
            digest = hashlib.sha256(files["sums.safetensors"]).hexdigest()
            whole["file"] = {"bytes": len(files["sums.safetensors"]), "sha256": digest}
            return
        whole["encoder"]["settings"] |= change
        encoder = Singular(**whole["encoder"]["settings"])
        bound = encoder.index_bound or 0
        whole["grid"] = {"step": encoder.step, "bound": bound}
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
    whole = done(job, Here({**three, "c": changed(three["c"], figures(**change))}))
    assert whole["ok"] and whole["parties"]["c"]["state"] == "rejected", whole
    assert sorted(read_model(Path(whole["model"])).card["mu"]) == ["a", "b"]


@pytest.mark.parametrize("change", [{"clip": 0.5}, {"sigma": 1e200}, {"sigma": 1e-60}])
def test_statistics_that_no_data_have_do_not_end_the_job_of_all(
    tmp_path: Path, three: dict[str, Answer], change: dict[str, float]
) -> None:
    """A smaller clip norm is a claim that can be true of a release, and not of this job."""

    def lie(whole: dict[str, Any], files: dict[str, bytes]) -> None:
        if "counts" in whole:
            whole |= {name: (value * whole["clip"] if name == "clip" else value) for name, value in change.items()}
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
        assert {name for name in NAMES if "nothing can be learnt" in whole["parties"][name]["why"]} == {"a", "b"}
        assert sorted(read_model(Path(whole["model"])).card["mu"]) == ["c"]


@pytest.mark.parametrize("kind", ["statistics", "records"])
def test_who_makes_training_impossible_with_others_is_set_aside(
    tmp_path: Path, three: dict[str, Answer], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone its figures are fine."""

    def wrong(names: set[str]) -> bool:
        return "b" in names and len(names) > 1

    if kind == "statistics":
        monkeypatch.setattr(serving, "directions", failing(statistics.directions, lambda parts: parts, wrong))
    else:
        monkeypatch.setattr("mixveil.learn.training.train", failing(train, lambda job: job.releases, wrong))
    path = str(a_projection(tmp_path))
    whole = done(job_of(tmp_path, method="two-step", projection=path), Here(three))
    assert whole["ok"] and "failed to converge" in whole["parties"]["b"]["why"]
    assert sorted(source["party"] for source in read_model(Path(whole["model"])).card["trained_on"]) == ["a", "c"]
    short = done(job_of(tmp_path, job="all", method="two-step", projection=path, least=3), Here(three))
    assert not short["ok"] and "nothing can be learnt from what arrived" in short["reason"]


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
                assert "No space left" in done(job, Here(three))["reason"]
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
    order = {"head": "mlp", "epochs": 2, "least": 2, "wait": 3.0}
    with monkeypatch.context() as patch:
        patch.setattr(
            "mixveil.federated.jobs.serving.checkpoint.discard", lambda path: None
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
    wrong = failing(statistics.directions, lambda parts: parts, lambda names: names & {"b", "c"})
    monkeypatch.setattr(serving, "directions", wrong)
    job = job_of(tmp_path, method="two-step", projection=str(a_projection(tmp_path)), parties=4)
    whole = done(job, Here(parties))
    assert whole["ok"] and whole["parties"]["a"]["state"] == "arrived", whole
    assert {name for name in parties if whole["parties"][name]["state"] == "rejected"} == {"b", "c"}


def test_records_without_statistics_do_not_end_the_job_of_all(tmp_path: Path, three: dict[str, Answer]) -> None:
    def second_step_only(parcel: Parcel) -> Parcel:
        if parcel.about.get("kind") == "statistics":
            return never(parcel)
        return three["c"](parcel)

    job = job_of(tmp_path, method="two-step", projection=str(a_projection(tmp_path)), wait=2.0, least=2)
    whole = done(job, Here({**three, "c": second_step_only}))
    assert whole["parties"]["c"]["why"] == "it sent no statistics for this job"
    assert whole["ok"] and sorted(read_model(Path(whole["model"])).card["mu"]) == ["a", "b"]


def test_no_file_is_larger_than_a_release_makes_them(tmp_path: Path, three: dict[str, Answer]) -> None:
    def large(whole: dict[str, Any], files: dict[str, bytes]) -> None:
        whole["shards"][0]["bytes"] = 1 << 31

    fleet = Here({**three, "c": changed(three["c"], large)})
    whole = done(job_of(tmp_path), fleet)
    assert "and a file of a release has at most" in whole["parties"]["c"]["why"] and ("c", "file") not in fleet.asked


def test_no_party_writes_the_coordinators_log(tmp_path: Path, three: dict[str, Answer]) -> None:
    evil = "x\n05:00:00 a: rejected: it lied\x1b[2J"

    def forging(parcel: Parcel) -> Parcel:
        found = three["c"](parcel)
        return Parcel(found.about, {**found.files, evil: b"x"})

    job = job_of(tmp_path)
    whole = done(job, Here({**three, "c": forging}))
    text = (job.folder / "events.log").read_text()
    assert whole["parties"]["c"]["state"] == "rejected" and "\x1b" not in text
    assert not any(line.startswith("05:00:00") for line in text.splitlines())


def test_what_came_stays_when_the_time_is_over(
    tmp_path: Path, three: dict[str, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mixveil.federated.jobs.storage.INLINE", 100)
    monkeypatch.setattr("mixveil.releases.records.SHARD_BYTES", 1000)
    count = 0

    def stalling(parcel: Parcel) -> Parcel:
        nonlocal count
        count += parcel.about["ask"] == "file"
        if count > 2:
            time.sleep(2.5)
            raise RefusedError("the job is over")  # as the network says then
        return three["c"](parcel)

    job = job_of(tmp_path, wait=1.5, least=2)
    assert done(job, Here({**three, "c": stalling}))["ok"]
    time.sleep(1.5)
    assert len(list((job.folder / "incoming" / "records-c").glob("shard-*"))) == 2


def test_another_partys_release_is_not_taken(tmp_path: Path, three: dict[str, Answer]) -> None:
    whole = done(job_of(tmp_path), Here({**three, "c": three["a"]}))
    assert whole["parties"]["c"]["why"] == "its key is known as 'c', and it calls itself another"
    assert whole["parties"]["a"]["state"] == "arrived"
    lying = Here({**three, "c": lambda parcel: three["a"](Parcel({**parcel.about, "you": "a"}, parcel.files))})
    whole = done(job_of(tmp_path, job="second"), lying)
    assert whole["parties"]["c"]["why"] == "it says it is 'a', and its key is c's (RefusedError)"


def test_strangers_are_turned_away_and_said(tmp_path: Path, three: dict[str, Answer]) -> None:
    whole = done(job_of(tmp_path), Here(three, {"node 7": "it says it is a, and so does another"}))
    assert whole["ok"] and whole["turned_away"] == {"node 7": "it says it is a, and so does another"}


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({}, "it says it is None"),
        ({"state": "ready", "party": "c"}, "manifest.json was asked for, and did not come"),
        ({"state": 7, "party": "c"}, "its answer is 7"),
        ({"state": "refused", "party": "c", "reason": "no\x1b[2J"}, "it does not say why"),
    ],
)
def test_nonsense_is_no_answer(tmp_path: Path, three: dict[str, Answer], about: dict[str, Any], said: str) -> None:
    whole = done(job_of(tmp_path), Here({**three, "c": lambda parcel: Parcel(about)}))
    assert whole["ok"] and said in whole["parties"]["c"]["why"]


def test_a_minority_with_other_classes_or_shapes_is_left_out(tmp_path: Path, three: dict[str, Answer]) -> None:
    other = a_party(tmp_path, "d", 5, images=blobs(60, 5, classes=2))
    whole = done(job_of(tmp_path, parties=4), Here({**three, "d": other.answer}))
    assert whole["ok"] and whole["parties"]["d"]["state"] == "rejected"
    assert "other classes, shapes or features than most" in whole["parties"]["d"]["why"]


def test_no_majority_is_no_job(tmp_path: Path, three: dict[str, Answer]) -> None:
    other = a_party(tmp_path, "d", 5, images=blobs(60, 5, classes=2))
    job = job_of(tmp_path, parties=2, least=1)
    whole = done(job, Here({"a": three["a"], "d": other.answer}))
    assert not whole["ok"] and "a and d do not have the same classes" in whole["reason"]


def test_too_few_that_agree_are_no_job_and_may_send_anew(tmp_path: Path, three: dict[str, Answer]) -> None:
    other = a_party(tmp_path, "d", 5, images=blobs(60, 5, classes=2))
    job = job_of(tmp_path, parties=4, least=4)
    whole = done(job, Here({**three, "d": other.answer}))
    assert not whole["ok"] and whole["reason"] == "3 part(ies) sent records that agree, and 4 are needed at least"


def test_more_nodes_than_parties_are_all_waited_for(tmp_path: Path, three: dict[str, Answer]) -> None:
    """A fast refusal does not push out a slow and honest party."""
    refusing = a_party(tmp_path, "d", 5, allow="two-step")

    def slow(parcel: Parcel) -> Parcel:
        time.sleep(1)
        return three["a"](parcel)

    job = job_of(tmp_path, parties=3)
    whole = done(job, Here({**three, "a": slow, "d": refusing.answer}))
    assert whole["ok"] and whole["parties"]["a"]["state"] == "arrived"
    assert "are over" not in (job.folder / "events.log").read_text()


def test_records_through_another_projection_are_not_taken(tmp_path: Path, three: dict[str, Answer]) -> None:
    inbox = Inbox(job_of(tmp_path).folder)
    job = job_of(tmp_path, job="other")
    answer = three["a"](Parcel({**job.task.plain(), "ask": "offer", "kind": "records", "projection": None}))
    known = projection_file.read(a_projection(tmp_path))
    with pytest.raises(RefusedError, match="went through no projection, and this job's records go through the"):
        inbox.offer("a", "records", answer.files[MANIFEST], known)


# What a party decides


def asked(party: Any, method: str = "one-shot", **about: Any) -> Parcel:
    whole = {"version": 1, "job": "0" * 32, "name": "j", "method": method, "ask": "offer", "kind": "records"}
    found: Parcel = party.answer(Parcel({**whole, "projection": None, **about}))
    return found


def test_a_party_takes_part_in_nothing_that_it_did_not_allow(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0)
    for method in ("fedavg", "fedprox"):
        assert asked(party, method, kind="updates").about["reason"] == f"a does not take part in {method}"
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
    said: list[str] = []
    party = a_party(tmp_path, "a", 0)
    party.say = said.append
    Path(party.settings.data).write_bytes(b"patient 4711 is not an archive")
    answer = asked(party)
    assert answer.about == {"state": "failed", "party": "a", "reason": FAILED} and not answer.files
    assert any(str(tmp_path) in text for text in said)


def test_the_budget_ends_it(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0, budget=5.0)
    assert asked(party).about["state"] == "ready"
    for ask in ("hello", "offer"):
        answer = asked(party, job="1" * 32, ask=ask).about
        assert answer == {"state": "refused", "party": "a", "reason": "its budget does not allow it"}
    assert asked(party).about["state"] == "ready"  # what is there may still be sent
    assert len(Ledger().entries()) == 1 and len(list(tmp_path.glob("jobs-a/a/*/"))) == 1


def test_two_steps_are_not_begun_where_the_second_could_not_be_paid(tmp_path: Path) -> None:
    path = a_projection(tmp_path)
    party = a_party(tmp_path, "a", 0, budget=5.0)
    assert asked(party).about["state"] == "ready"  # 4 are spent: one step of 2.83 would fit, both do not
    said: list[str] = []
    party.say = said.append
    job = job_of(tmp_path, method="two-step", parties=1, projection=str(path))
    whole = done(job, Here({"a": party.answer}))
    assert whole["parties"]["a"]["state"] == "refused" and len(Ledger().entries()) == 1
    assert said[0] == "first would be beyond the budget of 5: 4 is spent in all, with it μ = 5.657"


def test_a_second_step_is_held_back_from_other_jobs(tmp_path: Path) -> None:
    """Two jobs at once: the statistics of both fit, the records of both do not."""
    path = a_projection(tmp_path)
    sent, digest = {"projection": path.read_bytes()}, projection_file.read(path)[1]
    party = a_party(tmp_path, "a", 0, budget=5.0)
    first = {"version": 1, "job": "1" * 32, "name": "one", "method": "two-step", "ask": "offer", "kind": "statistics"}
    second = {**first, "job": "2" * 32, "name": "two"}
    assert party.answer(Parcel({**first, "projection": digest}, sent)).about["state"] == "ready"
    assert party.answer(Parcel({**second, "projection": digest}, sent)).about["reason"] == OVER
    assert party.answer(Parcel({**second, "ask": "hello"})).about["reason"] == OVER
    assert asked(party, job="3" * 32, ask="hello").about["reason"] == OVER
    assert len(Ledger().entries()) == 1
    party.answer(Parcel({**first, "ask": "ended", "reason": "too few"}))
    assert asked(party, job="3" * 32, ask="hello").about["state"] == "ready"


def test_two_steps_are_done_with_the_settings_that_they_were_begun_with(tmp_path: Path) -> None:
    path = a_projection(tmp_path)
    job = job_of(tmp_path, method="two-step", parties=1, projection=str(path))
    party = a_party(tmp_path, "a", 0)
    dearer = Party(replace(party.settings, mu=8.0))

    def answer(parcel: Parcel) -> Parcel:
        return (dearer if parcel.about.get("kind") == "records" else party).answer(parcel)

    whole = done(job, Here({"a": answer}))
    assert whole["parties"]["a"]["why"] == "its settings are others than those that this job was begun with"
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
            "mixveil.releases.records.traces.save_trace", lambda *_: (_ for _ in ()).throw(OutputError("full disk"))
        )
        assert asked(party).about["state"] == "failed" and len(Ledger().entries()) == 1
    for other in ({"mu": 8.0}, {"label_epsilon": 1.0}, {"data": str(saved(blobs(120, 9), tmp_path / "o.npz"))}):
        answer = asked(Party(replace(party.settings, **other)))
        assert answer.about["reason"] == "its settings are others than those that this job was begun with", other
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
    parcel = Parcel({**about, "projection": digest}, {"projection": path.read_bytes()})
    assert "and the projection is for 3" in party.answer(parcel).about["reason"] and sum(work) == 1
    monkeypatch.setattr("mixveil.federated.jobs.settings._MEMORY", 100)
    digest = projection_file.write(tmp_path / "right.safetensors", found)
    parcel = Parcel({**about, "projection": digest}, {"projection": (tmp_path / "right.safetensors").read_bytes()})
    assert "more than it computes for a server" in party.answer(parcel).about["reason"] and sum(work) == 2
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
    other = Party(replace(party.settings, server="B"))
    for ask in ("hello", "offer", "file", "model", "ended"):
        answer = asked(other, ask=ask, file="shard-00000.safetensors")
        assert answer.about["reason"] == "this id is a job of another server's" and not answer.files
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


def test_half_a_job_costs_a_label_half(tmp_path: Path) -> None:
    """Two-step jobs that are never finished: the second step's half is held back, and nothing is beyond the budget."""
    path = a_projection(tmp_path)
    sent, digest = {"projection": path.read_bytes()}, projection_file.read(path)[1]
    party = a_party(tmp_path, "a", 0, mu=0.1, label_epsilon=1.0, label_budget=2.5)
    about = {"version": 1, "name": "j", "method": "two-step", "ask": "offer", "kind": "statistics"}
    states = [
        party.answer(Parcel({**about, "job": f"{number:032x}", "projection": digest}, sent)).about["state"]
        for number in range(4)
    ]
    assert states == ["ready", "ready", "refused", "refused"] and Ledger().total().label_epsilon == 1.0


@pytest.mark.parametrize("each", [1, 2, 3, 4])
def test_two_steps_of_units_cost_what_they_should(tmp_path: Path, each: int) -> None:
    images = blobs(120, 0)
    x, y = images.take(torch.arange(120))
    patients = np.array([f"patient {row // each}" for row in range(120)])
    path = tmp_path / "units.npz"
    np.savez(path, x=x.numpy(), y=y.argmax(1).numpy(), classes=np.array(images.classes), patient=patients)
    settings = Settings(party="a", data=str(path), folder=str(tmp_path / "u"), mu=2.0, budget=2.0, unit="patient")
    job = job_of(tmp_path, method="two-step", parties=1, projection=str(a_projection(tmp_path)))
    whole = done(job, Here({"a": Party(settings).answer}))
    assert whole["ok"], whole
    assert Ledger().spent(Ledger().owners(settings.images())).most == pytest.approx(2.0)


def test_a_server_does_not_fill_a_partys_disk(tmp_path: Path, three: dict[str, Answer]) -> None:
    job = job_of(tmp_path)
    whole = done(job, Here(three))
    model = files_of(Path(whole["model"]))
    party = a_party(tmp_path, "d", 4)
    about = {**job.task.plain(), "ask": "model"}
    assert party.answer(Parcel(about, model)).about["reason"] == "it took no part in this job"
    for number in range(30):
        card = {**json.loads(model["card.json"]), "created": f"at {number}"}
        three["a"](Parcel(about, {**model, "card.json": json.dumps(card).encode()}))
    assert len(list((tmp_path / "jobs-a" / "a" / f"first-{job.task.id}").glob("model*"))) == 20


def test_of_what_cannot_be_made_nothing_is_kept(tmp_path: Path) -> None:
    path = a_projection(tmp_path)
    digest, files = projection_file.read(path)[1], {"projection": path.read_bytes()}
    party = a_party(tmp_path, "a", 0, budget=5.0)
    asked(party)
    for number in range(1, 5):  # beyond the budget
        asked(party, job=f"{number:032x}", projection=digest)
        party.answer(Parcel({"version": 1, "job": f"{number:032x}", "name": "j", "method": "one-shot", "ask": "offer",
                             "kind": "records", "projection": digest}, files))  # fmt: skip
    broken = a_party(tmp_path, "b", 1)
    Path(broken.settings.data).write_bytes(b"no archive")
    for number in range(5):  # nothing can be made of its data
        broken.answer(Parcel({"version": 1, "job": f"{number:032x}", "name": "j", "method": "one-shot", "ask": "offer",
                              "kind": "records", "projection": digest}, files))  # fmt: skip
    assert len(list(tmp_path.glob("jobs-a/a/*/"))) == 1 and not list(tmp_path.glob("jobs-b/b/*/"))


def test_a_projection_has_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mixveil.federated.jobs.storage.PROJECTION_LIMIT", 1000)
    monkeypatch.setattr("mixveil.federated.jobs.storage.MODELS_LIMIT", 1000)
    path = a_projection(tmp_path)
    party = a_party(tmp_path, "a", 0)
    about = {"version": 1, "job": "0" * 32, "name": "j", "method": "one-shot", "ask": "offer", "kind": "records"}
    answer = party.answer(
        Parcel({**about, "projection": projection_file.read(path)[1]}, {"projection": path.read_bytes()})
    )
    assert "is more than the 1,000 that it takes" in answer.about["reason"]
    asked(party)
    large = Parcel({**about, "ask": "model"}, {"model.safetensors": bytes(2000), "card.json": b"{}"})
    assert "models of one job may have 1,000 bytes" in party.answer(large).about["reason"]


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
    careful = Party(replace(party.settings, approve=True))
    assert asked(careful).about["state"] == "waiting"
    (item,) = waiting(tmp_path / "jobs-a")
    item.approve("figures")
    assert asked(careful).about["state"] == "ready"


def test_who_said_no_is_not_asked_for_ever(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0, approve=True)
    assert asked(party).about["state"] == "waiting"
    (item,) = waiting(tmp_path / "jobs-a")
    item.refuse()
    assert asked(party).about["reason"] == "its owner said no" and not waiting(tmp_path / "jobs-a")


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
    answer = party.answer(Parcel({**about, "projection": digest}, {"projection": other.read_bytes()}))
    assert answer.about == {"state": "failed", "party": "a", "reason": FAILED}


def test_a_job_that_calls_itself_another_is_refused(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0)
    assert asked(party).about["state"] == "ready"
    again = asked(party, "two-step", kind="statistics")
    assert again.about["reason"] == "this id is another job's"


def test_directions_must_come_from_the_partys_own_statistics(tmp_path: Path) -> None:
    path = a_projection(tmp_path)
    digest = projection_file.read(path)[1]
    party = a_party(tmp_path, "a", 0)
    answer = asked(party, "two-step", projection=digest)
    assert answer.about["state"] == "send projection"
    whole = {"version": 1, "job": "0" * 32, "name": "j", "method": "two-step", "ask": "offer", "projection": digest}
    sent = Parcel({**whole, "kind": "records"}, {"projection": path.read_bytes()})
    assert party.answer(sent).about["reason"] == "it sent no statistics for this job"
    assert not list(tmp_path.glob("jobs-a/a/*/"))  # of what was not begun nothing is kept
    step = Parcel({**whole, "kind": "statistics"}, sent.files)
    assert party.answer(step).about["state"] == "ready"
    assert party.answer(sent).about["reason"] == "the directions were not found from its statistics"


def test_a_projection_must_be_what_it_is_called(tmp_path: Path) -> None:
    path = a_projection(tmp_path)
    party = a_party(tmp_path, "a", 0)
    digest = projection_file.read(path)[1]
    whole = {"version": 1, "job": "0" * 32, "name": "j", "method": "one-shot", "ask": "offer", "kind": "records"}
    wrong = Parcel({**whole, "projection": "1" * 64}, {"projection": path.read_bytes()})
    assert "is not the one that was named" in party.answer(wrong).about["reason"]
    junk = b"no projection"
    named = Parcel({**whole, "projection": hashlib.sha256(junk).hexdigest()}, {"projection": junk})
    assert "is not a projection" in party.answer(named).about["reason"]
    right = Parcel({**whole, "projection": digest}, {"projection": path.read_bytes()})
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
    end = time.monotonic() + 15
    while not waiting(tmp_path / "jobs-c") and time.monotonic() < end:
        time.sleep(0.05)
    (item,) = waiting(tmp_path / "jobs-c")
    assert item.question == "job" and item.name == "first"
    assert asked(party, job=item.id, name="first").about["state"] == "waiting"
    assert not Ledger().entries() and {ask for _, ask in fleet.asked} == {"hello"}  # nobody has made anything
    item.approve("figures")
    thread.join(30)
    assert found["ok"] and found["parties"]["c"]["state"] == "arrived" and not found["parties"]["c"]["why"]
    assert not waiting(tmp_path / "jobs-c")


def test_who_cannot_or_will_not_costs_nobody_anything(tmp_path: Path, three: dict[str, Answer]) -> None:
    """One party has too small a budget, one says no: the third has paid nothing, and neither have they."""
    poor = a_party(tmp_path, "b", 1, budget=5.0)
    asked(poor, job="7" * 32)
    before = Ledger().entries()
    careful = a_party(tmp_path, "c", 2, approve=True)

    def says_no(parcel: Parcel) -> Parcel:
        found = careful.answer(parcel)
        for item in waiting(tmp_path / "jobs-c"):
            item.refuse()
        return found

    for method in ("one-shot", "two-step"):
        path = str(a_projection(tmp_path)) if method == "two-step" else ""
        fleet = Here({"a": three["a"], "b": poor.answer, "c": says_no})
        whole = done(job_of(tmp_path, job=method, method=method, projection=path, least=2), fleet)
        assert not whole["ok"] and "1 part(ies) are there and willing" in whole["reason"]
        assert whole["parties"]["b"]["why"] == "its budget does not allow it"
        assert whole["parties"]["c"]["why"] == "its owner said no"
        assert {ask for _, ask in fleet.asked} == {"hello", "ended"}
    assert Ledger().entries() == before


def test_who_says_no_between_the_steps_costs_nobody_the_second(tmp_path: Path, three: dict[str, Answer]) -> None:
    careful = a_party(tmp_path, "c", 2, approve=True)

    def changing(parcel: Parcel) -> Parcel:
        found = approving(careful)(parcel)
        if parcel.about.get("kind") == "statistics" and found.files:
            for item in unfinished(tmp_path / "jobs-c"):
                item.refuse()
        return found

    job = job_of(tmp_path, method="two-step", projection=str(a_projection(tmp_path)), least=3)
    whole = done(job, Here({**three, "c": changing}))
    assert not whole["ok"]
    assert whole["reason"] == "2 part(ies) are there and willing, and 3 are needed: nothing more was made"
    assert [entry.kind for entry in Ledger().entries()] == ["statistics"] * 3
    assert whole["parties"]["a"]["state"] == "arrived" and whole["parties"]["c"]["why"] == "its owner said no"


def test_an_approval_is_of_what_was_looked_at(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0, approve=True, mu=None, tau=0.5, allow="one-shot", budget=None)
    assert asked(party).about["state"] == "waiting" and not Ledger().entries()
    (item,) = waiting(tmp_path / "jobs-a")
    item.approve("figures")
    dearer = Party(replace(party.settings, tau=0.9))
    assert asked(dearer).about["state"] == "waiting" and not Ledger().entries()  # the owner agreed to something else
    (item,) = waiting(tmp_path / "jobs-a")
    assert item.question == "job" and item.settings.tau == 0.9
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
    settings = a_party(tmp_path, "a", 0, **more).settings
    with pytest.raises(ArgumentError, match=said):
        settings.check_bounded()
    replace(settings, approve=True).check_bounded()


@pytest.mark.parametrize("more", [{"allow": "one-shot,fedavg"}, {"mu": None, "tau": 0.5, "allow": "one-shot"}])
def test_a_budget_that_could_not_hold_is_refused(tmp_path: Path, more: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="no budget holds with"):
        a_party(tmp_path, "a", 0, approve=True, **more).settings.check_bounded()


def test_a_party_that_is_asked_twice_at_once_makes_it_once(tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0)
    answers: list[Parcel] = []
    threads = [threading.Thread(target=lambda: answers.append(asked(party))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.about["state"] for answer in answers} == {"ready"} and len(Ledger().entries()) == 1


def test_parties_that_share_a_folder_do_not_send_one_anothers(tmp_path: Path) -> None:
    parties = {name: a_party(tmp_path, name, seed) for seed, name in enumerate(NAMES)}
    for party in parties.values():
        party.__init__(replace(party.settings, folder=str(tmp_path / "shared")))  # type: ignore[misc]
    assert done(job_of(tmp_path), Here({name: party.answer for name, party in parties.items()}))["ok"]


def test_a_standing_budget_is_a_budget(tmp_path: Path) -> None:
    Ledger().set_budget(10.0)
    a_party(tmp_path, "a", 0, budget=None).settings.check_bounded()


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
        ({"tau": 1.0}, "one of the two"),
        ({"budget": 0.5}, "none could be"),
        ({"label-epsilon": 2.0, "label-budget": 1.0}, "none could be"),
        ({"label-budget": 1.0}, "labels are shown"),
        ({"allow": "everything"}, "allow must name"),
    ],
)
def test_settings_are_read_strictly(config: dict[str, Any], said: str) -> None:
    base = {} if config == {"party": "a"} else {"party": "a", "data": "digits", "folder": "/tmp/x", "mu": 1.0}  # noqa: S108
    with pytest.raises(ArgumentError, match=said):
        Settings.read({**base, **config})


def test_settings_survive_being_written(tmp_path: Path) -> None:
    settings = a_party(tmp_path, "a", 0, unit="patient", label_epsilon=1.0).settings
    assert Settings.read(settings.plain()) == settings


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
        x, y = parties[name].settings.images().take(torch.arange(120))
        sources.append(RemixedEveryBatch(x.flatten(1), y.argmax(1), 3, None))
    recipe = job.order.recipe
    model = new_head(head, 6, 3, recipe)
    *_, weights = federated(model, sources, recipe, job.order.schedule, proximal=proximal)
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
    assert [(entry.kind, entry.cost) for entry in entries] == [("updates", None)] * 3


def test_no_budget_holds_with_rounds(tmp_path: Path) -> None:
    Ledger().set_budget(10.0)
    _, _, whole = by_rounds(tmp_path)
    assert not whole["ok"] and {fate["why"] for fate in whole["parties"].values()} == {OVER}
    assert not Ledger().entries()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda found: {**found, "dense.bias": found["dense.bias"] * torch.nan}, "its weights are not finite"),
        (lambda found: {**found, "dense.bias": found["dense.bias"] + 1e30}, "and may be 1e+06"),
        (lambda found: {**found, "dense.bias": found["dense.bias"] + 1e3}, "times as far as most"),
        (lambda found: {"dense.bias": found["dense.bias"]}, "its weights are not those of this model"),
        (lambda found: {**found, "dense.bias": found["dense.bias"].double()}, "its weights are not those of this"),
    ],
)
def test_weights_that_are_none_are_rejected_and_the_others_go_on(tmp_path: Path, change: Any, said: str) -> None:
    parties = {
        name: a_party(tmp_path, name, seed, allow="fedavg", approve=True, budget=None)
        for seed, name in enumerate(NAMES)
    }
    job = job_of(tmp_path, method="fedavg", rounds=2)

    def wrong(parcel: Parcel) -> Parcel:
        answer = approving(parties["c"])(parcel)
        if "weights" not in answer.files:
            return answer
        return Parcel(answer.about, {"weights": save(change(load(answer.files["weights"])))})

    whole = done(job, Here({"a": approving(parties["a"]), "b": approving(parties["b"]), "c": wrong}))
    assert whole["ok"] and said in whole["parties"]["c"]["why"]
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

    def lying(parcel: Parcel) -> Parcel:
        answer = approving(parties["c"])(parcel)
        if "weights" not in answer.files:
            return answer
        found = load(answer.files["weights"])
        return Parcel(answer.about, {"weights": save({name: change(name, found[name]) for name in found})})

    job = job_of(tmp_path, method="fedavg", rounds=3, head=head, least=2)
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
    job = job_of(tmp_path, method="fedavg", rounds=2, optimiser="sgd", learning_rate=1e-2, least=2)
    whole = done(job, Here({name: approving(party) for name, party in parties.items()}))
    assert whole["ok"] and {fate["rounds"] for fate in whole["parties"].values()} == {2}, whole


def test_parties_that_move_nothing_do_not_end_rounds(tmp_path: Path) -> None:
    parties = {
        name: a_party(tmp_path, name, seed, allow="fedavg", approve=True, budget=None)
        for seed, name in enumerate(NAMES)
    }

    def echo(name: str) -> Answer:
        def answer(parcel: Parcel) -> Parcel:
            found = approving(parties[name])(parcel)
            return Parcel(found.about, parcel.files) if "weights" in found.files else found

        return answer

    job = job_of(tmp_path, method="fedavg", rounds=2)
    assert done(job, Here({"a": approving(parties["a"]), "b": echo("b"), "c": echo("c")}))["ok"]


def test_what_a_party_does_not_compute_is_not_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds promise nothing: once entered, no budget would hold."""
    monkeypatch.setattr("mixveil.federated.jobs.settings._MEMORY", 100)
    _, _, whole = by_rounds(tmp_path)
    assert not whole["ok"] and not Ledger().entries()


def test_rounds_go_on_where_the_server_died(tmp_path: Path) -> None:
    job, parties, whole = by_rounds(tmp_path)
    straight = read_model(Path(whole["model"])).layers
    order = replace(job.order, job="killed")
    answers = {name: approving(party) for name, party in parties.items()}
    count = 0

    def dying(parcel: Parcel) -> Parcel:
        nonlocal count
        count += parcel.about["ask"] == "round"
        return answers["a"](parcel) if count <= 2 else never(parcel)

    second = begin(tmp_path / "server", replace(order, wait=2.0, least=3))
    assert not done(second, Here({**answers, "a": dying}))["ok"]  # two of three rounds
    third, fleet = begin(tmp_path / "server", order), Here(answers)
    assert done(third, fleet)["ok"] and fleet.asked.count(("a", "round")) == 1
    assert "2 round(s) were done before" in (third.folder / "events.log").read_text()
    found = read_model(third.folder / "model").layers
    for one, other in zip(found.layers, straight.layers, strict=True):
        assert all(torch.equal(left, right) for left, right in zip(one, other, strict=True))
    fourth = begin(tmp_path / "server", order)
    assert done(fourth, fleet)["ok"] and fleet.asked.count(("a", "round")) == 1  # all rounds are done


def test_who_is_late_in_one_round_is_not_waited_for_in_the_next(tmp_path: Path) -> None:
    parties = {
        name: a_party(tmp_path, name, seed, allow="fedavg", approve=True, budget=None)
        for seed, name in enumerate(NAMES)
    }
    answers = {name: approving(party) for name, party in parties.items()}

    def silent(parcel: Parcel) -> Parcel:
        return never(parcel) if parcel.about["ask"] == "round" else answers["c"](parcel)

    job = job_of(tmp_path, method="fedavg", rounds=4, wait=1.5, least=2)
    begun = time.monotonic()
    whole = done(job, Here({**answers, "c": silent}))
    assert whole["ok"] and time.monotonic() - begun < 2 * 1.5 + 4  # one round, and the model
    assert [source["party"] for source in read_model(Path(whole["model"])).card["trained_on"]] == ["a", "b"]


def test_rounds_need_the_owners_consent_whatever_they_call_themselves(tmp_path: Path) -> None:
    """The owner allowed one job of FedAvg, and no more."""
    job, parties, _ = by_rounds(tmp_path)
    party = Party(replace(parties["a"].settings, allow="one-shot,two-step", approve=False, budget=100.0))
    weights = save(dict(new_head("linear", 6, 3, job.order.recipe).state_dict()))
    about = {
        **job.task.plain(), "ask": "round", "kind": "updates", "extractor": job.order.extractor.plain(), "number": 0,
        "head": "linear", "epochs": [0, 1], "recipe": {"epochs": 3}, "proximal": None,
    }  # fmt: skip
    assert parties["a"].answer(Parcel(about, {"weights": weights})).files  # as it was allowed
    for changed_about in (about, {**about, "method": "one-shot", "kind": "records"}, {**about, "method": "two-step"}):
        answer = party.answer(Parcel(changed_about, {"weights": weights}))
        assert answer.about["state"] == "refused" and not answer.files
    loose = Party(replace(parties["a"].settings, approve=False))  # as no party may join
    fresh = {**about, "job": "9" * 32}
    assert not loose.answer(Parcel(fresh, {"weights": weights})).files
    assert loose.answer(Parcel({**fresh, "ask": "offer", "projection": None})).about["state"] == "waiting"


def test_rounds_are_on_the_records_that_were_entered(tmp_path: Path) -> None:
    job, parties, _ = by_rounds(tmp_path)
    saved(blobs(120, 55), Path(parties["a"].settings.data))
    other = Party(parties["a"].settings)
    about = {**job.task.plain(), "ask": "offer", "kind": "updates", "extractor": job.order.extractor.plain()}
    assert other.answer(Parcel({**about, "projection": None})).about["state"] == "failed"
    assert len(Ledger().entries()) == 3


@pytest.mark.parametrize("weights", [["a"], {"b": 1}, 7, "x" * 64])
def test_nonsense_of_one_party_does_not_end_the_rounds_of_all(tmp_path: Path, weights: Any) -> None:
    parties = {
        name: a_party(tmp_path, name, seed, allow="fedavg", approve=True, budget=None)
        for seed, name in enumerate(NAMES)
    }
    answers = {name: approving(party) for name, party in parties.items()}

    def wrong(parcel: Parcel) -> Parcel:
        found = answers["c"](parcel)
        return Parcel({**found.about, "weights": weights}, found.files)

    whole = done(job_of(tmp_path, method="fedavg", rounds=1), Here({**answers, "c": wrong}))
    assert whole["ok"] and whole["parties"]["c"]["state"] == "rejected"


# Orders


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ({"job": "../up"}, "job must be"),
        ({"method": "all"}, "method must be"),
        ({"method": "two-step"}, "needs the public projection"),
        ({"parties": 0}, "parties"),
        ({"least": 4}, "at least 4 of 3"),
        ({"wait": 0.0}, "wait"),
        ({"head": "linear"}, "the head of one-shot is discriminant or mlp"),
        ({"method": "fedavg", "projection": "x"}, "takes no projection"),
        ({"optimiser": "adam"}, "optimiser"),
        ({"proximal": -1.0}, "proximal"),
    ],
)
def test_an_order_that_cannot_be_is_refused(tmp_path: Path, order: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        job_of(tmp_path, **order)
    assert not (tmp_path / "server").exists()


def test_a_job_goes_on_as_what_it_is(tmp_path: Path) -> None:
    job_of(tmp_path)
    with pytest.raises(MismatchError, match="is a one-shot"):
        job_of(tmp_path, method="fedavg")
    with pytest.raises(MismatchError, match="another projection"):
        job_of(tmp_path, projection=str(a_projection(tmp_path)))


def test_an_order_is_what_the_app_knows() -> None:
    """The app's settings are an order's, and have its defaults."""
    import tomllib

    from mixveil.federated.transport.flower.environment import APP

    config = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    order = Order(job="j", method="one-shot", parties=1)
    assert config == {**order.plain(), "job": "", "method": "", "parties": 0}
