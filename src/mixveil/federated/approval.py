"""What waits for a party's owner."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mixveil.errors import StateError
from mixveil.federated.desk import QUESTIONS, Question, approve, is_waiting, refuse
from mixveil.federated.parcel import MANIFEST, Task
from mixveil.federated.settings import Settings


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

    def approve(self, looked_at: Literal["figures", "audit"]) -> None:
        approve(self.folder, self.question, looked_at=looked_at)

    def refuse(self) -> None:
        refuse(self.folder)


def waiting(folder: Path) -> list[Waiting]:
    """All that waits in the folder where parties keep their jobs."""
    found = []
    for path in sorted(folder.glob("*/*/job.json")):
        try:
            whole = json.loads(path.read_text(encoding="utf-8"))
            task, settings = Task.read(whole), Settings.read(whole["settings"])
        except (OSError, ValueError, KeyError) as error:
            raise StateError(f"{path} does not say which job it is: {error}") from None
        found += [
            Waiting(path.parent, task, question, settings)
            for question in QUESTIONS
            if is_waiting(path.parent, question)
        ]
    return found
