"""Records: encoded rows with their soft labels, in shards."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor

from mixveil.core import checks, strict_json
from mixveil.core.errors import (
    DtypeError,
    FalseClaimError,
    GridError,
    ManifestError,
    NotFiniteError,
    ShapeError,
    SimplexError,
)
from mixveil.core.types import Batch, Cost, Encoder, Guarantee
from mixveil.core.wording.notes import Note, note
from mixveil.encoders.catalogue import encoder
from mixveil.encoders.grid import stored_dtype
from mixveil.encoders.singular import FROM_PUBLIC, NOT_KEPT, NOT_REALISED
from mixveil.features.extractor import Extractor
from mixveil.releases.kinds.settings import Bounds, PayloadSettings, numbered, parsed_fields
from mixveil.releases.screening import MASKED, NOT_CERTIFIED, NOT_PICTURES, NOT_PROTECTED, Screened

if TYPE_CHECKING:
    from mixveil.releases.envelope import Envelope, File

OVER_ALL = "averaged-before-dropping"
"""A figure is an average over all rows, also those that were dropped."""

_CALIBRATIONS = {"theorem", "spectral", "energy", "displacement"}
_ORIGINS = frozenset({"public", "range"})
_MOST_SIZES = 8
_BLOCK_VALUES = 1 << 22  # looked at together


@dataclass(frozen=True)
class Records:
    """The rows of a release as they lie on disk, shard by shard. `take` gives values, not grid indices. step: of the
    grid; None for floats."""

    shards: tuple[Batch, ...]
    step: float | None

    def __len__(self) -> int:
        return sum(len(shard.y) for shard in self.shards)

    @property
    def bytes(self) -> int:
        return sum(shard.x.nbytes + shard.y.nbytes for shard in self.shards)

    def held_on(self, device: torch.device) -> Records:
        """The same rows, all of them in that device's memory."""
        first, rows = self.shards[0], len(self)
        x = torch.empty(rows, *first.x.shape[1:], dtype=first.x.dtype, device=device)
        y = torch.empty(rows, first.y.shape[1], device=device)
        start = 0
        for shard in self.shards:
            here = slice(start, start + len(shard.y))
            x[here], y[here] = shard.x.to(device), shard.y.to(device)
            start += len(shard.y)
        return Records((Batch(x, y),), self.step)

    def take(self, index: Tensor) -> Batch:
        """The rows of `index`, which is not on a device but in memory."""
        checks.rows_within(index, len(self))
        first = self.shards[0]
        if len(self.shards) == 1:
            rows = index.to(first.y.device)
            x, y = first.x[rows].float(), first.y[rows]
        else:
            x = torch.empty(len(index), *first.x.shape[1:])
            y = torch.empty(len(index), first.y.shape[1])
            number = torch.bucketize(index, self._starts, right=True) - 1
            for which in set(number.tolist()):
                inside = (number == which).nonzero()[:, 0]
                rows = index[inside] - self._starts[which]
                x[inside], y[inside] = self.shards[which].x[rows].float(), self.shards[which].y[rows]
        return Batch(x if self.step is None else x.mul_(self.step), y)

    @cached_property
    def _starts(self) -> Tensor:
        """(shards,) the first row of each."""
        sizes = torch.tensor([len(shard.y) for shard in self.shards])
        return sizes.cumsum(0) - sizes


@dataclass(frozen=True)
class RecordSettings(PayloadSettings):
    """The settings of released records.

    Attributes:
        shape: Of one row.
        extractor: The network of rows that are features themselves; None for pixels and for projections.
        screened: The screen that may have dropped rows; None where there was none.
    """

    name: ClassVar[str] = "records"
    asset_names: ClassVar[frozenset[str]] = frozenset({"projection", "features"})
    encoder: Encoder
    shape: tuple[int, ...]
    extractor: Extractor | None = None
    screened: Screened | None = None

    @classmethod
    def parse(cls, item: Mapping[str, Any]) -> Self:
        strict_json.only("payload", item, {"encoder", "shape", "extractor", "screened", "grid"})
        found = cls(
            encoder=_encoder(strict_json.mapping("encoder", item["encoder"])),
            shape=tuple(strict_json.count("shape", size) for size in strict_json.items("shape", item["shape"])),
            extractor=None if item["extractor"] is None else _extractor(item["extractor"]),
            screened=_screened(item["screened"]),
        )
        bound = found.encoder.index_bound
        if bound is not None and bound >= 1 << 31:
            raise ManifestError("encoder.settings: sigma is too small beside amplitude for the grid of a release")
        moved = found.encoder.moved
        if moved and (len(found.shape) != 3 or 2 * moved >= min(found.shape[1:])):
            raise ManifestError(f"encoder.settings: images of {found.shape} cannot be moved by {moved} pixels")
        if item["grid"] != found.grid:
            raise ManifestError(f"grid is {strict_json.shown(item['grid'])}, but the encoder makes it {found.grid}")
        return found

    def plain(self) -> dict[str, Any]:
        settings = dataclasses.asdict(typing.cast("Any", self.encoder))
        return {
            "encoder": {"name": self.encoder.name, "settings": settings},
            "shape": list(self.shape),
            "extractor": None if self.extractor is None else self.extractor.plain(),
            "screened": None if self.screened is None else self.screened.plain(),
            "grid": self.grid,
        }

    @property
    def grid(self) -> dict[str, float] | None:
        """The step and the largest index of the grid that the encoder releases on; None for floats."""
        if self.encoder.step is None or self.encoder.index_bound is None:
            return None
        return {"step": self.encoder.step, "bound": self.encoder.index_bound}

    def check(self, envelope: Envelope) -> None:
        if not 0 < len(self.shape) <= _MOST_SIZES:
            raise ManifestError(f"shape must have 1 to {_MOST_SIZES} sizes, got {len(self.shape)}")
        if any(file.rows is None for file in envelope.files) or envelope.rows < 2:
            raise ManifestError("files.rows must be given for every file of records, and at least 2 in all")
        values = getattr(self.encoder, "values", None)
        if values is not None and values != math.prod(self.shape):
            raise ManifestError(f"encoder.settings: values is {values}, and rows have {math.prod(self.shape)}")
        if (self.extractor is None) != ("features" not in envelope.assets):
            raise ManifestError("extractor and assets.features must be given together, or neither")
        if self.extractor is not None and "projection" in envelope.assets:
            raise ManifestError("extractor and assets.projection must not be given together")
        if self.extractor is not None and len(self.shape) != 1:
            raise ManifestError(f"features are flat: shape cannot be {strict_json.shown(list(self.shape))}")
        if self.screened is not None:
            self._check_screen(self.screened, envelope)

    def _check_screen(self, screened: Screened, envelope: Envelope) -> None:
        """Rows can only have been dropped, of pictures, and where nothing is promised that this would make false."""
        if screened.records < envelope.rows:
            raise ManifestError(f"the files hold {envelope.rows} rows, but screened.records is {screened.records}")
        if len(self.shape) != 3 or envelope.assets:
            raise ManifestError(f"screened: {NOT_PICTURES}")
        if self.encoder.masked:
            raise ManifestError(f"screened: {MASKED}")
        if envelope.certified:
            raise FalseClaimError(f"screened: {NOT_CERTIFIED}")
        if envelope.label_epsilon is not None:
            raise FalseClaimError(f"screened: {NOT_PROTECTED}")

    # What is promised

    def claims(self) -> Mapping[str, Guarantee]:
        return self.encoder.claims()

    def cost(self) -> Cost | None:
        return self.encoder.cost()

    def fact_origins(self) -> Mapping[str, frozenset[str]]:
        origins = _ORIGINS if self.extractor is None else frozenset({"public"})  # features have no range
        return dict.fromkeys(("clip", "centre", "amplitude"), origins)

    def check_stated(self, stated: Guarantee) -> None:
        """A τ is the party's own statement. It must name its calibration, the origins of its facts, the rows that it
        speaks of, and what is realised, if it was computed from private moments. It must not state anything else."""
        if stated.name != "directional-snr":
            raise FalseClaimError(f"there is no guarantee of the name {stated.name!r:.60}")
        if not self.encoder.tau_conditions:
            raise FalseClaimError(f"the encoder {self.encoder.name} has no {stated.name}")
        how, rows = stated.assumes.get("calibration", ""), stated.assumes.get("rows")
        if how not in _CALIBRATIONS:
            raise FalseClaimError(f"{stated.name}: there is no calibration {strict_json.shown(how)}")
        measured = "displacement" if how == "displacement" else "energy"
        origins = {name: stated.assumes.get(name) for name in (measured, "lambda_max", "centre", "clip", "amplitude")}
        if not set(origins.values()) <= {*_ORIGINS, "private"} or origins["lambda_max"] == "range":
            raise FalseClaimError(f"{stated.name}: the origins of its facts cannot be {strict_json.shown(origins)}")
        if not 0 < stated.nominal <= 1:
            raise FalseClaimError(f"{stated.name} must be in (0, 1], got {stated.nominal:g}")
        if (stated.realised is None) != (origins["lambda_max"] != "private"):
            raise FalseClaimError(f"{stated.name}: realised must be given with private moments, and only with them")
        due = None if stated.realised is not None else NOT_REALISED if how in NOT_KEPT else FROM_PUBLIC
        if stated.assumes.get("moments") != due:
            raise FalseClaimError(f"{stated.name}: assumes.moments must be {due}")
        said = self.encoder.tau_conditions
        names = {"calibration", "moments", "rows", *origins, *said}
        if stated.assumes.keys() - names or said.items() - stated.assumes.items():
            raise FalseClaimError(f"{stated.name}: its conditions are not those of its encoder")
        if rows != (due := None if self.screened is None else OVER_ALL):
            raise FalseClaimError(f"{stated.name}: assumes.rows must be {due}")

    def labels(self, *, randomised: bool) -> str:
        if randomised:
            return "labels-randomised"
        return "labels-shown" if self.screened is None else "labels-shown-screened"

    def not_promised(self, guarantees: tuple[Guarantee, ...]) -> tuple[str, ...]:
        said = ["rows-dropped"] if self.screened is not None else []
        said += self.encoder.unpromised
        if {guarantee.name for guarantee in guarantees} == {"directional-snr"}:
            said.append("average-only")
        if any("private" in guarantee.assumes.values() for guarantee in guarantees):
            said.append("private-facts")
        elif self.encoder.law != "none" and not guarantees:
            said.append("maybe-private-facts")  # no guarantee says where they come from
        return tuple(said)

    @property
    def unit_rows(self) -> int:
        return self.encoder.unit_rows

    @property
    def defence(self) -> str:
        return self.encoder.name

    @property
    def noise(self) -> float | None:
        return self.encoder.sigma

    @property
    def bounds(self) -> Bounds:
        encoder = self.encoder
        return Bounds(self.shape, encoder.clip, encoder.sigma, encoder.centre, encoder.amplitude)

    def note(self, envelope: Envelope) -> Note:
        shape, sizes = "×".join(map(str, self.shape)), {"files": len(envelope.files), "megabytes": envelope.bytes / 1e6}
        return note("held-records", rows=envelope.rows, shape=shape, party=envelope.party, **sizes)

    # Its files

    def file_names(self, count: int) -> list[str]:
        return numbered(count)

    def row_bytes(self, classes: int) -> int:
        return math.prod(self.shape) * stored_dtype(self.encoder.index_bound).itemsize + 4 * classes

    def file_bytes(self, file: File, envelope: Envelope) -> int:
        return (file.rows or 0) * self.row_bytes(len(envelope.classes))

    def checked(self, where: str, tensors: Mapping[str, Tensor], file: File, envelope: Envelope) -> Batch:
        bound = self.encoder.index_bound
        batch = checked_batch(where, tensors, stored_dtype(bound), self.shape, file, len(envelope.classes))
        block = max(1, _BLOCK_VALUES // max(1, math.prod(self.shape)))
        for start in range(0, len(batch.x), block):
            here, part = f"{where}, from row {start}", Batch(*(both[start : start + block] for both in batch))
            if bound is not None:
                low, high = torch.aminmax(part.x)
                if int(low) < -bound or int(high) > bound:
                    raise GridError(f"{here}: grid indices reach {int(low)}…{int(high)}, the encoder's lie in ±{bound}")
            else:
                check_finite(here, part.x)
            check_labels(here, part.y, self.encoder.label_share)
            if not bool(self.encoder.possible_labels(part.y).all()):
                raise SimplexError(f"{here}: labels that this encoder cannot make")
        return batch

    def content(self, parts: Sequence[Batch]) -> Records:
        return Records(tuple(parts), self.encoder.step)


def checked_batch(
    where: str, tensors: Mapping[str, Tensor], dtype: torch.dtype, shape: tuple[int, ...], file: File, classes: int
) -> Batch:
    """The rows and labels of a file, if they are there, alone, and of these types and shapes."""
    if set(tensors) != {"x", "y"}:
        raise ShapeError(f"{where}: it holds {strict_json.shown(sorted(tensors))}, a shard holds x and y")
    x, y = tensors["x"], tensors["y"]
    if x.dtype != dtype or y.dtype != torch.float32:
        raise DtypeError(f"{where}: x is {x.dtype} and y {y.dtype}, not {dtype} and torch.float32")
    if x.shape != (file.rows, *shape) or y.shape != (file.rows, classes):
        due = f"{(file.rows, *shape)} and {(file.rows, classes)}"
        raise ShapeError(f"{where}: x is {tuple(x.shape)} and y {tuple(y.shape)}, the manifest says {due}")
    return Batch(x, y)


def check_finite(where: str, x: Tensor) -> None:
    low, high = torch.aminmax(x)
    if not (bool(low.isfinite()) and bool(high.isfinite())):
        raise NotFiniteError(f"{where}: a released value is not finite")


def check_labels(where: str, y: Tensor, least: float = 1.0) -> None:
    """Refuse labels that are no shares of classes. least: what they sum to at least, where not to one."""
    if not bool(y.isfinite().all()):
        raise NotFiniteError(f"{where}: a label is not finite")
    sums = y.double().sum(1)
    if bool((y < 0).any()) or bool(((sums > 1 + 1e-6) | (sums < least - 1e-6)).any()):
        lowest, total = float(y.min()), float(sums[(sums - 1).abs().argmax()])
        due = "1" if least == 1 else f"{least:g} to 1"
        raise SimplexError(f"{where}: labels must be at least 0 and sum to {due}, got {lowest:g} and the sum {total:g}")


def of_all_rows(guarantees: tuple[Guarantee, ...]) -> tuple[Guarantee, ...]:
    """What is stated where rows may be dropped: figures are averages over all rows, not over those that are left."""
    return tuple(dataclasses.replace(stated, assumes={**stated.assumes, "rows": OVER_ALL}) for stated in guarantees)


def _encoder(item: Mapping[str, Any]) -> Encoder:
    strict_json.only("encoder", item, {"name", "settings"})
    settings = strict_json.mapping("encoder.settings", item["settings"])
    with strict_json.within("encoder"):
        kind = encoder(strict_json.text("encoder.name", item["name"])).ready()
    return parsed_fields("encoder.settings", kind, settings)


def _extractor(item: Any) -> Extractor:
    with strict_json.within("extractor"):
        extractor = Extractor.read(item)
    if not extractor.names:
        raise ManifestError("extractor names no network: it must be null for pixels")
    return extractor


def _screened(item: Any) -> Screened | None:
    with strict_json.within("screened"):
        return None if item is None else Screened.read(item)
