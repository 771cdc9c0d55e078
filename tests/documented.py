"""Commands in documents: lines `$ mixveil …` are run as they are written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.command import Run

ROOT = Path(__file__).parents[1]
_LINE = re.compile(r"^\$ ((?:.*\\\n)*.*)$", re.MULTILINE)
_COMMAND = re.compile(r"^((?:[A-Z_]+=\S+ )*)mixveil (.+)$", re.DOTALL)


class Command(NamedTuple):
    """given: NAME=VALUE before it, its environment; words: after `mixveil`."""

    given: tuple[str, ...]
    words: str


def commands(page: Path) -> list[Command]:
    """Every `$ mixveil …` of a document, in order. Other lines that begin with `$ ` are refused: they would look as if
    they were run."""
    found = []
    for line in _LINE.findall(page.read_text(encoding="utf-8")):
        command = _COMMAND.match(line.replace("\\\n", " "))
        assert command is not None, f"{page.relative_to(ROOT)}: begin lines that are not run without `$ `: {line}"
        found.append(Command(tuple(command[1].split()), command[2]))
    return found


def run_as_written(page: Path, run: Run, folder: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the commands of a document in one folder, `$PWD`, and say how many they were."""
    found = commands(page)
    for given, words in found:
        more = dict(item.replace("$PWD", str(folder)).split("=", 1) for item in given)
        with monkeypatch.context() as patched:
            for name, value in {"MIXVEIL_STATE": str(state), **more}.items():
                patched.setenv(name, value)
            done = run(*shlex.split(words.replace("$PWD", str(folder))))
        assert done.code == 0, f"mixveil {words}: {done.err}"
    return len(found)
