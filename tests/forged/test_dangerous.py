"""What would keep a reader waiting, or fill the memory, in the place of every file that somebody else may write: pipes,
devices, links, folders, sparse terabytes and deep brackets. Through the command line, with an eye on its memory."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from mixveil.report.results import Results, provenance, write_results

TERABYTE = 1 << 40
ROOM = 100 << 10  # kB beyond what honest files take


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    path.touch()
    try:
        os.truncate(path, TERABYTE)
    except OSError:
        pytest.skip("this file system has no room for a sparse terabyte")


def brackets(path: Path) -> None:
    path.write_text("[" * 100_000)


def deep(path: Path) -> None:
    path.write_text('{"format": ' + "[" * 900 + "]" * 900 + "}")


def long_number(path: Path) -> None:
    path.write_text('{"version": ' + "9" * 4000 + ', "more": ' + "9" * 4400 + "}")


def many(path: Path) -> None:
    path.write_text("[" + ",".join(["[]"] * 1_000_000) + "]")


def blanks(path: Path) -> None:
    """A safetensors file with a header of 50 MB."""
    with path.open("wb") as file:
        file.write((50 << 20).to_bytes(8, "little"))
        file.truncate(8 + (50 << 20))


def link(path: Path) -> None:
    """To a file that would be right."""
    shutil.copy(path.with_name(f"{path.name}.kept"), path.parent.with_name("elsewhere"))
    path.symlink_to(path.parent.with_name("elsewhere"))


def listening(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(path.name)
    os.chdir(before)


DANGERS: tuple[Callable[[Path], None], ...] = (pipe, endless, sparse, Path.mkdir, link, listening, brackets, deep)
DANGERS += (long_number, blanks)


class Place(NamedTuple):
    """A file, and the command that reads it. made: the folder or file that it is in."""

    made: str
    file: str
    command: tuple[str, ...]


PLACES = (
    Place("release-0", "manifest.json", ("verify", "{}")),
    Place("release-0", "shard-00000.safetensors", ("verify", "{}")),
    Place("release-0", "manifest.json", ("train", "{}", "--out", "new")),
    Place("statistics", "manifest.json", ("verify", "{}")),
    Place("statistics", "sums.safetensors", ("verify", "{}", "--json")),
    Place("statistics", "manifest.json", ("directions", "{}", "--projection", "projection", "--out", "new")),
    Place("statistics", "sums.safetensors", ("train", "{}", "--projection", "projection", "--out", "new")),
    Place("alone", "projection", ("directions", "statistics", "--projection", "{}/projection", "--out", "new")),
    Place("alone", "projection", ("train", "statistics", "--projection", "{}/projection", "--out", "new")),
    Place("model", "card.json", ("predict", "{}", "data.npz")),
    Place("model", "model.safetensors", ("predict", "{}", "data.npz")),
    Place("audit", "audit.json", ("report", "{}")),
    Place("audit", "pictures.safetensors", ("report", "{}")),
    Place("alone", "results.json", ("results", "{}/results.json", "--json")),
)

HONEST = (
    ("verify", "release-0"),
    ("verify", "statistics"),
    ("directions", "statistics", "--projection", "projection", "--out", "fine"),
    ("train", "statistics", "--projection", "projection", "--out", "trained"),
    ("predict", "model", "data.npz"),
    ("results", "alone/results.json"),
)


@pytest.fixture
def place(honest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Honest files of all kinds, to be spoiled."""
    for made in ("release-0", "statistics", "model"):
        shutil.copytree(honest / made, tmp_path / made)
    shutil.copy(honest / "projection", tmp_path / "projection")
    (tmp_path / "alone").mkdir()
    shutil.copy(honest / "projection", tmp_path / "alone" / "projection")
    write_results(tmp_path / "alone" / "results.json", Results("t", provenance({}), ()))
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "audit.json").write_text("{}")
    (tmp_path / "audit" / "pictures.safetensors").write_bytes(b"\x02" + b"\0" * 7 + b"{}")
    np.savez(tmp_path / "data.npz", x=np.full((6, 1, 4, 4), 0.5, np.float32), y=np.arange(6) % 2)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def spoiled(place: Path, number: int, where: Place, danger: Callable[[Path], None]) -> list[str]:
    """The command that meets a danger."""
    folder = place / f"{number}"
    shutil.copytree(place / where.made, folder)
    file = folder / where.file
    file.rename(file.with_name(f"{file.name}.kept"))
    danger(file)
    return [word.format(folder) for word in where.command]


def test_nothing_dangerous_hangs_or_fills_the_memory(place: Path) -> None:
    bad = [(where, danger) for where in PLACES for danger in DANGERS] + [(PLACES[0], many)]
    commands = [spoiled(place, number, *pair) for number, pair in enumerate(bad)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.forged.commands"],
        input=json.dumps([list(words) for words in HONEST] + commands),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])},
    )
    found: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(HONEST) + len(commands), (len(found), done.stderr[-2000:])
    fine, refused = found[: len(HONEST)], found[len(HONEST) :]
    assert [item["code"] for item in fine] == [0] * len(HONEST), fine
    for words, item in zip(commands, refused, strict=True):
        assert item["code"] in (2, 4) and "Traceback" not in item["said"], (words, item)
        lines = item["said"].splitlines()
        assert len(lines) == (8 if "--json" in words else 1) and all(line.isprintable() for line in lines), (
            words,
            item,
        )
        assert len(item["said"]) < 4000 and item["kb"] < fine[-1]["kb"] + ROOM, (words, item)
    assert not (place / "new").exists()


def alone(*words: str) -> tuple[int, str, int]:
    """A command in a process of its own: its exit code, what it said, and the most memory it took in kB."""
    said = Path("said")
    with said.open("w") as file:
        child = subprocess.Popen([sys.executable, "-m", "mixveil", *words], stdout=file, stderr=subprocess.STDOUT)
    hangs = threading.Timer(600, child.kill)
    hangs.start()
    _, status, usage = os.wait4(child.pid, 0)
    hangs.cancel()
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, said.read_text(), usage.ru_maxrss


def test_the_same_as_a_user_would_see_it(place: Path) -> None:
    """A process each: what one took before hides what it takes later."""
    code, said, most = alone("verify", "release-0")
    assert code == 0 and "verified: every byte is as the manifest says." in said
    for number, (where, danger) in enumerate([(PLACES[0], pipe), (PLACES[1], sparse), (PLACES[9], endless)]):
        code, said, kb = alone(*spoiled(place, number, where, danger))
        assert code == 4 and "Traceback" not in said and said.startswith("error: ") and kb < most + ROOM, (said, kb)
