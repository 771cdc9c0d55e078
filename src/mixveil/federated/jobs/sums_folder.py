"""What a party keeps of a job in rounds of sums, in the job's folder: the plan, and each message as it was made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mixveil.core import files
from mixveil.federated.jobs.sums_plan import SumsPlan, name_of

PLAN, ALL_MADE = "plan.json", "sums"
"""The plan that the party agreed to; and a mark that its last message is made."""


class SumsFolder:
    """The folder of one job. A message is marked before it is entered in the ledger, so that none is made twice."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def plan(self) -> SumsPlan | None:
        path = self.folder / PLAN
        return SumsPlan.read(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None

    def pin(self, plan: SumsPlan) -> None:
        files.write_json(self.folder / PLAN, plan.plain())

    def unpin(self) -> None:
        (self.folder / PLAN).unlink(missing_ok=True)

    def left(self, mu: float) -> float:
        """The μ of all that may still be made. mu: of a job that has no plan yet."""
        plan = self.plan()
        return mu if plan is None else plan.left(self.begun())

    def release(self, number: int) -> Path:
        return self.folder / name_of(number)

    def begun(self) -> list[int]:
        """The numbers of all messages that were begun."""
        return sorted(int(path.stem.removeprefix("sums-")) for path in self.folder.glob("sums-*.json"))

    def begin(self, number: int, **stated: Any) -> None:
        """Before a message is entered in the ledger. stated: what it is of."""
        files.write_json(self._mark(number), stated)

    def stated(self, number: int) -> dict[str, Any] | None:
        """What a message that was begun is of."""
        path = self._mark(number)
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None

    def undo(self, number: int) -> None:
        """A message of which nothing was entered was not begun."""
        self._mark(number).unlink(missing_ok=True)

    def finish(self, number: int, plan: SumsPlan) -> None:
        if number == plan.plan.rounds:
            (self.folder / ALL_MADE).touch(0o600)

    def _mark(self, number: int) -> Path:
        return self.folder / f"{name_of(number)}.json"
