"""Folders that an earlier version wrote, in `stored/`: they are read, and what an owner said still holds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mixveil.federated.jobs.approval import is_approved, waiting
from mixveil.federated.jobs.messages import Message
from mixveil.federated.jobs.party import Party
from mixveil.federated.jobs.party_config import PartyConfig

STORED = Path(__file__).parent / "stored"
JOBS = {"waits": ("1" * 32, "one-shot"), "approved": ("2" * 32, "one-shot"), "rounds": ("3" * 32, "fedavg")}


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    shutil.copytree(STORED / "party-jobs", tmp_path / "jobs")
    return tmp_path / "jobs"


def party(jobs: Path, **other: Any) -> Party:
    """The party whose folder it is, with the settings that it had."""
    (path,) = jobs.glob("*/waits-*/job.json")
    settings = json.loads(path.read_text())["settings"]
    return Party(PartyConfig.read({**settings, "folder": str(jobs), **other}))


def hello(party: Party, name: str) -> Any:
    number, method = JOBS[name]
    about = {"version": 1, "job": number, "name": name, "method": method, "ask": "hello"}
    return party.answer(Message(about)).about["state"]


def test_what_waits_still_waits_and_shows_the_recipient(jobs: Path) -> None:
    (item,) = waiting(jobs)
    assert (item.job.name, item.question, item.config.recipient) == ("waits", "job", "the university")


def test_an_approval_still_holds_for_the_settings_that_were_shown(jobs: Path) -> None:
    same, dearer = party(jobs), party(jobs, mu=8.0)
    assert {name: hello(same, name) for name in JOBS} == {"waits": "waiting", "approved": "ready", "rounds": "ready"}
    (approved,) = jobs.glob("*/approved-*/")
    assert is_approved(approved, "job") and json.loads((approved / "job.json").read_text())["settings"]["recipient"]
    assert hello(dearer, "approved") == "waiting"  # the owner agreed to something else


def test_rounds_are_still_those_of_the_records_that_were_entered(jobs: Path) -> None:
    """Other data than those of `updates.json` are refused, as before."""
    from tests.federated.here import saved
    from tests.made import blobs

    data = saved(blobs(120, 9), jobs.parent / "other.npz")
    (folder,) = jobs.glob("*/rounds-*/")
    whole = json.loads((folder / "job.json").read_text())
    whole["settings"]["data"] = str(data)  # another file in the same place
    (folder / "job.json").write_text(json.dumps(whole))
    (folder / "approved-job.json").unlink()
    for item in [item for item in waiting(jobs) if item.job.name == "rounds"]:
        item.approve("figures")
    said: list[Any] = []
    mine = party(jobs, data=str(data))
    mine.log = said.append
    number, method = JOBS["rounds"]
    extractor: dict[str, Any] = {"names": [], "stage": None, "mirror": False, "size": 224}
    about = {"version": 1, "job": number, "name": "rounds", "method": method, "ask": "offer", "kind": "updates"}
    answer = mine.answer(Message({**about, "projection": None, "extractor": extractor}))
    assert answer.about["state"] == "failed" and said[-1].figures["error"] == "MismatchError"
