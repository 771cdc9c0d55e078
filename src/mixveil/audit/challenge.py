"""A challenge: encodings of private images in one random order, for others to recover the images from.

What is published is a folder of `challenge.json`, `encodings.safetensors` and a page. A reader need not trust
who made it: everything is checked before it is used.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from mixveil.core import files, strict_json
from mixveil.core.errors import ArgumentError, ManifestError, UnreadableFileError, VersionError
from mixveil.core.types import Batch, Calibration, Mu, PublicUse, Release, Target, Tau, View
from mixveil.releases.envelope import Envelope, File
from mixveil.releases.kinds.records import RecordSettings
from mixveil.releases.reading import read_file

FORMAT, VERSION = "mixveil-challenge", 1
CARD, ENCODINGS, PAGE = "challenge.json", "encodings.safetensors", "index.html"
RULES = ("challenge-rule-recover", "challenge-rule-public", "challenge-rule-guess")
SCORED = ("challenge-scored-images", "challenge-scored-sources")
RECOVERED = 0.5
"""An image counts as recovered where its guess has a larger SSIM than this."""

MOST_IMAGES = 1000
"""Every guess is compared with every image."""

MOST_BYTES = 4 << 30
_ORDER = "one-random-order"
_FIELDS = {
    *("format", "version", "id", "payload", "classes", "range", "images", "encodings", "rows", "private_per_row"),
    *("order", "target", "public", "reproducible", "rules", "scored", "recovered_ssim", "file", "truth_sha256"),
}


@dataclass(frozen=True)
class PublicImages:
    """The public data that an encoder used. patches, keypoints: of what was mixed in; None where facts were taken."""

    name: str
    use: PublicUse
    patches: int | None = None
    keypoints: int | None = None


@dataclass(frozen=True)
class ChallengeCard:
    """What a challenge says of itself: all that is public.

    Attributes:
        settings: The encoder with all its settings, and the shape of a row.
        low, high: The range of a value of a private image.
        images: How many private images there are.
        encodings: How many times each of them is a row's own image.
        private_per_row: How many private images a row is made of at most.
        target: What the noise was asked to keep, for one encoding of each image; None where nothing was asked.
        reproducible: Whether everything was drawn from a seed.
        file: The encodings.
        truth_sha256: Of the file of the truth, which also holds a secret number: it says nothing before the truth is
            shown, and then shows that it is the one that the challenge was made with.
    """

    id: str
    settings: RecordSettings
    classes: tuple[str, ...]
    low: float
    high: float
    images: int
    encodings: int
    private_per_row: int
    target: Target | None
    public: PublicImages | None
    reproducible: bool
    file: File
    truth_sha256: str

    @property
    def rows(self) -> int:
        return self.images * self.encodings

    @property
    def envelope(self) -> Envelope:
        """As a release of all rows: attacks run on that. It promises nothing."""
        return Envelope(
            self.settings, "challenge", self.classes, reproducible=self.reproducible, files=(self.file,), id=self.id
        )

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        target = None
        if self.target is not None:
            how = self.target.calibration if isinstance(self.target, Tau) else None
            name = "mu" if isinstance(self.target, Mu) else "tau"
            target = {"name": name, "value": self.target.value, "calibration": how}
        return {
            "format": FORMAT,
            "version": VERSION,
            "id": self.id,
            "payload": self.settings.plain(),
            "classes": list(self.classes),
            "range": [self.low, self.high],
            "images": self.images,
            "encodings": self.encodings,
            "rows": self.rows,
            "private_per_row": self.private_per_row,
            "order": _ORDER,
            "target": target,
            "public": None if self.public is None else asdict(self.public),
            "reproducible": self.reproducible,
            "rules": list(RULES),
            "scored": list(SCORED),
            "recovered_ssim": RECOVERED,
            "file": asdict(self.file),
            "truth_sha256": self.truth_sha256,
        }

    def to_json(self) -> str:
        return json.dumps(self.plain(), indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class Challenge:
    """A challenge that was opened. release: all its rows, in the order of the file."""

    folder: Path
    card: ChallengeCard
    release: Release

    @cached_property
    def view(self) -> View:
        """All that an attacker sees: one release of images × encodings rows, without traces. What else the attacker
        has, such as public images, is theirs to add (`dataclasses.replace`)."""
        return View((self.release,), records=self.card.images)

    def rows(self) -> Batch:
        """All rows as they were encoded, in memory: x (rows, …) float32 and soft labels y (rows, classes)."""
        found: Batch = self.release.payload.take(torch.arange(self.card.rows))
        return found


def open_challenge(folder: Path | str) -> Challenge:
    """Open a challenge that somebody published. Its rows stay in their file: keep the folder unchanged while they are
    in use."""
    folder = Path(folder)
    card = parse(read_text(folder, CARD, "a challenge"))
    return Challenge(folder, card, read_rows(folder, card))


def read_rows(folder: Path, card: ChallengeCard) -> Release:
    """The encodings: size, hash, types, shapes, finiteness and labels are checked."""
    envelope = card.envelope
    return Release(envelope, card.settings.content([read_file(folder, envelope, card.file)]))


def read_text(folder: Path, name: str, what: str) -> str:
    """A file of JSON in the folder of a challenge, or of its truth."""
    files.check_there(folder, f"the folder of {what}")
    try:
        return strict_json.decoded(files.read_small(folder / name, strict_json.MANIFEST_LIMIT))
    except UnreadableFileError as error:
        raise ManifestError(f"{folder} is not {what}: {error}") from None


def check_size(images: int, encodings: int, settings: RecordSettings, classes: int) -> None:
    """Refuse a challenge of too few or too many rows."""
    for name, value, least, most in (("images", images, 2, MOST_IMAGES), ("encodings", encodings, 1, MOST_BYTES)):
        if not least <= value <= most:
            raise ArgumentError(f"{name} must be in {least}…{most:,}, got {value:,}")
    if (size := images * encodings * settings.row_bytes(classes)) > MOST_BYTES:
        raise ArgumentError(
            f"{images:,} images × {encodings:,} encodings take {size:,} bytes, and a challenge has at most "
            f"{MOST_BYTES:,}: ask for fewer encodings"
        )


def parse(text: str) -> ChallengeCard:
    """Read `challenge.json`. Every field must be there and of its type, and no other."""
    try:
        return _parse(strict_json.mapping(CARD, strict_json.loads(text)))
    except ArithmeticError as error:
        raise ManifestError(f"its settings describe no encodings: {error}") from None


def check_format(whole: dict[str, Any], name: str, version: int) -> None:
    """Refuse another format, or another version of it."""
    if whole.get("format") != name:
        raise ManifestError(f"format must be {name!r}, got {strict_json.shown(whole.get('format'))}")
    if type(whole.get("version")) is not int or whole["version"] != version:
        shown = strict_json.shown(whole.get("version"))
        raise VersionError(f"this mixveil reads version {version} of {name}, got {shown}: use the mixveil of its maker")


def parsed_file(where: str, item: Any, name: str) -> File:
    """The name, size and hash of a file that must have this name."""
    fields = strict_json.mapping(where, item)
    strict_json.only(where, fields, {"name", "bytes", "sha256", "rows"})
    if fields["name"] != name:
        raise ManifestError(f"{where}.name must be {name}, got {strict_json.shown(fields['name'])}")
    if (size := strict_json.count(f"{where}.bytes", fields["bytes"])) > MOST_BYTES + strict_json.MANIFEST_LIMIT:
        raise ManifestError(f"{where}.bytes is {size:,}, and a challenge has at most {MOST_BYTES:,}")
    digest = strict_json.text(f"{where}.sha256", fields["sha256"], r"[0-9a-f]{64}")
    return File(name, size, digest, strict_json.count(f"{where}.rows", fields["rows"]))


def _parse(whole: dict[str, Any]) -> ChallengeCard:
    check_format(whole, FORMAT, VERSION)
    strict_json.only(CARD, whole, _FIELDS)
    constants = {"order": _ORDER, "rules": [*RULES], "scored": [*SCORED], "recovered_ssim": RECOVERED}
    for name, due in constants.items():
        if whole[name] != due:
            raise ManifestError(f"{name} must be {due} in version {VERSION}, got {strict_json.shown(whole[name])}")
    card = ChallengeCard(
        id=strict_json.text("id", whole["id"], r"[0-9a-f]{32}"),
        settings=RecordSettings.parse(strict_json.mapping("payload", whole["payload"])),
        classes=tuple(strict_json.text("classes", name) for name in strict_json.items("classes", whole["classes"])),
        **_range(whole["range"]),
        images=strict_json.count("images", whole["images"]),
        encodings=strict_json.count("encodings", whole["encodings"]),
        private_per_row=strict_json.count("private_per_row", whole["private_per_row"]),
        target=_target(whole["target"]),
        public=_public(whole["public"]),
        reproducible=strict_json.flag("reproducible", whole["reproducible"]),
        file=parsed_file("file", whole["file"], ENCODINGS),
        truth_sha256=strict_json.text("truth_sha256", whole["truth_sha256"], r"[0-9a-f]{64}"),
    )
    with strict_json.within(CARD):
        check_size(card.images, card.encodings, card.settings, len(card.classes))
    if whole["rows"] != card.rows or card.file.rows != card.rows:
        raise ManifestError(f"rows must be images × encodings = {card.rows}, got {strict_json.shown(whole['rows'])}")
    if card.settings.extractor is not None or card.settings.screened is not None:
        raise ManifestError("a challenge is of images, and no row of it is left out")
    if not card.classes or len({*card.classes}) != len(card.classes):
        raise ManifestError("classes must be different names")
    if card.private_per_row > card.images:
        raise ManifestError(f"private_per_row is {card.private_per_row}, of {card.images} images")
    card.settings.check(card.envelope)
    return card


def _range(item: Any) -> dict[str, float]:
    ends = strict_json.items("range", item)
    if len(ends) != 2:
        raise ManifestError("range must be two numbers")
    low, high = (strict_json.number("range", end) for end in ends)
    if not (low < high and math.isfinite(high - low)):
        raise ManifestError(f"range cannot be {strict_json.shown(ends)}")
    return {"low": low, "high": high}


def _target(item: Any) -> Target | None:
    if item is None:
        return None
    fields = strict_json.mapping("target", item)
    strict_json.only("target", fields, {"name", "value", "calibration"})
    value, how = strict_json.figure("target.value", fields["value"]), fields["calibration"]
    with strict_json.within("target"):
        if fields["name"] == "mu" and how is None:
            return Mu(value)
        if fields["name"] == "tau" and strict_json.fits(how, Calibration):
            return Tau(value, how)
    raise ManifestError(f"target cannot be {strict_json.shown(item)}")


def _public(item: Any) -> PublicImages | None:
    if item is None:
        return None
    fields = strict_json.mapping("public", item)
    strict_json.only("public", fields, {"name", "use", "patches", "keypoints"})
    for name in ("patches", "keypoints"):
        if not strict_json.fits(fields[name], int | None) or (fields[name] is not None and fields[name] < 0):
            raise ManifestError(f"public.{name} cannot be {strict_json.shown(fields[name])}")
    if not strict_json.fits(fields["use"], PublicUse):
        raise ManifestError(f"public.use cannot be {strict_json.shown(fields['use'])}")
    return PublicImages(
        strict_json.text("public.name", fields["name"]), fields["use"], fields["patches"], fields["keypoints"]
    )
