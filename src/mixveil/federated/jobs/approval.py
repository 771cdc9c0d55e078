"""What waits for a party's owner."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mixveil.core.errors import MixveilError, StateError
from mixveil.federated.jobs.messages import MANIFEST, Task
from mixveil.federated.jobs.settings import Settings
from mixveil.federated.jobs.storage import ENTERED, QUESTIONS, Question, approve, is_over, is_waiting, refuse


@dataclass(frozen=True)
class Waiting:
    """A question that a job has for its owner. folder: the job's; projection: the file that records went through, if
    they did."""

    folder: Path
    task: Task
    question: Question
    settings: Settings

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def id(self) -> str:
        return self.task.id

    @property
    def method(self) -> str:
        return self.task.method

    @property
    def records(self) -> Path:
        return self.folder / "records"

    @property
    def projection(self) -> Path | None:
        digest = json.loads((self.records / MANIFEST).read_text())["assets"].get("projection")
        return None if digest is None else self.folder / f"projection-{digest[:16]}.safetensors"

    @property
    def begun(self) -> bool:
        """Whether something of it is in the ledger."""
        return (self.folder / ENTERED).exists()

    def approve(self, looked_at: Literal["figures", "audit"]) -> None:
        approve(self.folder, self.question, looked_at=looked_at)

    def refuse(self) -> None:
        refuse(self.folder)


def waiting(folder: Path) -> list[Waiting]:
    """All that waits in the folder where parties keep their jobs."""
    return [
        Waiting(path, task, question, settings)
        for path, task, settings in _jobs(folder)
        for question in QUESTIONS
        if is_waiting(path, question)
    ]


def unfinished(folder: Path) -> list[Waiting]:
    """All jobs for which something may still be made: what they wait for, or whether to take part at all."""
    asked = {item.folder: item for item in waiting(folder)}
    return [
        asked.get(path, Waiting(path, task, "job", settings))
        for path, task, settings in _jobs(folder)
        if path in asked or not is_over(path, task)
    ]


def _jobs(folder: Path) -> Iterator[tuple[Path, Task, Settings]]:
    for path in sorted(folder.glob("*/*/job.json")):
        try:
            whole = json.loads(path.read_text(encoding="utf-8"))
            yield path.parent, Task.read(whole), Settings.read(whole["settings"])
        except (OSError, ValueError, KeyError, MixveilError) as error:
            raise StateError(f"{path} does not say which job it is: {error}") from None
