"""The envelope of a release: the sender, the kind of payload, what is promised, and the files.

Its JSON is `manifest.json`. It is parsed strictly, and every claim is recomputed from the settings of the payload. A
certified envelope holds only figures that were fixed without looking at the private records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from mixveil.core import checks, randomness, strict_json
from mixveil.core.errors import FalseClaimError, ManifestError, NotCalibratedError, VersionError
from mixveil.core.types import ANY_ROWS, Guarantee
from mixveil.releases.kinds.catalogue import KINDS
from mixveil.releases.kinds.settings import PayloadSettings
from mixveil.theory.response import LARGEST_EPSILON, SMALLEST_EPSILON

FORMAT = "mixveil-release"
VERSION = 6
MANIFEST = "manifest.json"

_OLD_FORMATS = (FORMAT, "mixveil-statistics")
_SLACK = 1e-9  # for rounding in recomputed claims
_BEFORE = "gaussian-secure"  # noise of before was Gaussian up to rounding: that is still said of it
_MOST_FILES = 10_000
_FIELDS = {
    *("format", "version", "kind", "id", "party", "created", "classes", "guarantees", "certified", "reproducible"),
    *("label_epsilon", "assets", "not_promised", "files", "payload"),
}


@dataclass(frozen=True)
class File:
    """A file of a release. rows: how many rows it holds; None where its kind of payload has no rows."""

    name: str
    bytes: int
    sha256: str
    rows: int | None = None


@dataclass(frozen=True)
class Envelope:
    """What a release says of itself.

    Attributes:
        settings: Of its payload; their class is the kind of payload.
        party: The sender, by a name of its own choice.
        classes: In the order of the labels.
        guarantees: What is promised (with a gdp guarantee, which certifies it) or stated.
        reproducible: Whether the noise came from a seeded stream.
        label_epsilon: Of randomised labels; None where labels are shown.
        assets: The SHA-256 of what is public and made the payload: `projection` or `features`.
        files: In the order of the rows.
        id: 32 hexadecimal digits.
        created: In UTC, ISO 8601, by the sender's clock.
    """

    settings: PayloadSettings
    party: str
    classes: tuple[str, ...]
    guarantees: tuple[Guarantee, ...] = ()
    reproducible: bool = False
    label_epsilon: float | None = None
    assets: Mapping[str, str] = field(default_factory=dict)
    files: tuple[File, ...] = ()
    id: str = field(default_factory=randomness.release_id)
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def __post_init__(self) -> None:
        if self.label_epsilon is not None:  # a number of numpy's or torch's would not be JSON, once all is made
            object.__setattr__(self, "label_epsilon", checks.finite_positive("label_epsilon", self.label_epsilon))

    @property
    def kind(self) -> str:
        return self.settings.name

    @property
    def mu(self) -> float | None:
        """The μ that every unit is promised; None where nothing is."""
        return next((stated.nominal for stated in self.guarantees if stated.name == "gdp"), None)

    @property
    def certified(self) -> bool:
        return self.mu is not None

    @property
    def label_cost(self) -> float | None:
        """ε of a label, beside what μ covers: 0 where μ covers labels, None where they are shown. What a seed draws
        protects no label."""
        if self.reproducible:
            return None
        return 0.0 if self.settings.labels_covered and self.certified else self.label_epsilon

    @property
    def unit_rows(self) -> int:
        """The most rows that one unit has."""
        return self.settings.unit_rows

    @property
    def rows(self) -> int:
        """How many rows, or records, the payload holds."""
        return self.settings.rows(self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def not_promised(self) -> tuple[str, ...]:
        """Codes of what a reader might think is promised and is not."""
        randomised, unit = self.label_epsilon is not None, self.unit_rows > 1
        labels = [self.settings.labels(randomised=randomised)]
        if self.settings.labels_covered:
            labels = [] if self.certified else ["labels-not-covered"]
        if randomised and self.reproducible:
            labels = ["labels-randomised-by-seed"]
        elif randomised and unit:
            labels.append("labels-of-unit")
        of_unit = ("unit-is-named" if unit else "unit-is-record") if self.certified else "unit-not-stated"
        if self.certified and self.unit_rows == ANY_ROWS:
            of_unit = "unit-is-clipped"
        more = self.settings.not_promised(self.guarantees)
        return (*labels, "not-encryption", of_unit, *more, *(("seeded",) if self.reproducible else ()))

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            "id": self.id,
            "party": self.party,
            "created": self.created,
            "classes": list(self.classes),
            "guarantees": [asdict(guarantee) for guarantee in self.guarantees],
            "certified": self.certified,
            "reproducible": self.reproducible,
            "label_epsilon": self.label_epsilon,
            "assets": dict(self.assets),
            "not_promised": list(self.not_promised),
            "files": [asdict(file) for file in self.files],
            "payload": self.settings.plain(),
        }

    def to_json(self) -> str:
        return json.dumps(self.plain(), indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


def parse(text: str) -> Envelope:
    """Read a manifest. Every field must be there and of its type, and no other; claims are recomputed."""
    try:
        return _parse(text)
    except (ArithmeticError, NotCalibratedError) as error:
        raise ManifestError(f"its settings describe no payload: {error}") from None


def _parse(text: str) -> Envelope:
    whole = strict_json.mapping("manifest", strict_json.loads(text))
    _check_version(whole)
    strict_json.only("manifest", whole, _FIELDS)
    settings = _settings(whole["kind"], strict_json.mapping("payload", whole["payload"]))
    assets = strict_json.mapping("assets", whole["assets"])
    if unknown := assets.keys() - settings.asset_names:
        raise ManifestError(f"unknown assets {strict_json.shown(sorted(unknown))}")
    envelope = Envelope(
        settings=settings,
        party=strict_json.name("party", whole["party"]),
        classes=tuple(strict_json.text("classes", name) for name in strict_json.items("classes", whole["classes"])),
        guarantees=tuple(_guarantee(item) for item in strict_json.items("guarantees", whole["guarantees"])),
        reproducible=strict_json.flag("reproducible", whole["reproducible"]),
        label_epsilon=_epsilon(whole["label_epsilon"]),
        assets={name: strict_json.text(f"assets.{name}", value, r"[0-9a-f]{64}") for name, value in assets.items()},
        files=tuple(_file(item, settings) for item in strict_json.items("files", whole["files"])),
        id=strict_json.text("id", whole["id"], r"[0-9a-f]{32}"),
        created=strict_json.moment("created", whole["created"]),
    )
    _check_consistent(envelope)
    _check_honest(envelope, certified=strict_json.flag("certified", whole["certified"]))
    if strict_json.items("not_promised", whole["not_promised"]) != list(envelope.not_promised):
        raise FalseClaimError("not_promised does not say what these settings leave unpromised")
    return envelope


def _check_version(whole: Mapping[str, Any]) -> None:
    """Refuse what is no release, and releases of other versions."""
    name, version = whole.get("format"), whole.get("version")
    if name not in _OLD_FORMATS:
        raise ManifestError(f"format must be {FORMAT!r}, got {strict_json.shown(name)}")
    if name != FORMAT or (type(version) is int and version < VERSION):
        raise VersionError(
            f"an older mixveil wrote this ({name}, version {strict_json.shown(version)}), and this one reads version "
            f"{VERSION}: read it with the mixveil that wrote it, or release the data again, which costs again"
        )
    if type(version) is not int or version != VERSION:
        shown = strict_json.shown(version)
        raise VersionError(f"this mixveil reads version {VERSION}, the manifest has {shown}: use a newer mixveil")


def _settings(kind: Any, item: Mapping[str, Any]) -> PayloadSettings:
    with strict_json.within("manifest"):
        return KINDS.named(strict_json.text("kind", kind)).parse(item)


def _check_consistent(envelope: Envelope) -> None:
    settings, names = envelope.settings, [file.name for file in envelope.files]
    if not names or len(names) > _MOST_FILES:
        raise ManifestError(f"a release has 1 to {_MOST_FILES} files, got {len(names)}")
    if names != settings.file_names(len(names)):
        raise ManifestError(f"files of {settings.name} begin with {settings.file_names(1)[0]}, each once and in order")
    if not envelope.classes:
        raise ManifestError("classes must not be empty")
    if len(set(envelope.classes)) != len(envelope.classes):
        raise ManifestError("two classes have the same name")
    if envelope.label_epsilon is not None and len(envelope.classes) < 2:
        raise ManifestError("labels of one class cannot have been randomised")
    settings.check(envelope)


def _check_honest(envelope: Envelope, *, certified: bool) -> None:
    """Refuse a promise that is unknown, or that a reader can see to be false. A certified manifest states all that its
    settings give: what it left out might be the larger figure."""
    if len({stated.name for stated in envelope.guarantees}) != len(envelope.guarantees):
        raise FalseClaimError("a guarantee is stated twice")
    if envelope.reproducible and (certified or envelope.guarantees):
        raise FalseClaimError("the noise came from a seeded stream: the manifest may promise nothing")
    if certified != envelope.certified:
        raise FalseClaimError("a manifest is certified if and only if it states a gdp guarantee")
    if certified and (left_out := envelope.settings.claims().keys() - {stated.name for stated in envelope.guarantees}):
        raise FalseClaimError(f"the manifest does not state {', '.join(sorted(left_out))}, which its settings give")
    for stated in envelope.guarantees:
        if certified:
            _check_certified(stated, envelope.settings)
        else:
            envelope.settings.check_stated(stated)


def _check_certified(stated: Guarantee, settings: PayloadSettings) -> None:
    """A certified guarantee must follow from the payload's settings, under their conditions, from public facts."""
    claim = settings.claims().get(stated.name)
    if claim is None:
        raise FalseClaimError(f"the manifest claims {stated.name!r:.60}, its settings give none")
    least = min(stated.nominal, 0.0 if stated.realised is None else stated.realised)
    if not least >= claim.claim * (1 - _SLACK):
        raise FalseClaimError(f"the manifest claims {stated.name} = {least:g}, its settings give {claim.claim:g}")
    facts = {name: value for name, value in stated.assumes.items() if name not in claim.assumes}
    conditions = {name: value for name, value in stated.assumes.items() if name in claim.assumes}
    if conditions.get("noise") == _BEFORE:
        conditions["noise"] = claim.assumes["noise"]
    if conditions != claim.assumes:
        raise FalseClaimError(f"{stated.name}: its conditions are not those of its settings")
    origins = settings.fact_origins()
    if facts.keys() != origins.keys() or any(value not in origins[name] for name, value in facts.items()):
        raise FalseClaimError(f"{stated.name}: each fact must be public or of the pixel range")


def _epsilon(item: Any) -> float | None:
    if item is None:
        return None
    epsilon = strict_json.number("label_epsilon", item)
    if not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise ManifestError(f"label_epsilon cannot be {epsilon:g}")
    return epsilon


def _guarantee(item: Any) -> Guarantee:
    fields = strict_json.mapping("guarantee", item)
    strict_json.only("guarantee", fields, {"name", "nominal", "realised", "assumes"})
    assumes = {
        strict_json.text("assumes", k): strict_json.text("assumes", v)
        for k, v in strict_json.mapping("assumes", fields["assumes"]).items()
    }
    name, nominal = strict_json.text("name", fields["name"]), strict_json.figure("nominal", fields["nominal"])
    realised = None if fields["realised"] is None else strict_json.figure("realised", fields["realised"])
    return Guarantee(name, nominal, realised, assumes)


def _file(item: Any, settings: PayloadSettings) -> File:
    fields = strict_json.mapping("file", item)
    strict_json.only("file", fields, {"name", "bytes", "sha256", "rows"})
    size = strict_json.count("file.bytes", fields["bytes"])
    if size > settings.largest_file:
        raise ManifestError(
            f"file.bytes is {size:,}, and a file of {settings.name} has at most {settings.largest_file:,}"
        )
    name = strict_json.text("file.name", fields["name"], r"[a-z0-9-]{1,60}\.safetensors")
    rows = None if fields["rows"] is None else strict_json.count("file.rows", fields["rows"])
    return File(name, size, strict_json.text("file.sha256", fields["sha256"], r"[0-9a-f]{64}"), rows)
