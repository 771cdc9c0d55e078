"""What a server and a party say to each other: a few settings and named files. How it travels is another's business."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from mixveil.core import strict_json
from mixveil.core.errors import ArgumentError, ManifestError

VERSION = 1
MANIFEST, MANIFEST_LIMIT = "manifest.json", 8 << 20
INLINE = 1 << 20
"""Bytes of files that are sent with a manifest: a small release needs no further question."""

PROJECTION_LIMIT, MODELS_LIMIT = 64 << 20, 512 << 20
"""Bytes that a party takes from a server: of a projection, and of all models of one job."""

Method = Literal["one-shot", "two-step", "fedavg", "fedprox"]
METHODS: tuple[Method, ...] = get_args(Method)
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""Of a job or of a party that sends over a network: it names a folder at the other end."""


@dataclass(frozen=True)
class Parcel:
    """about: settings, as JSON has them; files: by their names."""

    about: Mapping[str, Any]
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @property
    def bytes(self) -> int:
        return sum(len(data) for data in self.files.values())


PROJECTION_LIMIT = 64 << 20
"""Bytes of a projection that a party takes from a server."""

MESSAGE_LIMIT = 256 << 20
"""Bytes of any message to a party: the largest honest one is a model of wide layers."""

SMALL = 1 << 20
"""Bytes of an answer that says something, and brings no files."""

Ask = Callable[[Parcel, int], Parcel]
"""Send a party a parcel, and wait for its answer, which may have so many bytes: more are not taken."""


@dataclass(frozen=True)
class Task:
    """The job that a parcel belongs to. id: drawn when the job began, so that no job is taken for another; method: what
    is done in it."""

    id: str
    name: str
    method: Method

    def plain(self) -> dict[str, Any]:
        return {"version": VERSION, "job": self.id, "name": self.name, "method": self.method}

    @classmethod
    def read(cls, about: Mapping[str, Any]) -> Task:
        """From what another machine says."""
        if about.get("version") != VERSION:
            raise ManifestError(f"it speaks version {strict_json.shown(about.get('version'))}, this mixveil {VERSION}")
        method = strict_json.text("method", about.get("method"), "|".join(METHODS))
        return cls(
            strict_json.text("job", about.get("job"), r"[0-9a-f]{32}"),
            strict_json.text("name", about.get("name"), NAME),
            next(known for known in METHODS if known == method),
        )


def check_name(what: str, name: str) -> str:
    if not re.fullmatch(NAME, name):
        raise ArgumentError(
            f"{what} must be at most 64 letters, digits, dots, dashes and underscores, and begin with a letter or "
            f"digit, got {name!r:.80}"
        )
    return name


def printable(text: str) -> str:
    """What others said, in one line: they must not write ours, nor with many blanks seem to.

    >>> printable("no" + chr(10) + "05:00 a:   rejected" + chr(27) + "[2J")
    'no?05:00 a: rejected?[2J'
    """
    return re.sub(" {2,}", " ", "".join(character if character.isprintable() else "?" for character in text))
