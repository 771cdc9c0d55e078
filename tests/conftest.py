"""Fixtures: no test touches the user's state folder, and torch stays on one thread so that tests run in parallel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from xdist.scheduler import LoadScopeScheduling


@pytest.fixture(autouse=True)
def own_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    monkeypatch.setenv("MIXVEIL_STATE", str(folder))
    monkeypatch.delenv("MIXVEIL_DATA", raising=False)
    return folder


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


class Together(LoadScopeScheduling):  # type: ignore[misc]
    """Tests run wherever there is time; but those that share a server follow one another in one process."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if file.endswith("transport/test_network.py") else nodeid


def pytest_xdist_make_scheduler(config: Any, log: Any) -> Together:
    return Together(config, log)
