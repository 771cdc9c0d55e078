"""What a server and a party send to each other: a few settings and named files. `transport` carries it.

A reason that another machine gives is a note, and is shown only if it is a known code with figures of their types.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from mixveil.core import strict_json
from mixveil.core.errors import ArgumentError, ManifestError, RefusedError
from mixveil.core.wording.notes import Note, note
from mixveil.core.wording.sentences import sentence
from mixveil.federated.methods.base import Method
from mixveil.federated.methods.catalogue import between_machines, method_named

VERSION = 1
MANIFEST, MANIFEST_LIMIT = "manifest.json", 8 << 20
INLINE = 1 << 20
"""Bytes of files that are sent with a manifest: a small release needs no further question."""

PROJECTION_LIMIT, MODELS_LIMIT = 64 << 20, 512 << 20
"""Bytes that a party takes from a server: of a projection, and of all models of one job."""

MESSAGE_LIMIT = 256 << 20
"""Bytes of any message to a party: the largest honest one is a model of wide layers."""

SMALL = 1 << 20
"""Bytes of an answer without files."""

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""Of a job or of a party that sends over a network: it names a folder at the other end."""

_TEXT = r"(?=.{1,80}$)[\w.+-]+(, [\w.+-]+)*"  # names, with commas between: no sentence of another machine is shown
_LARGEST = 1 << 53
WHOLE = {"bytes", "count", "features", "inputs", "most", "needed", "number", "size"}
"""Figures that are whole numbers; all others are names."""

FIGURES: dict[str, set[str]] = {
    "features-too-large": {"features"},
    "images-too-large": {"size", "most"},
    "method-not-allowed": {"party", "method"},
    "models-too-large": {"bytes", "most"},
    "other-name": {"known_as", "party"},
    "other-weights": {"extractor"},
    "other-width": {"extractor", "features", "inputs"},
    "projection-too-large": {"bytes", "most"},
    "too-many-models": {"most"},
    "too-many-waiting": {"count"},
    "wrong-step": {"method", "kinds"},
    "set-too-small": {"count", "needed"},
    "no-sum": {"number"},
    "no-majority": {"first", "second", "kind"},
    "nothing-learnt": {"error"},
    "server-error": {"error"},
    "too-few-agree-on-data": {"count", "needed", "kind"},
    "too-few-agreed": {"count", "needed"},
    "too-few-in-round": {"count", "needed", "number"},
    "too-few-sent": {"count", "needed", "kind"},
    "too-few-still-agree": {"count", "needed"},
}
"""The figures of each reason that has any: it is told with just these."""


@dataclass(frozen=True)
class Message:
    """What one machine sends to another: settings, as JSON has them, and files by name."""

    about: Mapping[str, Any]
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @property
    def bytes(self) -> int:
        return sum(len(data) for data in self.files.values())


Ask = Callable[[Message, int], Message]
"""Send a party a message, and wait for its answer. The number is the most bytes that the answer may have."""


@dataclass(frozen=True)
class JobId:
    """The job that a message belongs to. id: 32 hexadecimal digits, drawn when the job began, so that no job is taken
    for another."""

    id: str
    name: str
    method: str

    @property
    def rules(self) -> Method:
        """The method itself."""
        return method_named(self.method)

    def plain(self) -> dict[str, Any]:
        return {"version": VERSION, "job": self.id, "name": self.name, "method": self.method}

    @classmethod
    def read(cls, about: Mapping[str, Any]) -> JobId:
        """From what another machine says."""
        if about.get("version") != VERSION:
            raise ManifestError(f"it speaks version {strict_json.shown(about.get('version'))}, this mixveil {VERSION}")
        names = "|".join(map(re.escape, between_machines()))
        return cls(
            strict_json.text("job", about.get("job"), r"[0-9a-f]{32}"),
            strict_json.text("name", about.get("name"), NAME),
            strict_json.text("method", about.get("method"), names),
        )


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def check_name(what: str, name: str) -> str:
    if not re.fullmatch(NAME, name):
        raise ArgumentError(
            f"{what} must be at most 64 letters, digits, dots, dashes and underscores, and begin with a letter or "
            f"digit, got {name!r:.80}"
        )
    return name


def printable(text: str) -> str:
    """Text of another machine in one line: it can neither write a line of its own nor imitate one with many blanks.

    >>> printable("no" + chr(10) + "05:00 a:   rejected" + chr(27) + "[2J")
    'no?05:00 a: rejected?[2J'
    """
    return re.sub(" {2,}", " ", "".join(character if character.isprintable() else "?" for character in text))


class Refusal(RefusedError):  # noqa: N818
    """What another machine asks for, or sends, is not taken. The reason may be told to it.

    Attributes:
        note: The reason.
    """

    def __init__(self, code: str, **figures: Any) -> None:
        self.note = note(code, **figures)
        super().__init__(sentence(self.note))


def reason(error: BaseException, code: str) -> Note:
    """Why something failed on this machine. code: of errors that are not refusals; it has `error` and `detail`."""
    if isinstance(error, Refusal):
        return error.note
    return note(code, error=type(error).__name__, detail=printable(str(error)))


def told(item: Any, known: Collection[str]) -> Note:
    """A reason that another machine gave. known: the codes that it may use."""
    try:
        whole = strict_json.mapping("why", item)
        code = strict_json.text("code", whole.get("code"), "[a-z-]{1,60}")
        figures = strict_json.mapping("figures", whole.get("figures", {}))
        if code not in known or whole.keys() - {"code", "figures"} or {*figures} != FIGURES.get(code, set()):
            raise ManifestError("not a reason that this version knows")
        return Note(code, {name: _figure(name, value) for name, value in figures.items()})
    except ManifestError:
        return note("no-reason-given")


def _figure(name: str, value: Any) -> int | str:
    if name not in WHOLE:
        return strict_json.text(name, value, _TEXT)
    if type(value) is not int or not 0 <= value < _LARGEST:
        raise ManifestError(f"{name} must be a whole number, got {strict_json.shown(value)}")
    return value


class Slots:
    """How many large messages are under way at a time. One that takes longer than `seconds` gives its slot back, so
    that it does not keep the others waiting."""

    def __init__(self, count: int, seconds: float) -> None:
        self._free, self._seconds = threading.Semaphore(count), seconds

    @contextmanager
    def held(self) -> Iterator[None]:
        self._free.acquire()
        once = iter([self._free.release])

        def release() -> None:
            for free in once:
                free()

        timer = threading.Timer(self._seconds, release)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            release()
