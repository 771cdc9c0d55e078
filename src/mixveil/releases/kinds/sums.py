"""Sums: noisy class sums of projected records, on a grid.

    s_c = Σ_{i of class c} z_i + N(0, σ²I),   ‖z‖ ≤ C

Formal guarantees
- Replacing a record by another with the same label moves one sum by at most 2C: every unit of m records is μ-GDP,
  μ = 2Cm/σ, against an attacker who knows everything else. The counts of the classes are public, as all labels are.
- What is computed from the sums (directions, means, a model) is post-processing and costs nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import torch
from torch import Tensor

from mixveil.core import checks, randomness, strict_json
from mixveil.core.errors import GridError, ManifestError, MismatchError, ShapeError
from mixveil.core.types import Cost, Guarantee, Release
from mixveil.core.wording.notes import Note, note
from mixveil.encoders.grid import GRID
from mixveil.encoders.noisy import gdp_conditions
from mixveil.releases.kinds.settings import Bounds, PayloadSettings

if TYPE_CHECKING:
    from mixveil.releases.envelope import Envelope, File


@dataclass(frozen=True)
class SumSettings(PayloadSettings):
    """The settings of class sums; the payload is (classes, dimension) float64.

    Attributes:
        counts: (classes,) the records that are said to be of each class.
        dimension: Values of a sum.
        clip: The largest norm C of a record.
        sigma: The standard deviation of the noise of one value.
    """

    name: ClassVar[str] = "sums"
    asset_names: ClassVar[frozenset[str]] = frozenset({"projection"})
    largest_file: ClassVar[int] = 1 << 30
    counts: tuple[int, ...]
    dimension: int
    clip: float
    sigma: float
    unit_rows: int = 1

    @classmethod
    def parse(cls, item: Mapping[str, Any]) -> Self:
        strict_json.only("payload", item, {"counts", "dimension", "clip", "sigma", "unit_rows"})
        return cls(
            counts=tuple(_count(count) for count in strict_json.items("counts", item["counts"])),
            dimension=strict_json.count("dimension", item["dimension"]),
            clip=_size("clip", item["clip"]),
            sigma=_size("sigma", item["sigma"]),
            unit_rows=strict_json.count("unit_rows", item["unit_rows"]),
        )

    def check(self, envelope: Envelope) -> None:
        if len(self.counts) != len(envelope.classes) or sum(self.counts) < 2:
            raise ManifestError("counts must be given for each class, and be at least 2 in all")
        if "projection" not in envelope.assets:
            raise ManifestError("assets.projection is missing: class sums are of projected records")
        if any(file.rows is not None for file in envelope.files):
            raise ManifestError("file.rows must be null: class sums have no rows")

    def claims(self) -> Mapping[str, Guarantee]:
        mu = 2 * self.clip * self.unit_rows / self.sigma
        return {"gdp": Guarantee("gdp", mu, mu, gdp_conditions(self.unit_rows))}

    def cost(self) -> Cost:
        """All m records of a unit may be in one sum, and cost m times as much as one."""
        mu = 2 * self.clip / self.sigma
        return Cost(mu, mu, 1.0)

    def fact_origins(self) -> Mapping[str, frozenset[str]]:
        return dict.fromkeys(("clip", "centre", "projection"), frozenset({"public"}))

    def labels(self, *, randomised: bool) -> str:
        return "labels-randomised-counted" if randomised else "labels-counted"

    def not_promised(self, guarantees: tuple[Guarantee, ...]) -> tuple[str, ...]:
        return ()

    @property
    def defence(self) -> str:
        return "class-sums"

    @property
    def noise(self) -> float:
        return self.sigma

    @property
    def bounds(self) -> Bounds:
        return Bounds((self.dimension,), self.clip, self.sigma, 0.0, self.clip)

    def rows(self, files: Sequence[File]) -> int:
        return sum(self.counts)

    def note(self, envelope: Envelope) -> Note:
        sizes = {"classes": len(envelope.classes), "values": self.dimension, "rows": envelope.rows}
        return note("held-sums", party=envelope.party, **sizes)

    def file_bytes(self, file: File, envelope: Envelope) -> int:
        return 8 * len(self.counts) * self.dimension

    def checked(self, where: str, tensors: Mapping[str, Tensor], file: File, envelope: Envelope) -> Tensor:
        if set(tensors) != {"sums"}:
            raise ShapeError(f"{where}: it holds {strict_json.shown(sorted(tensors))}, and should hold sums")
        indices = tensors["sums"]
        if indices.dtype != torch.int64 or indices.shape != (len(self.counts), self.dimension):
            raise ShapeError(f"{where}: sums are {indices.dtype} of {tuple(indices.shape)}, not what the manifest says")
        most = max(self.counts) * self.clip + (randomness.NORMAL_BOUND + 1) * self.sigma
        low, high = torch.aminmax(indices)
        if max(-int(low), int(high)) > most / (self.sigma * GRID):
            raise GridError(f"{where}: the sums are larger than those of the counted records can be")
        return self.values(indices)

    def values(self, indices: Tensor) -> Tensor:
        """(classes, dimension) float64 sums, from indices on the grid."""
        return indices.double() * (self.sigma * GRID)


def sums_of(release: Release) -> SumSettings:
    """The settings of a release of class sums; another is refused."""
    if release.envelope.kind != SumSettings.name:
        raise MismatchError(f"{release.id[:8]} of {release.party} holds {release.envelope.kind}, not class sums")
    return cast("SumSettings", release.envelope.settings)


def _size(name: str, item: Any) -> float:
    with strict_json.within("payload"):
        return checks.size(name, strict_json.number(name, item))


def _count(item: Any) -> int:
    if type(item) is not int or not 0 <= item < 1 << 48:
        raise ManifestError(f"a count cannot be {strict_json.shown(item)}")
    return item
