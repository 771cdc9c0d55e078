"""A job at the server: its folder, what happens in it, what became of every party."""

from __future__ import annotations

import dataclasses
import json
import shutil
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mixveil.core import files
from mixveil.core.errors import ArgumentError
from mixveil.core.wording.notes import Note, note
from mixveil.federated.jobs.job_config import JobConfig, check_order
from mixveil.federated.jobs.messages import JobId, check_name

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
    """What became of a party in a job.

    Attributes:
        state: What it is doing.
        why: The reason, where it is out or was late.
        bytes: That came from it.
        returned: Whether it has the model.
        rounds: That it took part in.
    """

    state: State = "expected"
    why: Note | None = None
    bytes: int = 0
    returned: bool = False
    rounds: int = 0

    def plain(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "why": None if self.why is None else self.why.plain()}


@dataclass
class Job:
    """A job in its folder. Run again, it continues where it stopped.

    Attributes:
        folder: Where everything of the job lies.
        config: What the coordinator asks for.
        identity: What messages call the job.
        projection: The public one that records go through, with its SHA-256.
        names: The parties that the server knows by their keys.
        poll: Seconds between two questions to a party whose owner has not answered yet.
        statuses: What became of each party.
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
        event = {"time": _now(), "party": party, **note(code, **figures).plain()}
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
            "ended": _now(),
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
    public = projection_file.read(Path(config.projection)) if config.projection else None
    folder = server / "jobs" / config.job
    path, copy = folder / "job.json", folder / "projection.safetensors"
    if not path.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        identity = JobId(randomness.release_id(), config.job, config.method)
        if public is not None:
            shutil.copyfile(config.projection, copy)
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
        raise ArgumentError(f"{server} has no job {name}")
    return folder


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
