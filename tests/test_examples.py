from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(script: Path, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(script), str(tmp_path / "out")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "certified: True" in done.stdout


def test_the_commands_of_the_readme_run_as_written(tmp_path: Path) -> None:
    """Every `$ mixveil …` of the README, in order, in one folder."""
    commands = re.findall(r"^\$ mixveil (.+)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(commands) >= 3
    for command in commands:
        words = [sys.executable, "-m", "mixveil.cli.main", *shlex.split(command)]
        environment = {**os.environ, "MIXVEIL_STATE": str(tmp_path / "state")}
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, f"{command}: {done.stderr}"
