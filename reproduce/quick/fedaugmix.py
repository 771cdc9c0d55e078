"""Fed-AugMix: Tables 2 and 3 by the scripts of the whole tables, on the digits."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from mixveil.report.results import read_results
from reproduce.enlarged import NAME
from reproduce.running import Row, run_module


def _made(module: str, *asked: str) -> Iterator[Row]:
    """The rows of a script, without its times."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        words = [*asked, "--data", folder, "--dataset", NAME, "--out", str(out)]
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            run_module(f"reproduce.fedaugmix.{module}", words)
        for row in read_results(out).rows:
            figures = {name: value for name, value in row["figures"].items() if not name.startswith("seconds")}
            yield {"settings": dict(row["settings"]), "figures": figures}


def inverted(seed: int, out: Path) -> Iterator[Row]:
    """Table 2."""
    small = ("--clients", "2", "--dealt", "10", "--severities", "2,10", "--attacks", "paper", "--steps", "300")
    asked = ("--stage", "untrained", "--device", "cpu", "--seed", str(seed))
    yield from _made("attack", "table2", *small, *asked)


def learnt(seed: int, out: Path) -> Iterator[Row]:
    """Table 3."""
    small = ("--rounds", "100", "--epochs", "2", "--every", "10", "--clients", "20")
    yield from _made("accuracy", *small, "--device", "cpu", "--seeds", "1", "--first-seed", str(seed))


TABLES: dict[str, Callable[[int, Path], Iterator[Row]]] = {"2": inverted, "3": learnt}
