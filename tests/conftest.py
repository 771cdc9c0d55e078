"""Fixtures: no test touches the user's state folder, all stays on one thread so that tests run in parallel, commands
run in this process, and files lie in memory."""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch and numpy are there; for processes that tests start, too

import gc
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.command import Result, Run

TOGETHER = (
    "docs/test_site.py",
    "federated/simulation/test_simulate.py",
    "report/test_report.py",
    "report/test_sweep.py",
)
"""Their tests follow one another in one process: what they share takes longer to make than they do."""

NETWORK = "federated/transport/test_network.py"
"""Its tests share a server, follow one another in one process, and start first: they wait more than they work."""

MEMORY, ROOM = Path("/dev/shm"), 4 << 30  # noqa: S108 - folders of their own are made there
"""Where files lie in memory, and what must be free there. Every release and every entry of a ledger waits several times
until the disk has it, and no test can tell whether it has."""


def pytest_configure(config: pytest.Config) -> None:
    if config.option.basetemp is None and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.fixture(autouse=True)
def own_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    monkeypatch.setenv("MIXVEIL_STATE", str(folder))
    monkeypatch.delenv("MIXVEIL_DATA", raising=False)
    return folder


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Run]:
    """A command of `mixveil` in this process, in the test's own folder."""
    from mixveil.cli.main import main

    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)  # main sets its own

    def call(*words: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["mixveil", *(str(word) for word in words)])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return Result(int(stopped.value.code or 0), captured.out, captured.err)

    yield call
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A set of 30 images of 4×4."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "small.npz", x=rng.random((30, 1, 4, 4), dtype=np.float32), y=np.arange(30) % 3)
    return tmp_path / "small.npz"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: NETWORK not in item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Modules and tests stay to the end: to look through all of them for garbage, again and again, took a third of the
    time of collecting them, and a part of that of each test. From here on, garbage is looked for among what is new."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):  # type: ignore[misc]
        """Tests run wherever there is time; but those that share a server, or much else, are one piece of work."""

        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if file.endswith((NETWORK, *TOGETHER)) else nodeid

    return Together(config, log)
