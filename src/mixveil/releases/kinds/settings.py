"""What a kind of payload brings: its settings, what follows from them, and the check of its files."""

from __future__ import annotations

import dataclasses
import typing
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar

from mixveil.core import strict_json, tensor_files
from mixveil.core.errors import FalseClaimError, ManifestError
from mixveil.core.types import Cost, Guarantee
from mixveil.core.wording.notes import Note, note

if TYPE_CHECKING:
    from torch import Tensor

    from mixveil.releases.envelope import Envelope, File

T = TypeVar("T")


class Bounds(NamedTuple):
    """Where the values of a payload lie.

    Attributes:
        clip: The largest norm of a record, once its centre is subtracted; None: no bound.
        sigma: The standard deviation of the noise in one value; None: not known.
        centre: What is subtracted from every value.
        amplitude: The largest size of one value after that; None: no bound.
    """

    shape: tuple[int, ...]
    clip: float | None
    sigma: float | None
    centre: float
    amplitude: float | None


class PayloadSettings(ABC):
    """The settings of one payload: a frozen dataclass whose fields are public. A subclass declares the `name` of its
    kind. The methods below are right for a kind that promises nothing and has one file.

    Attributes:
        asset_names: The assets that an envelope of this kind may name.
        largest_file: The most bytes of one file.
    """

    name: ClassVar[str]
    asset_names: ClassVar[frozenset[str]] = frozenset()
    largest_file: ClassVar[int] = 128 << 20

    # To and from JSON

    @classmethod
    def parse(cls, item: Mapping[str, Any]) -> Self:
        """From JSON of another party. This method reads fields that are numbers, flags and texts."""
        return parsed_fields("payload", cls, item)

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(typing.cast("Any", self))

    # What follows from them

    def check(self, envelope: Envelope) -> None:  # noqa: B027
        """Refuse an envelope that these settings contradict."""

    def claims(self) -> Mapping[str, Guarantee]:
        """What these settings guarantee for any records at all, by the guarantee's name, and on what conditions. A
        certified manifest states all of it."""
        return {}

    def cost(self) -> Cost | None:
        """What any record pays for being released with these settings; None: there is no bound."""
        return None

    def fact_origins(self) -> Mapping[str, frozenset[str]]:
        """The facts that a certified guarantee names beside its conditions, and the origins that each may have."""
        return {}

    def check_stated(self, stated: Guarantee) -> None:
        """Refuse a guarantee without a certificate, unless this kind has such guarantees and it is complete."""
        raise FalseClaimError(f"{stated.name!r:.60}: {self.name} have no guarantee without a certificate")

    def labels(self, *, randomised: bool) -> str:
        """The code of what is said of labels."""
        return "labels-randomised" if randomised else "labels-shown"

    @property
    def labels_covered(self) -> bool:
        """Whether the μ of a certified release covers labels too: they are neither shown nor randomised."""
        return False

    def not_promised(self, guarantees: tuple[Guarantee, ...]) -> tuple[str, ...]:
        """The codes of what this kind does not promise, beside what is said of labels and units."""
        return () if any(stated.name == "gdp" for stated in guarantees) else ("nothing-promised",)

    @property
    def unit_rows(self) -> int:
        """The most rows that one unit has."""
        return 1

    @property
    def defence(self) -> str:
        """What made the payload, as the ledger names it: a code."""
        return self.name

    @property
    def noise(self) -> float | None:
        """The standard deviation of the noise of one value, for the ledger; None: no noise is stated."""
        return None

    @property
    def bounds(self) -> Bounds | None:
        """Where its values lie; None where it has no rows of values."""
        return None

    def rows(self, files: Sequence[File]) -> int:
        """The number of rows, or of records."""
        return sum(file.rows or 0 for file in files)

    def note(self, envelope: Envelope) -> Note:
        """What it is, for people."""
        sizes = {"files": len(envelope.files), "megabytes": envelope.bytes / 1e6}
        return note("held", kind=self.name, party=envelope.party, **sizes)

    # Its files

    def file_names(self, count: int) -> list[str]:
        """The names that its files must have, in this order."""
        return [f"{self.name}.safetensors"]

    @property
    def header(self) -> int:
        """The most bytes of a file's header."""
        return tensor_files.HEADER

    @abstractmethod
    def file_bytes(self, file: File, envelope: Envelope) -> int:
        """The most bytes that all values of a file take."""

    @abstractmethod
    def checked(self, where: str, tensors: Mapping[str, Tensor], file: File, envelope: Envelope) -> Any:
        """What a file holds, if its tensors have the names, dtypes, shapes and ranges that follow from these settings.
        where: names the file in errors."""

    def content(self, parts: Sequence[Any]) -> Any:
        """The payload, from what its files hold."""
        return parts[0]


def parsed_fields(where: str, kind: type[T], item: Mapping[str, Any]) -> T:
    """A dataclass from JSON of another party: every field must be there and of its type, and no other."""
    hints = typing.get_type_hints(kind)
    strict_json.only(where, item, {field.name for field in dataclasses.fields(typing.cast("Any", kind))})
    for name, value in item.items():
        too_large = isinstance(value, int) and abs(value) >= 1 << 48
        if too_large or not strict_json.fits(value, hints[name]):
            raise ManifestError(f"{where}.{name} cannot be {strict_json.shown(value)}")
    with strict_json.within(where):
        return kind(**item)


def numbered(count: int) -> list[str]:
    """The names of so many shards."""
    return [f"shard-{number:05d}.safetensors" for number in range(count)]
