"""What waits for a party's owner before it may leave."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mixveil.errors import StateError
from mixveil.federated.desk import KINDS, REFUSED, WAITING, Kind, approve, is_approved, refuse
from mixveil.federated.parcel import MANIFEST, Task
from mixveil.federated.settings import Settings


@dataclass(frozen=True)
class Waiting:
    """Something of a job. folder: the job's; projection: the file that the rows went through, if they did."""

    folder: Path
    task: Task
    kind: Kind
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
    def path(self) -> Path:
        return self.folder / self.kind

    @property
    def projection(self) -> Path | None:
        digest = json.loads((self.path / MANIFEST).read_text())["assets"].get("projection")
        return None if digest is None else self.folder / f"projection-{digest[:16]}.safetensors"

    def approve(self, looked_at: Literal["figures", "audit"]) -> None:
        approve(self.folder, self.kind, looked_at=looked_at)

    def refuse(self) -> None:
        refuse(self.folder, self.kind)


def waiting(folder: Path) -> list[Waiting]:
    """All that waits in the folder where parties keep their jobs."""
    found = []
    for path in sorted(folder.glob("*/*/job.json")):
        try:
            whole = json.loads(path.read_text(encoding="utf-8"))
            task, settings = Task.read(whole), Settings.read(whole["settings"])
        except (OSError, ValueError, KeyError) as error:
            raise StateError(f"{path} does not say which job it is: {error}") from None
        for kind in KINDS:
            marks = (path.parent / f"{WAITING}{kind}").exists(), (path.parent / f"{REFUSED}{kind}").exists()
            if marks == (True, False) and not is_approved(path.parent, kind):
                found.append(Waiting(path.parent, task, kind, settings))
    return found
