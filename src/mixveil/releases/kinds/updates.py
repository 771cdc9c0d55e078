"""Updates: the weights of a model after a party's part of a round. They promise nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor

from mixveil.core import strict_json
from mixveil.core.errors import DtypeError, ManifestError, NotFiniteError, ShapeError
from mixveil.core.wording.notes import Note, note
from mixveil.releases.kinds.settings import PayloadSettings

if TYPE_CHECKING:
    from mixveil.releases.envelope import Envelope, File

_MOST_TENSORS, _MOST_SIZES = 10_000, 8
_HEADER_EACH = 300  # bytes of a header that one tensor takes: names are short


@dataclass(frozen=True)
class UpdateSettings(PayloadSettings):
    """The settings of updates; the payload is float32 tensors by name. method: what trained them, such as fedavg."""

    name: ClassVar[str] = "updates"
    largest_file: ClassVar[int] = 1 << 30
    method: str
    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def parse(cls, item: Mapping[str, Any]) -> Self:
        strict_json.only("payload", item, {"method", "shapes"})
        shapes = strict_json.mapping("shapes", item["shapes"])
        if not 0 < len(shapes) <= _MOST_TENSORS:
            raise ManifestError(f"shapes must name 1 to {_MOST_TENSORS:,} tensors, got {len(shapes):,}")
        return cls(
            strict_json.text("method", item["method"], r"[a-z][a-z0-9-]{0,39}"),
            {strict_json.text("a tensor's name", name, r"[\w.]{1,120}"): _shape(size) for name, size in shapes.items()},
        )

    def labels(self, *, randomised: bool) -> str:
        return "labels-in-updates"

    def check(self, envelope: Envelope) -> None:
        if envelope.label_epsilon is not None:
            raise ManifestError("label_epsilon must be null: nothing bounds what updates show of labels")
        if any(file.rows is not None for file in envelope.files):
            raise ManifestError("file.rows must be null: updates have no rows")

    @property
    def defence(self) -> str:
        return self.method

    @property
    def header(self) -> int:
        return super().header + _HEADER_EACH * len(self.shapes)

    def note(self, envelope: Envelope) -> Note:
        sizes = {"tensors": len(self.shapes), "megabytes": envelope.bytes / 1e6}
        return note("held-updates", method=self.method, party=envelope.party, **sizes)

    def file_bytes(self, file: File, envelope: Envelope) -> int:
        return sum(4 * math.prod(shape) for shape in self.shapes.values())

    def checked(
        self, where: str, tensors: Mapping[str, Tensor], file: File, envelope: Envelope
    ) -> Mapping[str, Tensor]:
        if {name: tuple(tensor.shape) for name, tensor in tensors.items()} != dict(self.shapes):
            raise ShapeError(f"{where}: its tensors do not have the names and shapes that the manifest says")
        for name, tensor in tensors.items():
            if tensor.dtype != torch.float32:
                raise DtypeError(f"{where}: {name} is {tensor.dtype}, not torch.float32")
            if not bool(tensor.isfinite().all()):
                raise NotFiniteError(f"{where}: a value of {name} is not finite")
        return tensors


def _shape(item: Any) -> tuple[int, ...]:
    sizes = tuple(strict_json.count("shape", size) for size in strict_json.items("shape", item))
    if len(sizes) > _MOST_SIZES or math.prod(sizes) > 1 << 48:
        raise ManifestError(f"a tensor cannot have the shape {strict_json.shown(item)}")
    return sizes
