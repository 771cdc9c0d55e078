"""Representations: what the first part of a network, at a party, sends to the rest of it. They promise nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from mixveil.core.errors import ManifestError
from mixveil.core.types import Batch
from mixveil.core.wording.notes import Note, note
from mixveil.releases.kinds.records import Records, check_finite, check_labels, checked_batch
from mixveil.releases.kinds.settings import PayloadSettings, numbered

if TYPE_CHECKING:
    from mixveil.releases.envelope import Envelope, File


@dataclass(frozen=True)
class RepresentationSettings(PayloadSettings):
    """The settings of representations: rows of so many float32 values; the labels have no columns where none are
    sent."""

    name: ClassVar[str] = "representations"
    values: int
    labelled: bool

    def check(self, envelope: Envelope) -> None:
        if self.values < 1:
            raise ManifestError(f"payload.values must be at least 1, got {self.values}")
        if any(file.rows is None for file in envelope.files):
            raise ManifestError("each file of representations must say how many rows it has")
        if envelope.label_epsilon is not None:
            raise ManifestError("label_epsilon must be null: representations may show labels themselves")

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
