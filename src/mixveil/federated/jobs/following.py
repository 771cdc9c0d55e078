"""What a coordinator sees of a job that runs in another process: its folder's events, progress and outcome.

Files of jobs that an earlier version ran are shown as well: they have texts where there are notes now.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mixveil.core import files
from mixveil.core.wording.jobs import STATES
from mixveil.core.wording.notes import Note, note
from mixveil.federated.jobs import notes
from mixveil.federated.jobs.job import EVENTS, OUTCOME, PROGRESS


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


def state_of(job: dict[str, Any]) -> Note:
    """What became of a job, from its summary."""
    figures: dict[str, Any] = {}
    if job["ended"] is not None:
        figures["ended"] = job["ended"].replace("T", " ").replace("+00:00", " UTC")
    if job["state"] == "failed":
        figures["why"] = notes.read(job["why"]) or note("no-reason-given")
    return Note(f"job-{job['state']}", figures)


def status_of(status: dict[str, Any]) -> str:
    """What became of a party, in words."""
    why = notes.read(status["why"])
    reason = "" if why is None else f": {why}"
    size = f", {status['bytes'] / 1e3:,.0f} kB" if status["bytes"] else ""
    return f"{STATES.get(status['state'], status['state'])}{reason}{size}{', has the model' * status['returned']}"
