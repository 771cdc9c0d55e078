"""One server and two parties as processes, encrypted and by their keys; and all that may go wrong between them.

The tests share one server, and follow one another."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.net import SLOW, Process, Server, free_port, node, tree, until

from mixveil.core.randomness import SeededStream
from mixveil.data.opening import open_data
from mixveil.features import projection_file, projection_fit
from mixveil.features.cache import Loaded
from mixveil.features.extractor import Extractor
from mixveil.features.round_settings import RoundSettings
from mixveil.federated.jobs.messages import MANIFEST, Message
from mixveil.federated.jobs.party import Party
from mixveil.federated.jobs.party_config import PartyConfig
from mixveil.federated.transport.certificates import make_party, make_trial
from mixveil.learn.model import read_model
from mixveil.learn.training import opened, train
from mixveil.releases.ledger import Ledger
from tests.command import Run
from tests.federated import lies
from tests.federated.here import figures, why
from tests.federated.transport.net import HONEST, Relay, digits, encodings, listening
from tests.made import features_of
from tests.notes import shows

LIARS: dict[str, tuple[Callable[..., None], str]] = {
    "nan": (lies.nan_labels, "NotFiniteError"),
    "shape": (lies.fewer, "ShapeError"),
    "grid": (lies.off_the_grid, "GridError"),
    "liar": (lies.lying_mu, "FalseClaimError"),
    "large": (lies.too_large, "ShardSizeError"),
    "other": (lies.other_name, "signed-as-another"),
}
"""What they send, and the code or the type of error with which it is rejected."""

MORE = ("replay", "flood", "bomb", "killed")


@dataclass
class Net:
    folder: Path
    data: dict[str, Path]
    server: Server
    parties: dict[str, Process] = field(default_factory=dict)

    @property
    def keys(self) -> Path:
        return self.folder / "keys"

    def state(self, party: str) -> Path:
        return self.folder / f"state-{party}"

    def join(self, party: str, port: int | None = None, *words: str) -> Process:
        """A party as a process."""
        address = f"127.0.0.1:{port or self.server.port}"
        how = ["--keys", str(self.keys / party)] if "--insecure" not in words else []
        named = ["--party", party, "--data", str(self.data[party]), "--mu", "3", "--budget", "100"]
        log = self.folder / f"join-{party}.log"
        self.parties[party] = Process(["join", address, *named, *how, *words], log, self.state(party))
        return self.parties[party]

    def here(self, party: str, **more: Any) -> Party:
        """A party's side in this process, for nodes that do what a test says."""
        settings = {"data": str(self.data.get(party, self.data["replay"])), "mu": 3.0, "budget": 100.0, **more}
        return Party(PartyConfig(party=party, folder=str(self.folder / f"here-{party}"), **settings))

    def node(self, party: str, answer: Callable[[Message], Message]) -> Any:
        return node(self.server.port, self.keys / party / f"{party}.key", self.keys / party / "ca.crt", answer)

    def kept(self, party: str, job: str, kind: str = "records") -> Path:
        """What a party keeps of a job."""
        for path in (self.state(party) / "jobs" / party).glob("*/job.json"):
            if json.loads(path.read_text())["name"] == job:
                return path.parent / kind
        raise AssertionError(f"{party} keeps nothing of {job}")

    def entries(self, party: str, job: str) -> int:
        """How often a party's ledger has a job."""
        entries = Ledger(self.state(party)).entries()
        return sum(str(entry.recipient).endswith(f", job {job}") for entry in entries)


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    folder = tmp_path_factory.mktemp("net")
    make_trial(folder / "keys", [*HONEST, *LIARS, *MORE])
    found = Net(folder, digits(folder), Server(folder, free_port(), folder / "keys" / "server"))
    try:
        for party in HONEST:
            found.join(party)
        yield found
    finally:
        for process in (*found.parties.values(), found.server):
            process.stop()


Started = Callable[..., dict[str, Any]]


@pytest.fixture
def job(net: Net, run: Run) -> Started:
    """`mixveil run`, to its end; how the job ended."""

    def call(method: str, name: str, *words: object) -> dict[str, Any]:
        found: dict[str, Any] = run(
            "run", method, net.server.folder, "--job", name, "--json", *words, "--wait", SLOW
        ).json
        return found

    return call


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def accuracy(model: Any, data: Path) -> float:
    test = open_data(str(data))
    return float(model.layers.named(features_of(test)).eq(test.labels).double().mean())


def test_one_job_encrypted_and_by_keys_though_a_party_is_killed_while_it_sends(net: Net) -> None:
    """What the server stored is what the parties kept, the killed one too; the model is that of the files, and no image
    is anywhere."""
    relay = Relay(net.server.port, stall=lambda: any((net.state("killed") / "jobs" / "killed").glob("*/records")))
    party = net.join("killed", relay.port)
    with net.node("replay", net.here("replay").answer):
        running = net.server.begin("one-shot", "first", "--parties", "4", "--wait", str(SLOW))
        assert relay.stalled.wait(SLOW)
        kept = files_of(net.kept("killed", "first"))
        party.stop(signal.SIGKILL)
        relay.close()
        assert not (net.server.job("first") / "records" / "killed").exists()
        net.join("killed")
        said, wrong = running.communicate(timeout=SLOW)
    whole = json.loads(said)
    assert whole["ok"] and kept == files_of(net.kept("killed", "first")), wrong
    folders = {name: net.kept(name, "first") for name in (*HONEST, "killed")}
    for name, folder in folders.items():
        assert files_of(net.server.job("first") / "records" / name) == files_of(folder)
        assert whole["parties"][name]["returned"] and net.entries(name, "first") == 1
        assert files_of(net.kept(name, "first", "model")) == files_of(Path(whole["model"]))
    (mine,) = (net.folder / "here-replay").glob("*/*/records")
    by_files = train(opened([*folders.values(), mine]))
    model = read_model(Path(whole["model"]))
    assert abs(accuracy(model, net.data["test"]) - accuracy(by_files, net.data["test"])) <= 0.005
    assert accuracy(model, net.data["test"]) > 0.3
    stored = b"".join(path.read_bytes() for path in net.server.folder.rglob("*") if path.is_file())
    assert (folders["a"] / "shard-00000.safetensors").read_bytes() in stored  # what is looked for is found
    for name in HONEST:
        images = open_data(str(net.data[name])).take(torch.arange(40)).x
        assert not any(image in stored for image in encodings(images))
    net.parties.pop("killed").stop()


def test_nothing_listens_off_this_machine(net: Net) -> None:
    for process in (net.server, *net.parties.values()):
        found = listening(tree(process.pid))
        assert found and set(found) == {"0100007F"}, found  # 127.0.0.1


def test_what_is_wrong_is_rejected_with_a_reason_and_the_others_are_unaffected(net: Net, job: Started) -> None:
    old = files_of(next((net.folder / "here-replay").glob("*/*/records")))
    answers: dict[str, Callable[[Message], Message]] = {
        name: lies.changed(net.here(name).answer, lie) for name, (lie, _) in LIARS.items()
    }
    answers["replay"] = lambda message: Message({"state": "ready", "party": "replay", "why": None}, old)
    flood = SeededStream(1).uniform(40 << 18).float().numpy().tobytes()
    for name, data in (("flood", flood), ("bomb", b" " * (40 << 20))):  # Flower sends equal pieces once
        about = {"state": "ready", "party": name, "why": None}
        answers[name] = lambda message, about=about, data=data: (  # type: ignore[misc]
            Message(about, {MANIFEST: data} if message.about["ask"] == "offer" else {})
        )
    with ExitStack() as nodes:
        for name, answer in answers.items():
            nodes.enter_context(net.node(name, answer))
        whole = job("one-shot", "second", "--parties", len(HONEST) + len(answers))
    assert whole["ok"] and sorted(read_model(Path(whole["model"])).card["mu"]) == list(HONEST)
    for name in HONEST:
        assert whole["parties"][name]["state"] == "arrived" and whole["parties"][name]["returned"]
    for name, (_, code) in LIARS.items():
        assert whole["parties"][name]["state"] == "rejected", name
        assert code in (why(whole, name), figures(whole, name).get("error")), name
    assert why(whole, "replay") == "taken-before" and figures(whole, "replay")["job"] == "first"
    assert why(whole, "flood") == "too-much-sent" and why(whole, "bomb") == "too-much-sent-folded"
    assert figures(whole, "flood") == figures(whole, "bomb") == {"most": 10 << 20}


def test_a_killed_server_finds_what_had_arrived(net: Net, job: Started) -> None:
    running = net.server.begin("one-shot", "fourth", "--parties", "3", "--wait", str(SLOW))
    until(lambda: len(net.server.events("fourth", "party-sent")) == len(HONEST))
    arrived = {name: files_of(net.server.job("fourth") / "records" / name) for name in HONEST}
    family = tree(net.server.pid)
    net.server.stop(signal.SIGKILL)
    said, _ = running.communicate(timeout=SLOW)
    assert running.returncode == 5 and json.loads(said)["error"]["type"] == "ServiceError"
    until(lambda: not any(Path(f"/proc/{pid}/fd").exists() for pid in family))
    net.server = Server(net.folder, net.server.port, net.keys / "server")
    with net.node("killed", net.here("killed").answer):
        whole = job("one-shot", "fourth", "--parties", 3)
    (before,) = net.server.events("fourth", "party-sent-before")
    assert before["figures"] == {"kind": "records", "names": list(HONEST)}
    assert whole["ok"] and whole["parties"]["killed"]["state"] == "arrived"
    for name in HONEST:
        assert files_of(net.server.job("fourth") / "records" / name) == arrived[name]
        assert whole["parties"][name]["returned"] and net.entries(name, "fourth") == 1


def test_rounds_of_sums_though_a_party_is_killed_between_them(net: Net) -> None:
    """Each party enters each message once; the one that was killed goes on with the next."""
    path, loaded = net.folder / "rounds.safetensors", Loaded(Extractor(), (), torch.device("cpu"))
    fitted = projection_fit.fit(features_of(open_data(str(net.data["test"]))), loaded.digest)
    settings = RoundSettings(16, 4, 0.2, 0.5, noise=0.01, rate=8.0, momentum=0.0, temperature=0.25, accuracy=0.9)
    projection_file.write(path, replace(fitted, rounds=(settings,)))
    words = ("--parties", "2", "--projection", str(path), "--wait", str(SLOW))
    running = net.server.begin("rounds", "fifth", *words)
    until(lambda: net.server.events("fifth", "round-done"))
    net.parties["b"].stop(signal.SIGKILL)
    net.join("b")
    said, wrong = running.communicate(timeout=SLOW)
    whole = json.loads(said)
    assert whole["ok"], (whole, wrong)
    assert accuracy(read_model(Path(whole["model"])), net.data["a"]) > 0.5
    for name in HONEST:
        assert net.entries(name, "fifth") == 5 and not Ledger(net.state(name)).reservations()
        for number in range(5):
            folder = f"sums-{number:02d}"
            assert files_of(net.server.job("fifth") / folder / name) == files_of(net.kept(name, "fifth", folder))


def refused(net: Net, run: Run, *words: object) -> str:
    """What a party that cannot join is told."""
    named = ("--party", "a", "--data", net.data["a"], "--mu", 1, "--budget", 1)
    done = run("join", f"127.0.0.1:{net.server.port}", *named, *words)
    assert done.code == 5
    return " ".join(done.err.split())


def test_a_key_that_the_server_does_not_know_is_not_let_in(net: Net, run: Run) -> None:
    stranger = net.folder / "stranger"
    make_party(stranger, "a")
    shutil.copy(net.keys / "a" / "ca.crt", stranger / "ca.crt")
    assert "does not know this key" in refused(net, run, "--keys", stranger)


def test_another_servers_certificate_is_not_believed(net: Net, run: Run) -> None:
    make_trial(net.folder / "others", ["a"])
    assert "is not the server that ca.crt speaks for" in refused(net, run, "--keys", net.folder / "others" / "a")


def test_plaintext_is_not_answered(net: Net, run: Run) -> None:
    assert "does not speak in the clear" in refused(net, run, "--insecure")


def test_the_state_of_everything_is_told(net: Net, run: Run) -> None:
    whole = run("status", net.server.folder, "--json").json
    assert {node["party"]: node["status"] for node in whole["parties"]}["a"] == "online"
    assert {job["job"]: job["state"] for job in whole["jobs"]}["first"] == "done"
    text = run("status", net.server.folder).out
    assert "a: online" in text and "replay: rejected: " in text and shows(text, "taken-before")
