"""A job at the server: its folder, what happens in it, what became of every party; and what `mixveil run` and `mixveil
status` read of that from another process. Files of earlier versions are read as well: they have texts for notes."""

from __future__ import annotations

import dataclasses
import json
import shutil
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mixveil.core import files
from mixveil.core.errors import ArgumentError, Kind
from mixveil.core.wording import notes
from mixveil.core.wording.jobs import STATES, TOO_FEW
from mixveil.core.wording.notes import Note, note
from mixveil.federated.jobs.job_config import JobConfig, check_order
from mixveil.federated.jobs.messages import JobId, check_name, now

if TYPE_CHECKING:
    from mixveil.learn.training import ProjectionWithDigest

State = Literal["expected", "waiting", "willing", "sending", "arrived", "rejected", "refused", "failed"]
OUT: tuple[State, ...] = ("rejected", "refused", "failed")
"""States of parties that are not asked again in this run: rejected by the server, the others by themselves."""

EVENTS, PROGRESS, OUTCOME = "events.jsonl", "progress.json", "outcome.json"
POLL = 5.0
"""Seconds between two questions to a party whose owner has not answered yet."""


@dataclass
class PartyStatus:
    """What became of a party in a job. why: where it is out or was late; bytes: that came from it; returned: whether it
    has the model; rounds: how many messages it sent of a job in rounds; messages: how many such a job asks for."""

    state: State = "expected"
    why: Note | None = None
    bytes: int = 0
    returned: bool = False
    rounds: int = 0
    messages: int = 0

    def has_sent(self, rounds: int, messages: int) -> None:
        """It is in a job in rounds, and has sent so many of its messages."""
        self.rounds, self.messages = rounds, messages
        if rounds and self.state not in OUT:
            self.state, self.why = "arrived" if rounds >= messages else "sending", None

    def plain(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "why": None if self.why is None else self.why.plain()}


@dataclass
class Job:
    """A job in its folder. Run again, it continues where it stopped.

    Attributes:
        identity: What messages call the job.
        projection: The public one that records go through, with its SHA-256.
        names: The parties that the server knows by their keys.
        poll: As POLL.
        unknown: Nodes that are no party of this job, and why.
    """

    folder: Path
    config: JobConfig
    identity: JobId
    projection: ProjectionWithDigest | None
    names: frozenset[str] = frozenset()
    poll: float = POLL
    statuses: dict[str, PartyStatus] = field(default_factory=dict)
    unknown: dict[str, Note] = field(default_factory=dict)
    _logging: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def log(self, code: str, party: str | None = None, **figures: Any) -> None:
        """Add an event: a line of JSON with time, party, code and figures."""
        event = {"time": now(), "party": party, **note(code, **figures).plain()}
        with self._logging:
            with (self.folder / EVENTS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(event) + "\n")
            files.write_json(self.folder / PROGRESS, self._parties())

    def status(self, name: str) -> PartyStatus:
        return self.statuses.setdefault(name, PartyStatus())

    def exclude(self, name: str, state: State, why: Note) -> None:
        """A party is out of this run."""
        status = self.status(name)
        status.state, status.why = state, why
        self.log("party-out", name, state=state, why=why)

    def reject_unknown(self, nodes: Mapping[str, Note]) -> None:
        for node, why in nodes.items():
            if node not in self.unknown:
                self.unknown[node] = why
                self.log("party-unknown", node=node, why=why)

    @property
    def directions_path(self) -> Path:
        return self.folder / "directions.safetensors"

    def new_model(self) -> Path:
        """Where the next model goes: nothing is overwritten."""
        number = 1
        while (path := self.folder / ("model" if number == 1 else f"model-{number}")).exists():
            number += 1
        return path

    def conclude(self, *, model: Path | None, why: Note | None = None) -> dict[str, Any]:
        """Write down how it ended."""
        whole = {
            "job": self.identity.name,
            "method": self.identity.method,
            "ended": now(),
            "parties": self._parties(),
            "unknown": {node: reason.plain() for node, reason in self.unknown.items()},
            "model": None if model is None else str(model),
            "ok": model is not None,
            "why": None if why is None else why.plain(),
        }
        files.write_json(self.folder / OUTCOME, whole)
        return whole

    def _parties(self) -> dict[str, Any]:
        names = sorted({*self.statuses, *self.names})
        return {name: self.statuses.get(name, PartyStatus()).plain() for name in names}


def begin(server: Path, config: JobConfig, names: Iterable[str] = ()) -> Job:
    """Open a job's folder, or make it. A job that was begun before must be the same one still. names: of the parties
    that the server knows."""
    from mixveil.core import randomness
    from mixveil.features import projection_file

    check_order(server, config)
    source = config.projection_path
    public = None if source is None else projection_file.read(source)
    folder = server / "jobs" / config.job
    path, copy = folder / "job.json", folder / "projection.safetensors"
    if not path.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        identity = JobId(randomness.release_id(), config.job, config.method)
        if source is not None:
            shutil.copyfile(source, copy)
        files.write_json(path, {**identity.plain(), "projection": None if public is None else public[1]})
    stated = json.loads(path.read_text(encoding="utf-8"))
    known = None if stated["projection"] is None else projection_file.read(copy)
    (folder / OUTCOME).unlink(missing_ok=True)
    (folder / "incoming").mkdir(mode=0o700, exist_ok=True)
    return Job(folder, config, JobId.read(stated), known, frozenset(names))


def find(server: Path, name: str) -> Path:
    """The folder of a job that was begun."""
    folder = server / "jobs" / check_name("job", name)
    if not (folder / "job.json").is_file():
        raise ArgumentError(f"{server} has no job {name}: `mixveil status` lists them")
    return folder


@dataclass
class Events:
    """New events of a job, as lines for people."""

    folder: Path
    place: int = 0

    def skip(self) -> None:
        """Those that are there were shown before."""
        path = self.folder / EVENTS
        self.place = path.stat().st_size if path.exists() else 0

    def lines(self) -> list[str]:
        path = self.folder / EVENTS
        if not path.exists():
            return []
        with path.open("rb") as file:
            file.seek(self.place)
            whole, end, _ = file.read().rpartition(b"\n")  # a line may be half written
        self.place += len(whole) + len(end)
        return [_line(json.loads(line)) for line in whole.splitlines()]


def _line(event: dict[str, Any]) -> str:
    party = f"{event['party']}: " if event["party"] else ""
    return f"{event['time'][11:19]} {party}{notes.read(event)}"


def outcome(folder: Path) -> dict[str, Any] | None:
    """How a job ended; None while it has not."""
    path = folder / OUTCOME
    if not path.exists():
        return None
    whole: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    whole.setdefault("why", whole.get("reason"))
    return whole


def summary(folder: Path) -> dict[str, Any]:
    """A job in a few fields, for programs. state: `running`, `done`, `failed` or `interrupted`."""
    method = json.loads((folder / "job.json").read_text(encoding="utf-8"))["method"]
    base: dict[str, Any] = {"job": folder.name, "method": method, "ended": None, "why": None, "model": None}
    if (whole := outcome(folder)) is not None:
        state = "done" if whole["ok"] else "failed"
        return {**base, "state": state, **{name: whole[name] for name in ("ended", "why", "model", "parties")}}
    progress = folder / PROGRESS
    parties = json.loads(progress.read_text(encoding="utf-8")) if progress.exists() else {}
    return {**base, "state": "interrupted" if files.held_by(folder) is None else "running", "parties": parties}


def ended_as(whole: dict[str, Any]) -> Kind:
    """How a job without a model ended: refused, where owners said no and too few parties were left; else failed."""
    refused = any(party["state"] == "refused" for party in whole["parties"].values())
    return "refused" if refused and whole["why"]["code"] in TOO_FEW else "failed"


def state_of(job: dict[str, Any]) -> Note:
    """What became of a job, from its summary."""
    figures: dict[str, Any] = {}
    if job["ended"] is not None:
        figures["ended"] = job["ended"].replace("T", " ").replace("+00:00", " UTC")
    if job["state"] == "failed":
        figures["why"] = notes.read(job["why"] or "no-reason-given")
    return Note(f"job-{job['state']}", figures)


def status_of(status: dict[str, Any]) -> str:
    """What became of a party, in words."""
    told = [STATES.get(status["state"], status["state"])]
    if status.get("messages") and status["state"] != "arrived":
        sent = str(note("messages-sent", sent=status["rounds"], messages=status["messages"]))
        told = [sent] if status["state"] == "sending" else [*told, sent]
    told += [f"{status['bytes'] / 1e3:,.0f} kB"] if status["bytes"] else []
    told += ["has the model"] if status["returned"] else []
    return ", ".join(told) + (f": {notes.read(status['why'])}" if status["why"] else "")
