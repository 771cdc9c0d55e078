"""Every error that mixveil raises on purpose. Each names what is wrong, its value, and what would be right.

Programs compare the `code` of an error; its `kind` decides the exit code of a command. Its message is for people, and
may change at any time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Literal

Kind = Literal["usage", "refused", "invalid", "failed", "stopped"]

EXIT_CODES: Mapping[Kind, int] = {"usage": 2, "refused": 3, "invalid": 4, "failed": 5, "stopped": 130}
"""The exit code of a command, by the kind of its error.

    usage: the command cannot be done as it was given; refused: it would break a rule of the data owner, or a promise;
    invalid: a release, a model or data are not what they should be; failed: a training, a server or a disk failed;
    stopped: the user stopped a training, which the same command continues.
"""


def one_line(text: str, most: int = 1500) -> str:
    """Text that another party may have written, in one line of at most so many characters. It can neither begin new
    lines, nor steer a terminal, nor turn the direction of what follows.

    >>> one_line("no" + chr(10) + "verified" + chr(27) + "[2J" + chr(0x202E))
    'no?verified?[2J?'
    """
    shown = text if len(text) <= most else f"{text[: most - 1]}…"
    return "".join(character if character.isprintable() else "?" for character in shown)


class MixveilError(Exception):
    """The root: catch this to catch everything that mixveil raises on purpose. Its message is one printable line.

    Attributes:
        code: What went wrong, for programs: the name of the class in lower case with hyphens, unless it has its own.
        kind: See `EXIT_CODES`; a class inherits it.
    """

    code: ClassVar[str] = "mixveil"
    kind: ClassVar[Kind] = "usage"

    def __init_subclass__(cls, *, kind: Kind | None = None) -> None:
        super().__init_subclass__()
        cls.kind = kind or cls.kind
        if "code" not in vars(cls):
            cls.code = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cls.__name__.removesuffix("Error")).lower()

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.kind]

    def plain(self) -> dict[str, str]:
        """For JSON."""
        return {"code": self.code, "type": type(self).__name__, "message": str(self)}

    def __str__(self) -> str:
        return one_line(super().__str__())


class ArgumentError(MixveilError, ValueError):
    """An argument is out of its domain."""


class TooLittleMemoryError(MixveilError):
    """A job would need more memory than is free."""


class NotCalibratedError(MixveilError):
    """An encoder was asked to encode before `calibrate` gave it its noise."""


class PrivateFactError(MixveilError, kind="refused"):
    """Something that depends on the private records would be used, or called public, where a promise forbids it."""


class MissingFactError(MixveilError):
    """A calibration needs a number that it was not given."""


class StreamError(MixveilError):
    """A random stream was used in a way that would repeat its draws."""


class UnreadableFileError(MixveilError, kind="invalid"):
    """A file cannot be read: it is not there, is no plain file, or is larger than a file of its kind can be."""


class MissingPathError(MixveilError):
    """A release, model, projection, audit or file of results is not where the user says."""


class MissingDependencyError(MixveilError, kind="failed"):
    """An optional package is needed for this and is not installed."""


class StateError(MixveilError, kind="failed"):
    """The owner's state folder, or another folder of the owner's own, cannot be used."""


class LedgerError(StateError):
    """The ledger cannot be read or written, so nothing can be released."""


class LedgerBusyError(LedgerError):
    """Another process held the ledger for too long."""


class BudgetError(MixveilError, kind="refused"):
    """A release would cost some record more than its owner allows."""


class OutputError(MixveilError, kind="failed"):
    """The output cannot be written where it was asked for."""


class OutputExistsError(OutputError, kind="usage"):
    """The output is already there; nothing is ever overwritten."""


class ScreenedOutError(OutputError):
    """Screening left too few rows for a release."""


class DataError(MixveilError, kind="invalid"):
    """A data set cannot be used."""


class DataNotFoundError(DataError, kind="usage"):
    """The data set is not where it was looked for."""


class MismatchError(MixveilError):
    """Things that were given together do not belong together."""


class TrainingError(MixveilError, kind="failed"):
    """A training cannot go on."""


class RefusedError(MixveilError, kind="refused"):
    """What another machine asks for, or sends, is not taken. The reason may be told to it."""


class SecureSumError(RefusedError):
    """The messages of a secure sum are not those that its parties agreed on: this party sends nothing."""


class ServiceError(MixveilError, kind="failed"):
    """A server or a party cannot be started, or cannot be reached."""


class BusyError(ServiceError):
    """Another process is at work in the same folder."""


class TrainingStopped(MixveilError, kind="stopped"):  # noqa: N818
    """A training was asked to stop, and can go on later."""


class ProjectionError(DataError):
    """A projection and what should go through it, or came through it, do not belong together."""


class WeightsError(DataError):
    """The weights of a backbone are not where they were looked for, or are those of another network."""


class DataFormatError(DataError):
    """A file is not in the format it should be in."""


class UnreadableImageError(DataError):
    """Image files cannot be decoded. `files` has a line for each: its path and the reason."""

    def __init__(self, *files: str) -> None:
        super().__init__(*files)
        self.files = files

    def __str__(self) -> str:
        """How many, and the first fifty of them.

        >>> print(UnreadableImageError("a.png: does not exist", "b.png: does not exist"))
        2 image files cannot be read:
        a.png: does not exist
        b.png: does not exist
        """
        count, shown = len(self.files), 50
        lines = [f"{count} image file{'s' * (count != 1)} cannot be read:", *map(one_line, self.files[:shown])]
        return "\n".join(lines if count <= shown else [*lines, f"… and {count - shown} more"])


class PixelError(DataError):
    """A pixel is not finite, or lies outside the data set's stated range."""


class LabelError(DataError):
    """A label is outside the classes."""


class TooFewRowsError(DataError):
    """Too few rows to pair."""


class WrongTruthError(DataError):
    """The data handed to an audit are not those that the release was made of."""


class ReleaseError(MixveilError, kind="invalid"):
    """A release does not verify."""


class UnreadableReleaseError(ReleaseError):
    """The operating system does not let a release be read."""


class ManifestError(ReleaseError):
    """The manifest is missing, is not JSON, or has missing, unknown or ill-typed fields."""


class VersionError(ReleaseError):
    """The manifest is of a format version that this mixveil does not read."""


class MissingShardError(ReleaseError):
    """A shard that the manifest names is not there, or is not a plain file."""


class ShardSizeError(ReleaseError):
    """A shard is shorter or longer than the manifest says."""


class ShardFormatError(ReleaseError):
    """A shard is not a safetensors file: a pickle, or something else."""


class ShapeError(ReleaseError):
    """A shard's tensors have other names, shapes or row counts than the manifest says."""


class DtypeError(ReleaseError):
    """A shard's tensors have another dtype than the encoder releases."""


class HashError(ReleaseError):
    """A shard's bytes are not those that the manifest was written for."""


class NotFiniteError(ReleaseError):
    """A released value or label is NaN or infinite."""


class GridError(ReleaseError):
    """A released grid index is outside the range that the encoder can produce."""


class SimplexError(ReleaseError):
    """A released label is negative or does not sum to one."""


class FalseClaimError(ReleaseError):
    """The manifest claims more privacy than its own settings give."""
