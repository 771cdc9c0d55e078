"""Fixtures: no test touches the user's state folder, and torch stays on one thread so that tests run in parallel."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def own_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    monkeypatch.setenv("MIXVEIL_STATE", str(folder))
    monkeypatch.delenv("MIXVEIL_DATA", raising=False)
    return folder


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)
