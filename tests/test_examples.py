from __future__ import annotations

import os
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.command import Run
from tests.documented import ROOT, run_as_written

Example = Callable[..., str]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Example:
    """An example as a program, in this process; what it prints."""

    def call(name: str, *arguments: str) -> str:
        script = str(ROOT / "examples" / name)
        monkeypatch.setattr(sys, "argv", [script, *arguments])
        with torch.random.fork_rng(devices=()):
            runpy.run_path(script, run_name="__main__")
        return capsys.readouterr().out

    return call


def test_encoding_a_folder(example: Example, tmp_path: Path) -> None:
    assert "certified: True" in example("encode_a_folder.py", str(tmp_path / "out"))


def test_a_loop_with_mixed_batches(example: Example) -> None:
    shown = example("batch_transform.py")
    accuracies = [float(percent) for percent in re.findall(r"batches: ([\d.]+)%", shown)]
    assert len(accuracies) == 2 and min(accuracies) > 80  # guessing: 10
    assert "promised: nothing" in shown


@pytest.mark.skipif("MIXVEIL_TRIAL" not in os.environ, reason="45 s of processes that test_network starts too")
def test_three_hospitals_learn_together(example: Example, tmp_path: Path) -> None:
    shown = example("three_hospitals.py", str(tmp_path / "trial"))
    assert shown.count("kB, has the model") == 6  # as it ran, and as its status says
    assert "learns of no record of one party more than 3-GDP permits" in " ".join(shown.split())
    assert "together a record is 3-GDP" in shown


def test_every_example_is_run() -> None:
    tests = Path(__file__).read_text()
    assert all(f'example("{script.name}"' in tests for script in (ROOT / "examples").glob("*.py"))


@pytest.mark.words
def test_the_commands_of_the_readme_run_as_written(
    run: Run, tmp_path: Path, own_state_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every `$ mixveil …` of the README, in order, in one folder; NAME=VALUE before it is its environment."""
    assert run_as_written(ROOT / "README.md", run, tmp_path, own_state_folder, monkeypatch) >= 3


def test_what_the_readme_advises_does_not_void_what_it_promises() -> None:
    """Settings are tried on public data, in another state folder: no private data are audited or swept to choose by."""
    for name in ("README.md", "docs/learning.md"):
        for command in re.findall(r"^.*mixveil audit .*$", (ROOT / name).read_text(), re.MULTILINE):
            assert "MIXVEIL_STATE=" in command or "for knowing" in command, f"{name}: {command}"
