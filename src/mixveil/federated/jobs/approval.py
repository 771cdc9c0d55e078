"""What an owner is asked about a job, and what they said: marks in the job's folder.

An answer holds for what was shown: its file has the SHA-256 of a manifest, or of a job with the settings that it is
done with.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mixveil.core import files
from mixveil.core.errors import MixveilError, StateError
from mixveil.federated.jobs.messages import MANIFEST, JobId, now
from mixveil.federated.jobs.party_config import PartyConfig

Question = Literal["job", "records"]
QUESTIONS: tuple[Question, ...] = ("job", "records")
"""What an owner is asked: whether to take part in a job, before anything is made for it; and where a release promises
nothing, whether it may leave."""

LookedAt = Literal["figures", "audit"]
REFUSED, ENDED, ENTERED = "refused", "ended", "entered"
"""Marks: the owner said no; the server ended the job; something of it is in the ledger."""

FREE = ("party", "folder", "budget", "label-budget", "allow", "approve", "recipient", "to")
"""Settings that change no release. An earlier version wrote `to` for `recipient`."""


@dataclass(frozen=True)
class Waiting:
    """A question that a job has for its owner, and the settings that the job is done with."""

    folder: Path
    job: JobId
    question: Question
    config: PartyConfig

    @property
    def records(self) -> Path:
        return self.folder / "records"

    @property
    def projection(self) -> Path | None:
        """The file that its records went through, if they did."""
        digest = json.loads((self.records / MANIFEST).read_text())["assets"].get("projection")
        return None if digest is None else self.folder / f"projection-{digest[:16]}.safetensors"

    @property
    def begun(self) -> bool:
        """Whether something of it is in the ledger."""
        return (self.folder / ENTERED).exists()

    def approve(self, looked_at: LookedAt) -> None:
        approve(self.folder, self.question, looked_at=looked_at)

    def refuse(self) -> None:
        """The owner says no to all that the job still asks for, for good: nothing is held for it any more."""
        from mixveil.releases.ledger import Ledger

        (self.folder / REFUSED).touch(0o600)
        Ledger().free(reserved_as(self.config.party, self.job))


def waiting(folder: Path) -> list[Waiting]:
    """All that waits in the folder where parties keep their jobs."""
    return [
        Waiting(path, job, question, config)
        for path, job, config in _jobs(folder)
        for question in QUESTIONS
        if is_waiting(path, question)
    ]


def unfinished(folder: Path) -> list[Waiting]:
    """All jobs for which something may still be made: what they wait for, or whether to take part at all."""
    asked = {item.folder: item for item in waiting(folder)}
    return [
        asked.get(path, Waiting(path, job, "job", config))
        for path, job, config in _jobs(folder)
        if path in asked or not is_over(path, job)
    ]


def _jobs(folder: Path) -> Iterator[tuple[Path, JobId, PartyConfig]]:
    for path in sorted(folder.glob("*/*/job.json")):
        try:
            whole = json.loads(path.read_text(encoding="utf-8"))
            yield path.parent, JobId.read(whole), PartyConfig.read(whole["settings"])
        except (OSError, ValueError, KeyError, MixveilError) as error:
            raise StateError(f"{path} does not say which job it is: {error}") from None


def mark_waiting(folder: Path, question: Question) -> bool:
    """Remember that the owner is asked something; whether that is new."""
    path = _asked(folder, question)
    new = not path.exists()
    path.touch(0o600)
    return new


def is_waiting(folder: Path, question: Question) -> bool:
    """Whether the owner was asked, and has not answered."""
    closed = (folder / REFUSED).exists() or (folder / ENDED).exists()
    return _asked(folder, question).exists() and not closed and not is_approved(folder, question)


def is_approved(folder: Path, question: Question) -> bool:
    """Whether the owner said yes to what a job's folder holds now."""
    path = folder / f"approved-{question}.json"
    return path.exists() and bool(json.loads(path.read_text())["sha256"] == _shown(folder, question))


def approve(folder: Path, question: Question, *, looked_at: LookedAt) -> None:
    """The owner looked at it, and says yes."""
    whole = {"sha256": _shown(folder, question), "looked_at": looked_at, "when": now()}
    files.write_json(folder / f"approved-{question}.json", whole)


def is_over(folder: Path, job: JobId) -> bool:
    """Whether nothing more is made for a job: all of it is there, or its owner said no."""
    return (folder / REFUSED).exists() or all((folder / kind).exists() for kind in job.rules.sends)


def reserved_as(party: str, job: JobId) -> str:
    """What a party's ledger calls the μ that it holds for a job."""
    return f"{party}, job {job.name} ({job.id})"


def _asked(folder: Path, question: Question) -> Path:
    return folder / f"waiting-{question}"


def _shown(folder: Path, question: Question) -> str:
    """The SHA-256 of what an owner says yes to."""
    if question == "records":
        return hashlib.sha256((folder / "records" / MANIFEST).read_bytes()).hexdigest()
    whole = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    settings = {name: value for name, value in whole["settings"].items() if name not in FREE}
    plain = {**JobId.read(whole).plain(), "settings": settings}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
