from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(name: str, *arguments: str) -> str:
    script = str(ROOT / "examples" / name)
    done = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_encoding_a_folder(tmp_path: Path) -> None:
    assert "certified: True" in run("encode_a_folder.py", str(tmp_path / "out"))


def test_a_loop_with_mixed_batches() -> None:
    shown = run("batch_transform.py")
    accuracies = [float(percent) for percent in re.findall(r"batches: ([\d.]+)%", shown)]
    assert len(accuracies) == 2 and min(accuracies) > 80  # guessing: 10
    assert "promised: nothing" in shown


@pytest.mark.skipif("MIXVEIL_TRIAL" not in os.environ, reason="45 s of processes that test_network starts too")
def test_three_hospitals_learn_together(tmp_path: Path) -> None:
    shown = run("three_hospitals.py", str(tmp_path / "trial"))
    assert shown.count("kB, has the model") == 6  # as it ran, and as its status says
    assert "learns of no record of one party more than 3-GDP permits" in " ".join(shown.split())
    assert "together a record is 3-GDP" in shown


def test_every_example_is_run() -> None:
    tests = Path(__file__).read_text()
    assert all(f'run("{script.name}"' in tests for script in (ROOT / "examples").glob("*.py"))


def test_the_commands_of_the_readme_run_as_written(tmp_path: Path) -> None:
    """Every `$ mixveil …` of the README, in order, in one folder."""
    commands = re.findall(r"^\$ mixveil (.+)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(commands) >= 3
    for command in commands:
        words = [sys.executable, "-m", "mixveil.cli.main", *shlex.split(command)]
        environment = {**os.environ, "MIXVEIL_STATE": str(tmp_path / "state")}
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, f"{command}: {done.stderr}"
