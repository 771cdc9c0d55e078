"""What the `run` fixture of conftest.py gives, and what a command left behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from mixveil.core import errors
from mixveil.releases.ledger import Ledger


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Result]


def left(folder: Path) -> list[str]:
    """What lies there besides an empty ledger."""
    assert not Ledger().entries() and not list((folder / "state").glob("traces/*"))
    return sorted(path.name for path in folder.iterdir() if path.name != "state")


def refused(result: Result, error: str) -> bool:
    """Whether a command was refused by this error, with its code and the exit code of its kind."""
    kind = getattr(errors, error)
    told = result.json["error"]
    return (result.code, told["type"], told["code"]) == (errors.EXIT_CODES[kind.kind], error, kind.code)


def flip(shard: Path) -> None:
    """Damage a file in its last byte."""
    data = bytearray(shard.read_bytes())
    data[-1] ^= 255
    shard.write_bytes(data)
