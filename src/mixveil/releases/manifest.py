"""The manifest of a release: what its reader is told. Parsed strictly; nothing of it is believed unchecked.

A certified manifest holds only what was fixed without looking at the private records.
"""

from __future__ import annotations

import dataclasses
import json
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mixveil.core import strict_json
from mixveil.core.errors import (
    ArgumentError,
    FalseClaimError,
    ManifestError,
    MixveilError,
    NotCalibratedError,
    VersionError,
)
from mixveil.core.types import Encoder, Guarantee
from mixveil.encoders.catalogue import encoder
from mixveil.encoders.singular import FROM_PUBLIC, NOT_KEPT, NOT_REALISED, SAID
from mixveil.features.extractor import Extractor
from mixveil.releases.screening import NOT_CERTIFIED, NOT_PICTURES, NOT_PROTECTED, Screened
from mixveil.theory.response import LARGEST_EPSILON, SMALLEST_EPSILON

FORMAT = "mixveil-release"
VERSION = 5

_SLACK = 1e-9  # for rounding in recomputed claims

LABELS = (
    "Labels are not protected: they are released without noise, and show each row's class or classes, the weights of a "
    "mixture, and how many records of each class the party has."
)
LABELS_SCREENED = (
    "Labels are not protected: they are released without noise, and show the class or classes of each row that is left "
    "and the weights of a mixture."
)
NOT_ENCRYPTION = "This is not encryption: whoever holds the release can study it for as long as he likes."
RANDOMISED = (
    "Labels were randomised once for this release, each with ε = {:g}: what is said of a record's class is that "
    "private, and no more. The weights of a mixture are shown, and how many records are said to be of each class."
)
SEEDED = "The noise came from a seeded stream: whoever finds the seed removes it. For experiments only, no promise."
AVERAGE = (
    "The directional SNR is the party's own statement, which a reader cannot check. It speaks of one row, of the "
    "average record and of its deviation from the mean record: not of the worst record, the mean, or membership."
)
PRIVATE_FACTS = (
    "The noise was chosen from figures of the private records themselves, such as their moments and norms, and this "
    "manifest shows such figures."
)
MAYBE_PRIVATE = "Its settings may show figures that were computed from the private records."
SCREENED = (
    "Rows that showed too much of their records were dropped: which are missing depends on the records, and says "
    "something of them. Records whose own row is missing may be in the rows of others."
)
OVER_ALL = "averaged over all rows that were made, before some were dropped: not over those that are left"
NOTHING = "No noise was added: nothing is promised at all."
SIZED = (
    "The noise is about as large as the records themselves are, which is for comparison: nothing is promised at all."
)

_NAMES = {"gdp", "directional_snr"}
_ORIGINS = {"public", "range"}
_FACTS = {"clip", "centre", "amplitude"}
_MOST_SHARDS, _MOST_SIZES = 10_000, 8
LARGEST_SHARD = 128 << 20
"""Bytes of a shard. One that is written has half as many, or one row."""


def unit(rows: int, certified: bool) -> str:
    """What is covered together, and what is not. rows: the most that one unit has; certified: whether a μ is stated."""
    if not certified:
        return "Nothing is stated of several records of one person together."
    if rows == 1:
        return "The unit is one record. Several records of one person are not covered together."
    return (
        f"The unit is all records that the party named as one person's, {rows} at most. Which belong together is not "
        f"protected, and records that it did not name as one person's are not covered together."
    )


def randomised(text: str, epsilon: float, unit_rows: int, reproducible: bool) -> str:
    """What is said of randomised labels; those of a unit's rows together say more."""
    if reproducible:
        return RANDOMISED_BY_SEED
    together = (
        f" The labels of a unit's {unit_rows} rows together are {unit_rows * epsilon:g}-DP." if unit_rows > 1 else ""
    )
    return text.format(epsilon) + together


RANDOMISED_BY_SEED = "Labels are not protected: a seeded stream randomised them, and whoever finds the seed undoes it."


@dataclass(frozen=True)
class Shard:
    file: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    id: str
    party: str
    created: str
    rows: int
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    encoder: Encoder
    guarantees: tuple[Guarantee, ...]
    certified: bool
    reproducible: bool
    assets: Mapping[str, str]
    extractor: Extractor | None
    label_epsilon: float | None
    screened: Screened | None
    not_promised: tuple[str, ...]
    shards: tuple[Shard, ...]

    def to_json(self) -> str:
        settings = dataclasses.asdict(typing.cast("Any", self.encoder))
        whole = {
            "format": FORMAT,
            "version": VERSION,
            "kind": "records",
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(self)},
            "encoder": {"name": self.encoder.name, "settings": settings},
            "extractor": None if self.extractor is None else self.extractor.plain(),
            "screened": None if self.screened is None else self.screened.plain(),
            "grid": grid(self.encoder),
            "guarantees": [dataclasses.asdict(guarantee) for guarantee in self.guarantees],
            "shards": [dataclasses.asdict(shard) for shard in self.shards],
        }
        return json.dumps(whole, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


def grid(made_by: Encoder) -> dict[str, float] | None:
    """The step and the largest index of the grid that an encoder releases on; None for floats."""
    if made_by.step is None or made_by.index_bound is None:
        return None
    return {"step": made_by.step, "bound": made_by.index_bound}


def of_all_rows(guarantees: tuple[Guarantee, ...]) -> tuple[Guarantee, ...]:
    """What is stated where rows may be dropped: an average over all of them does not speak of those that are left."""
    return tuple(dataclasses.replace(stated, assumes={**stated.assumes, "rows": OVER_ALL}) for stated in guarantees)


def not_promised(
    made_by: Encoder,
    guarantees: tuple[Guarantee, ...],
    reproducible: bool,
    label_epsilon: float | None,
    screened: Screened | None = None,
) -> tuple[str, ...]:
    """What a reader might think is promised and is not, in plain words."""
    rows, certified = made_by.unit_rows, any(guarantee.name == "gdp" for guarantee in guarantees)
    labels = LABELS if screened is None else LABELS_SCREENED
    if label_epsilon is not None:
        labels = randomised(RANDOMISED, label_epsilon, rows, reproducible)
    said = [labels, NOT_ENCRYPTION, unit(rows, certified)]
    if screened is not None:
        said.append(SCREENED)
    said += [{"no-noise": NOTHING, "noise-of-the-records-size": SIZED}[code] for code in made_by.unpromised]
    if {guarantee.name for guarantee in guarantees} == {"directional_snr"}:
        said.append(AVERAGE)
    if any("private" in guarantee.assumes.values() for guarantee in guarantees):
        said.append(PRIVATE_FACTS)
    elif made_by.law != "none" and not guarantees:
        said.append(MAYBE_PRIVATE)  # no guarantee says where they come from
    if reproducible:
        said.append(SEEDED)
    return tuple(said)


def parse(text: str) -> Manifest:
    """Read a manifest. Every field must be there and of its type, and no other; claims are recomputed."""
    try:
        return _parse(text)
    except (ArithmeticError, NotCalibratedError) as error:
        raise ManifestError(f"its settings describe no encoder: {error}") from None


def _parse(text: str) -> Manifest:
    whole = strict_json.mapping("manifest", strict_json.loads(text))
    if whole.get("format") != FORMAT:
        raise ManifestError(f"format must be {FORMAT!r}, got {strict_json.shown(whole.get('format'))}")
    if type(whole.get("version")) is not int or whole["version"] != VERSION:
        raise VersionError(
            f"this mixveil reads version {VERSION} of the format, "
            f"the manifest has {strict_json.shown(whole.get('version'))}"
        )
    names = {field.name for field in dataclasses.fields(Manifest)} | {"format", "version", "kind", "grid"}
    strict_json.only("manifest", whole, names)
    if whole["kind"] != "records":
        raise ManifestError(f"kind must be 'records', got {strict_json.shown(whole['kind'])}")
    made_by = _encoder(strict_json.mapping("encoder", whole["encoder"]))
    manifest = Manifest(
        id=strict_json.text("id", whole["id"], r"[0-9a-f]{32}"),
        party=strict_json.text("party", whole["party"]),
        created=strict_json.text("created", whole["created"]),
        rows=strict_json.count("rows", whole["rows"]),
        shape=tuple(strict_json.count("shape", size) for size in strict_json.items("shape", whole["shape"])),
        classes=tuple(strict_json.text("classes", name) for name in strict_json.items("classes", whole["classes"])),
        encoder=made_by,
        guarantees=tuple(parse_guarantee(item) for item in strict_json.items("guarantees", whole["guarantees"])),
        certified=strict_json.flag("certified", whole["certified"]),
        reproducible=strict_json.flag("reproducible", whole["reproducible"]),
        assets=_assets(strict_json.mapping("assets", whole["assets"])),
        extractor=None if whole["extractor"] is None else _extractor(whole["extractor"]),
        label_epsilon=parse_epsilon(whole["label_epsilon"]),
        screened=None if whole["screened"] is None else _screened(whole["screened"]),
        not_promised=tuple(
            strict_json.text("not_promised", item) for item in strict_json.items("not_promised", whole["not_promised"])
        ),
        shards=tuple(_shard(item) for item in strict_json.items("shards", whole["shards"])),
    )
    _consistent(manifest, whole["grid"])
    _honest(manifest)
    return manifest


def _consistent(manifest: Manifest, stated_grid: Any) -> None:
    expected = grid(manifest.encoder)
    bound = manifest.encoder.index_bound
    if bound is not None and bound >= 1 << 31:
        raise ManifestError("encoder.settings: sigma is too small beside amplitude for the grid of a release")
    if stated_grid != expected:
        raise ManifestError(f"grid is {strict_json.shown(stated_grid)}, but the encoder's settings make it {expected}")
    if sum(shard.rows for shard in manifest.shards) != manifest.rows:
        raise ManifestError(f"rows is {manifest.rows}, but the shards hold {sum(s.rows for s in manifest.shards)}")
    if [shard.file for shard in manifest.shards] != [f"shard-{i:05d}.safetensors" for i in range(len(manifest.shards))]:
        raise ManifestError("shards must be numbered from 0, each once and in order")
    if not 0 < len(manifest.shape) <= _MOST_SIZES or not manifest.classes or manifest.rows < 2:
        raise ManifestError(f"shape must have 1 to {_MOST_SIZES} sizes, classes must not be empty, and rows at least 2")
    if len(set(manifest.classes)) != len(manifest.classes):
        raise ManifestError("two classes have the same name")
    if manifest.label_epsilon is not None and len(manifest.classes) < 2:
        raise ManifestError("labels of one class cannot have been randomised")
    if len(manifest.shards) > _MOST_SHARDS:
        raise ManifestError(f"{len(manifest.shards)} shards are more than {_MOST_SHARDS}")
    _consistent_features(manifest)
    _consistent_screen(manifest)


def _consistent_features(manifest: Manifest) -> None:
    """Rows are features by a network that is named and whose weights are; or projected ones; or pixels."""
    if (manifest.extractor is None) != ("features" not in manifest.assets):
        raise ManifestError("extractor and assets.features belong together: which network, and the digest of it")
    if manifest.extractor is None:
        return
    if "projection" in manifest.assets:
        raise ManifestError("rows are features or projections of them: extractor goes with no assets.projection")
    if len(manifest.shape) != 1:
        raise ManifestError(f"features are flat: shape cannot be {strict_json.shown(list(manifest.shape))}")


def _consistent_screen(manifest: Manifest) -> None:
    """Rows can only have been dropped, of pictures, and where nothing is promised that this would make false."""
    if manifest.screened is None:
        return
    if manifest.screened.records < manifest.rows:
        raise ManifestError(f"rows is {manifest.rows}, but screened.records {manifest.screened.records}")
    if len(manifest.shape) != 3 or manifest.assets:
        raise ManifestError(f"screened: {NOT_PICTURES}")
    if manifest.certified or any(guarantee.name == "gdp" for guarantee in manifest.guarantees):
        raise FalseClaimError(f"screened: {NOT_CERTIFIED}")
    if manifest.label_epsilon is not None:
        raise FalseClaimError(f"screened: {NOT_PROTECTED}")


def _screened(item: Any) -> Screened:
    try:
        return Screened.read(item)
    except ArgumentError as error:
        raise ManifestError(f"screened: {error}") from None


def _assets(item: dict[str, Any]) -> dict[str, str]:
    """What is public and the records were made with, by its SHA-256: the projection's file, or the networks that made
    the features and their settings."""
    if item.keys() - {"projection", "features"}:
        raise ManifestError(f"unknown assets {strict_json.shown(sorted(item))}")
    return {name: strict_json.text(f"assets.{name}", value, r"[0-9a-f]{64}") for name, value in item.items()}


def _extractor(item: Any) -> Extractor:
    """Which features the rows are; pixels are stated by null."""
    try:
        found = Extractor.read(item)
    except ArgumentError as error:
        raise ManifestError(f"extractor: {error}") from None
    if not found.names:
        raise ManifestError("extractor names no network: of pixels it is null")
    return found


def _honest(manifest: Manifest) -> None:
    """No promise that a reader can see to be false, and none of a kind that he does not know."""
    for guarantee in manifest.guarantees:
        if guarantee.name not in _NAMES:
            raise FalseClaimError(f"there is no guarantee of the name {guarantee.name!r:.60}")
    if len({guarantee.name for guarantee in manifest.guarantees}) != len(manifest.guarantees):
        raise FalseClaimError("a guarantee is stated twice")
    if manifest.reproducible and (manifest.certified or manifest.guarantees):
        raise FalseClaimError("the noise came from a seeded stream: a manifest of it promises nothing")
    if manifest.certified != any(guarantee.name == "gdp" for guarantee in manifest.guarantees):
        raise FalseClaimError("a manifest is certified if and only if it states a gdp guarantee")
    for guarantee in manifest.guarantees:
        if manifest.certified:
            _certified(guarantee, manifest.encoder.claims(), manifest.extractor)
        else:
            _stated(guarantee, manifest)
            if guarantee.assumes.get("rows") != (None if manifest.screened is None else OVER_ALL):
                raise FalseClaimError(f"{guarantee.name}: it does not say of which rows it is an average")
    due = not_promised(
        manifest.encoder, manifest.guarantees, manifest.reproducible, manifest.label_epsilon, manifest.screened
    )
    if manifest.not_promised != due:
        raise FalseClaimError("not_promised does not say what these settings leave unpromised")


def _stated(stated: Guarantee, manifest: Manifest) -> None:
    """A τ is the party's own word. It must at least say what it is: by which calibration, whether that keeps it, from
    which facts, and what is realised, if private moments were looked at. It says nothing else."""
    how = stated.assumes.get("calibration", "")
    if how not in SAID.values():
        raise FalseClaimError(f"{stated.name}: no calibration is known that {strict_json.shown(how)}")
    measured = "displacement" if how == SAID["displacement"] else "energy"
    origins = {name: stated.assumes.get(name) for name in (measured, "lambda_max", "centre", "clip", "amplitude")}
    if not set(origins.values()) <= {*_ORIGINS, "private"} or origins["lambda_max"] == "range":
        raise FalseClaimError(
            f"{stated.name}: it must say of each fact where it is from, got {strict_json.shown(origins)}"
        )
    if not 0 < stated.nominal <= 1 or not _real(stated) > 0:
        raise FalseClaimError(f"{stated.name} cannot be {stated.nominal:g}, realised {_real(stated):g}")
    if (stated.realised is None) != (origins["lambda_max"] != "private"):
        raise FalseClaimError(f"{stated.name}: what is realised is known from private moments, and only from them")
    due = None if stated.realised is not None else NOT_REALISED if how.partition(":")[0] in NOT_KEPT else FROM_PUBLIC
    if stated.assumes.get("moments") != due:
        raise FalseClaimError(f"{stated.name}: it does not say what its moments leave open")
    said = manifest.encoder.tau_conditions
    names = {"calibration", "moments", "rows", *origins, *said}
    if stated.assumes.keys() - names or said.items() - stated.assumes.items():
        raise FalseClaimError(f"{stated.name}: its conditions are not those of its encoder")


def _certified(stated: Guarantee, claims: Mapping[str, Guarantee], extractor: Extractor | None) -> None:
    """A certified guarantee must follow from the encoder's settings, under its own conditions, from public facts."""
    claim = claims.get(stated.name)
    if claim is None:
        raise FalseClaimError(f"the manifest claims {stated.name}, its settings give none")
    if not min(stated.nominal, _real(stated)) >= claim.nominal * (1 - _SLACK):
        raise FalseClaimError(
            f"the manifest claims {stated.name} = {stated.nominal:g}, its settings give {claim.nominal:g}"
        )
    facts = {name: value for name, value in stated.assumes.items() if name not in claim.assumes}
    conditions = {name: value for name, value in stated.assumes.items() if name in claim.assumes}
    if conditions != claim.assumes:
        raise FalseClaimError(f"{stated.name}: its conditions are not those of its encoder")
    possible = _ORIGINS if extractor is None else {"public"}  # features have no range
    if facts.keys() != _FACTS or not set(facts.values()) <= possible:
        raise FalseClaimError(f"{stated.name}: it must say of each fact that it is public or of the range")


def _real(guarantee: Guarantee) -> float:
    return math.inf if guarantee.realised is None else guarantee.realised


def _encoder(item: dict[str, Any]) -> Encoder:
    strict_json.only("encoder", item, {"name", "settings"})
    settings = strict_json.mapping("encoder.settings", item["settings"])
    try:
        kind = encoder(strict_json.text("encoder.name", item["name"])).ready()
    except MixveilError as error:
        raise ManifestError(str(error)) from None
    hints = typing.get_type_hints(kind)
    strict_json.only(
        "encoder.settings", settings, {field.name for field in dataclasses.fields(typing.cast("Any", kind))}
    )
    for name, value in settings.items():
        too_large = isinstance(value, int) and abs(value) >= 1 << 48
        if too_large or not strict_json.fits(value, hints[name]):
            raise ManifestError(f"encoder.settings.{name} cannot be {strict_json.shown(value)}")
    try:
        return kind(**settings)
    except MixveilError as error:
        raise ManifestError(f"encoder.settings: {error}") from None


def parse_epsilon(item: Any) -> float | None:
    """The ε of randomised labels, if they were."""
    if item is None:
        return None
    epsilon = strict_json.number("label_epsilon", item)
    if not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise ManifestError(f"label_epsilon cannot be {epsilon:g}")
    return epsilon


def parse_guarantee(item: Any) -> Guarantee:
    fields = strict_json.mapping("guarantee", item)
    strict_json.only("guarantee", fields, {"name", "nominal", "realised", "assumes"})
    assumes = {
        strict_json.text("assumes", k): strict_json.text("assumes", v)
        for k, v in strict_json.mapping("assumes", fields["assumes"]).items()
    }
    realised = None if fields["realised"] is None else strict_json.figure("realised", fields["realised"])
    return Guarantee(
        strict_json.text("name", fields["name"]), strict_json.figure("nominal", fields["nominal"]), realised, assumes
    )


def _shard(item: Any) -> Shard:
    fields = strict_json.mapping("shard", item)
    strict_json.only("shard", fields, {"file", "rows", "bytes", "sha256"})
    if strict_json.count("shard.bytes", fields["bytes"]) > LARGEST_SHARD:
        raise ManifestError(
            f"shard.bytes is {fields['bytes']:,}, and a file of a release has at most {LARGEST_SHARD:,}"
        )
    return Shard(
        file=strict_json.text("shard.file", fields["file"], r"shard-\d{5}\.safetensors"),
        rows=strict_json.count("shard.rows", fields["rows"]),
        bytes=strict_json.count("shard.bytes", fields["bytes"]),
        sha256=strict_json.text("shard.sha256", fields["sha256"], r"[0-9a-f]{64}"),
    )
