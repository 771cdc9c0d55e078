"""Representations: what the first part of a network, at a party, sends to the rest of it. They promise nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor

from mixveil.core import strict_json
from mixveil.core.errors import ManifestError
from mixveil.core.types import Batch, Guarantee
from mixveil.core.wording.notes import Note, note
from mixveil.releases.kinds.records import Records, check_finite, check_labels, checked_batch
from mixveil.releases.kinds.settings import PayloadSettings, numbered

if TYPE_CHECKING:
    from mixveil.releases.envelope import Envelope, File

_MOST_SIZES, _MOST_VALUES = 8, 1 << 24


@dataclass(frozen=True)
class RepresentationSettings(PayloadSettings):
    """The settings of representations: float32 rows, which are what the client half of a split network makes of images.
    The half is public; the asset `client` is its digest.

    Attributes:
        shape: Of what the half makes of one image. Rows are flat.
        labelled: Whether labels are sent too; else they have no columns.
    """

    name: ClassVar[str] = "representations"
    asset_names: ClassVar[frozenset[str]] = frozenset({"client"})
    shape: tuple[int, ...]
    labelled: bool

    @classmethod
    def parse(cls, item: Mapping[str, Any]) -> Self:
        strict_json.only("payload", item, {"shape", "labelled"})
        shape = tuple(strict_json.count("shape", size) for size in strict_json.items("shape", item["shape"]))
        return cls(shape, strict_json.flag("labelled", item["labelled"]))

    def plain(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "labelled": self.labelled}

    @property
    def values(self) -> int:
        return math.prod(self.shape)

    def check(self, envelope: Envelope) -> None:
        if not 0 < len(self.shape) <= _MOST_SIZES or not 0 < self.values <= _MOST_VALUES:
            raise ManifestError(f"payload.shape cannot be {strict_json.shown(list(self.shape))}")
        if any(file.rows is None for file in envelope.files):
            raise ManifestError("each file of representations must say how many rows it has")
        if envelope.label_epsilon is not None:
            raise ManifestError("label_epsilon must be null: representations may show labels themselves")

    def not_promised(self, guarantees: tuple[Guarantee, ...]) -> tuple[str, ...]:
        order = () if self.labelled else ("rows-in-data-order",)
        return (*super().not_promised(guarantees), *self.unpromised, *order)

    @property
    def unpromised(self) -> tuple[str, ...]:
        """Codes of what is known of inverting representations, whatever an attack gets."""
        return ("hardness-not-promised",)

    def labels(self, *, randomised: bool) -> str:
        return "labels-shown" if self.labelled else "labels-not-sent"

    @property
    def defence(self) -> str:
        return "split"

    def note(self, envelope: Envelope) -> Note:
        sizes = {"rows": envelope.rows, "values": self.values, "megabytes": envelope.bytes / 1e6}
        return note("held-representations", party=envelope.party, **sizes)

    def file_names(self, count: int) -> list[str]:
        return numbered(count)

    def columns(self, envelope: Envelope) -> int:
        """Of the labels."""
        return len(envelope.classes) if self.labelled else 0

    def file_bytes(self, file: File, envelope: Envelope) -> int:
        return (file.rows or 0) * 4 * (self.values + self.columns(envelope))

    def checked(self, where: str, tensors: Mapping[str, Tensor], file: File, envelope: Envelope) -> Batch:
        batch = checked_batch(where, tensors, torch.float32, (self.values,), file, self.columns(envelope))
        check_finite(where, batch.x)
        if self.labelled:
            check_labels(where, batch.y)
        return batch

    def content(self, parts: Sequence[Batch]) -> Records:
        return Records(tuple(parts), None)
