"""Sums: noisy sums over all units of a party, on a grid. A unit is one record, or all records of one person.

    S = Σ_units clip(Σ_rows contribution) + round(N(0, σ²I))

All of it is in whole steps of the grid: a unit's contribution is rounded before it is added, and clipped so that its
norm holds in exact arithmetic (`releases/contributions.py`, `theory/clipping.py`). As the sum is an integer, S is the
rounded sum of a Gaussian mechanism.

What a row (z, label y) with ‖z‖ ≤ C contributes:
- class sums: e_y ⊗ (z, C), so that the last value of a class counts its rows; a unit's are clipped to √2·C together;
- residual sums: (softmax(Wᵀz + b) − e_y) ⊗ (z, 1), for a head (W, b) that the server sent; clipped to C_g.

Formal guarantees
- Replacing a unit, its labels with it, by any other moves S by at most 2C (class sums) or 2C_g (residual sums): every
  unit is μ-GDP, μ = 2·clip/σ, against an attacker who knows everything else. Only the number of units is public.
  - Class sums: two contributions u, v have u·v ≥ 0, since rows of one class give z·z' + C² ≥ 0. So ‖u − v‖² is at most
    ‖u‖² + ‖v‖² ≤ 4C².
  - Residual sums: ‖u − v‖ ≤ 2C_g, whatever head the server sent.
- Shared noise (secure sums): where only the sum over parties is seen, and h of them are honest, σ² is an h-th of the
  noise that μ needs. Then μ = 2·clip/(σ√h) holds with h honest parties, and μ·√h whatever the others do, for a record
  that this party alone has: one that m parties have is in the sum m times (`theory/shared_noise.py`).
- What is computed from sums (directions, means, a model) is post-processing and costs nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self, cast

import torch
from torch import Tensor

from mixveil.core import checks, randomness, strict_json
from mixveil.core.errors import GridError, ManifestError, MismatchError, ShapeError, VersionError
from mixveil.core.types import ANY_ROWS, Cost, Guarantee, Release
from mixveil.core.wording.notes import Note, note
from mixveil.releases.kinds.settings import Bounds, PayloadSettings
from mixveil.theory import gdp

if TYPE_CHECKING:
    from mixveil.releases.envelope import Envelope, File

Content = Literal["classes", "residuals"]
Per = Literal["record", "unit"]
FIELDS: Final = {"what", "per", "units", "class_count", "dimension", "clip", "sigma", "step", "honest", "masked"}
FINEST, COARSEST = 2.0**-40, 0.25
"""A step of the grid over the noise of a value. Shared noise of four steps and more is as good as unrounded noise."""


@dataclass(frozen=True)
class SumSettings(PayloadSettings):
    """The settings of sums; the payload is (class_count, dimension + 1) float64.

    Attributes:
        what: What is summed: records of each class, or residuals of a head.
        per: What is clipped: a record, or a unit of any number of records.
        units: How many of those there are.
        class_count: Classes; every class is sent.
        dimension: Values of a record. A sum has one more, for the count or the bias.
        clip: The largest norm C of a record, or C_g of a unit's residuals.
        sigma: The standard deviation of the noise of one value that the party itself added.
        step: Of the grid on which values are sent.
        honest: How many honest parties share the noise; 1: the party added all of it.
        masked: Whether the values are hidden by masks that vanish in the sum over parties.
    """

    name: ClassVar[str] = "sums"
    asset_names: ClassVar[frozenset[str]] = frozenset({"projection", "head"})
    largest_file: ClassVar[int] = 1 << 30
    what: Content
    per: Per
    units: int
    class_count: int
    dimension: int
    clip: float
    sigma: float
    step: float
    honest: int = 1
    masked: bool = False

    @classmethod
    def parse(cls, item: Mapping[str, Any]) -> Self:
        if "counts" in item:
            raise VersionError("these statistics show how many records of each class there are: make them again")
        strict_json.only("payload", item, FIELDS)
        return cls(
            what=cast("Content", strict_json.text("what", item["what"], "classes|residuals")),
            per=cast("Per", strict_json.text("per", item["per"], "record|unit")),
            units=_count("units", item["units"]),
            class_count=_count("class_count", item["class_count"]),
            dimension=_count("dimension", item["dimension"]),
            clip=_size("clip", item["clip"]),
            sigma=_size("sigma", item["sigma"]),
            step=_size("step", item["step"]),
            honest=_count("honest", item["honest"]),
            masked=strict_json.flag("masked", item["masked"]),
        )

    def check(self, envelope: Envelope) -> None:
        if self.class_count != len(envelope.classes):
            raise ManifestError(f"class_count is {self.class_count}, and there are {len(envelope.classes)} classes")
        wanted = {"projection", "head"} if self.what == "residuals" else {"projection"}
        if {*envelope.assets} != wanted:
            raise ManifestError(f"assets must name {' and '.join(sorted(wanted))}: sums are of projected records")
        if any(file.rows is not None for file in envelope.files):
            raise ManifestError("file.rows must be null: sums have no rows")
        if envelope.label_epsilon is not None:
            raise ManifestError("label_epsilon must be null: the noise of sums covers labels")
        if not FINEST * self.sigma <= self.step <= COARSEST * self.sigma:
            raise ManifestError(f"step is {self.step:g}, and must be at most a quarter of the noise {self.sigma:g}")
        if (self.honest > 1) != self.masked:
            raise ManifestError("honest and masked: noise is shared where masks hide the values, and only there")

    def claims(self) -> Mapping[str, Guarantee]:
        """`gdp` with as many honest parties as the noise is shared by; `gdp-alone` whatever the others do."""
        alone = gdp.mu_of(2 * self.clip, self.sigma)
        neighbours = {"record": "replace-record-and-label", "unit": "replace-unit-and-labels"}[self.per]
        conditions = {"neighbours": neighbours, "attacker": "knows-all-else", "noise": "gaussian-exact"}
        if self.honest == 1:
            return {"gdp": Guarantee("gdp", alone, alone, conditions)}
        mu = alone / math.sqrt(self.honest)
        shared = {**conditions, "attacker": "sees-sum-with-honest", "noise": "gaussian-shared"}
        return {
            "gdp": Guarantee("gdp", mu, mu, shared),
            "gdp-alone": Guarantee("gdp-alone", alone, alone, conditions),
        }

    def cost(self) -> Cost:
        """A unit that was clipped pays once, whatever its records; m records that were clipped alone pay m times."""
        mu = gdp.mu_of(2 * self.clip, self.sigma) / math.sqrt(self.honest)
        return Cost(mu, mu, 0.0 if self.per == "unit" else 1.0)

    def fact_origins(self) -> Mapping[str, frozenset[str]]:
        return dict.fromkeys(("clip", "centre", "projection"), frozenset({"public"}))

    def labels(self, *, randomised: bool) -> str:
        return "labels-covered"

    @property
    def labels_covered(self) -> bool:
        return True

    @property
    def counts_off(self) -> float | None:
        """How far, as a standard deviation, an estimate of how many records a class has is off: by the noise of the
        last value of its sum, which counts `clip` for each record. Where records are the units their number is public,
        which the counts must add up to. Shared noise is that of the honest parties together. None of residual sums."""
        if self.what != "classes":
            return None
        off = self.sigma * math.sqrt(self.honest) / self.clip
        return off * math.sqrt(1 - 1 / self.class_count) if self.per == "record" else off

    def not_promised(self, guarantees: tuple[Guarantee, ...]) -> tuple[str, ...]:
        if not any(stated.name == "gdp" for stated in guarantees):
            return ("nothing-promised",)
        return ("noise-is-shared",) if self.honest > 1 else ()

    @property
    def unit_rows(self) -> int:
        return ANY_ROWS if self.per == "unit" else 1

    @property
    def defence(self) -> str:
        """Where noise is shared it ends in the number of honest parties."""
        name = "class-sums" if self.what == "classes" else "residual-sums"
        return name if self.honest == 1 else f"{name}-shared-{self.honest}"

    @property
    def noise(self) -> float:
        return self.sigma

    @property
    def bounds(self) -> Bounds:
        return Bounds((self.dimension,), self.clip, self.sigma, 0.0, self.clip)

    @property
    def shape(self) -> tuple[int, int]:
        return self.class_count, self.dimension + 1

    def rows(self, files: Sequence[File]) -> int:
        return self.units

    def note(self, envelope: Envelope) -> Note:
        over = note(f"over-{self.per}", number=self.units)
        return note(
            f"held-{self.what}", party=envelope.party, classes=self.class_count, values=self.dimension, over=over
        )

    def file_bytes(self, file: File, envelope: Envelope) -> int:
        return 8 * self.class_count * (self.dimension + 1)

    def checked(self, where: str, tensors: Mapping[str, Tensor], file: File, envelope: Envelope) -> Tensor:
        if set(tensors) != {"sums"}:
            raise ShapeError(f"{where}: it holds {strict_json.shown(sorted(tensors))}, and should hold sums")
        indices = tensors["sums"]
        if indices.dtype != torch.int64 or indices.shape != self.shape:
            raise ShapeError(f"{where}: sums are {indices.dtype} of {tuple(indices.shape)}, not what the manifest says")
        if self.masked:
            return indices
        most = math.sqrt(2) * self.units * self.clip + (randomness.NORMAL_BOUND + 1) * self.sigma
        low, high = torch.aminmax(indices)
        if max(-int(low), int(high)) > most / self.step:
            raise GridError(f"{where}: the sums are larger than those of {self.units:,} units can be")
        return self.values(indices)

    def values(self, indices: Tensor) -> Tensor:
        """(class_count, dimension + 1) float64 sums, from indices on the grid."""
        return indices.double() * self.step


def sums_of(release: Release, content: Content = "classes") -> SumSettings:
    """The settings of a release of such sums; another is refused."""
    settings, named = release.envelope.settings, {"classes": "class sums", "residuals": "residual sums"}
    if not isinstance(settings, SumSettings):
        raise MismatchError(f"{release.id[:8]} of {release.party} holds {release.envelope.kind}, not {named[content]}")
    if settings.what != content:
        raise MismatchError(f"{release.id[:8]} of {release.party} holds {named[settings.what]}, not {named[content]}")
    return settings


def _size(name: str, item: Any) -> float:
    with strict_json.within("payload"):
        return checks.size(name, strict_json.number(name, item))


def _count(name: str, item: Any) -> int:
    with strict_json.within("payload"):
        return strict_json.count(name, item)
