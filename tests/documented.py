"""Commands in documents: lines `$ mixveil …` are run as they are written, and print what stands below them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from mixveil.cli._common import out
from tests.command import Run

ROOT = Path(__file__).parents[1]
_LINE = re.compile(r"^\$ ((?:.*\\\n)*.*)$", re.MULTILINE)
_BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_WIDTH = 125  # of the terminal that documents show
_DRAWN = re.compile(r"[─-╿]+")  # lines of tables
_NUMBER = re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{8,}\b|-?\d[\d.,:e-]*")
_COMMAND = re.compile(r"^((?:[A-Z_]+=\S+ )*)mixveil (.+)$", re.DOTALL)


class Command(NamedTuple):
    """given: NAME=VALUE before it, its environment; words: after `mixveil`; shown: what the document shows of what it
    prints, in pieces."""

    given: tuple[str, ...]
    words: str
    shown: tuple[str, ...] = ()


def commands(page: Path) -> list[Command]:
    """Every `$ mixveil …` of a document, in order. Other lines that begin with `$ ` are refused: they would look as if
    they were run."""
    text, found = page.read_text(encoding="utf-8"), []
    blocks = [(block.start(1), block.end(1)) for block in _BLOCK.finditer(text)]
    lines = list(_LINE.finditer(text))
    for line, after in zip(lines, [*lines[1:], None], strict=True):
        command = _COMMAND.match(line[1].replace("\\\n", " "))
        assert command is not None, f"{page.relative_to(ROOT)}: begin lines that are not run without `$ `: {line[1]}"
        end = next((stop for start, stop in blocks if start <= line.start() < stop), line.end())
        shown = text[line.end() : end if after is None else min(end, after.start())]
        found.append(Command(tuple(command[1].split()), command[2], pieces(shown)))
    return found


def pieces(shown: str) -> tuple[str, ...]:
    """Lines of output, without what differs from run to run; a line is in pieces where it has `…`."""
    lines = (piece for line in shown.splitlines() for piece in re.split(r"…", line))
    return tuple(piece for line in lines if (piece := plain(line)))


def plain(text: str) -> str:
    """Text without drawn lines and with each number as #, on one line."""
    return _NUMBER.sub("#", " ".join(_DRAWN.sub(" ", text).split()))


def run_as_written(page: Path, run: Run, folder: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the commands of a document in one folder, `$PWD`, and say how many they were. They must print what the
    document shows of their output, but for numbers."""
    found = commands(page)
    for given, words, shown in found:
        more = dict(item.replace("$PWD", str(folder)).split("=", 1) for item in given)
        with monkeypatch.context() as patched:
            patched.setattr(out, "_width", _WIDTH)
            for name, value in {"MIXVEIL_STATE": str(state), **more}.items():
                patched.setenv(name, value)
            done = run(*shlex.split(words.replace("$PWD", str(folder))))
        assert done.code == 0, f"mixveil {words}: {done.err}"
        printed = plain(done.out + " " + done.err)
        missing = [piece for piece in shown if piece not in printed]
        assert not missing, f"{page.name}: mixveil {words} does not print {missing} but {printed}"
    return len(found)
