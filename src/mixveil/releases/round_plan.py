"""A plan for rounds of sums whose parties exchange files: what the coordinator writes once, and its heads.

A party checks both without looking at data. No guarantee depends on what they hold: the party reserves its own μ before
its first message, and the plan says how the messages share it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from safetensors.torch import save

from mixveil.core import files, randomness, strict_json, tensor_files
from mixveil.core.errors import DataFormatError, ManifestError, MismatchError, ReleaseError, UnreadableFileError
from mixveil.features.projection import Projection
from mixveil.features.round_settings import RoundSettings
from mixveil.releases.contributions import Head

FORMAT, VERSION = "mixveil-rounds", 1
_LIMIT = 1 << 16
_LENGTH = 8  # bytes before a header


@dataclass(frozen=True)
class JointPlan:
    """A plan that several parties follow.

    Attributes:
        projection: The digest of the projection that all of them use.
        settings: How many messages there are, how they share μ, and how the coordinator learns from them.
        id: By which heads, and each party's own notes, name it.
    """

    projection: str
    settings: RoundSettings
    id: str = field(default_factory=randomness.release_id)

    def narrowed(self, projection: Projection, digest: str) -> Projection:
        """The directions of the projection that the plan uses; another projection is refused."""
        if digest != self.projection:
            raise MismatchError(
                f"the plan {self.id[:8]} is for the projection {self.projection[:8]}, and this one is {digest[:8]}"
            )
        if self.settings.directions > projection.dimension:
            raise MismatchError(
                f"the plan {self.id[:8]} has {self.settings.directions} directions, its projection has "
                f"{projection.dimension}"
            )
        return projection.first(self.settings.directions)

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        own = {"id": self.id, "projection": self.projection, "settings": self.settings.plain()}
        return {"format": FORMAT, "version": VERSION, **own}

    @classmethod
    def read(cls, item: Any) -> JointPlan:
        """From JSON that others wrote."""
        whole = strict_json.mapping("plan", item)
        if whole.get("format") != FORMAT or whole.get("version") != VERSION:
            raise ManifestError(f"it is no plan for rounds of version {VERSION}")
        strict_json.only("plan", whole, {"format", "version", "id", "projection", "settings"})
        return cls(
            id=strict_json.text("id", whole["id"], r"[0-9a-f]{32}"),
            projection=strict_json.text("projection", whole["projection"], r"[0-9a-f]{64}"),
            settings=RoundSettings.read(whole["settings"]),
        )

    def write(self, path: Path) -> None:
        files.check_new(path)
        files.write_whole(path, (json.dumps(self.plain(), indent=2, allow_nan=False) + "\n").encode())


def read_plan(path: Path) -> JointPlan:
    files.check_there(path, "the file of a plan")
    try:
        return JointPlan.read(strict_json.parsed(files.read_small(path, _LIMIT)))
    except (ManifestError, UnreadableFileError) as error:
        raise DataFormatError(f"{path} is not a plan for rounds: {error}") from None


# Heads, as files


@dataclass(frozen=True)
class HeadFile:
    """A head that the coordinator sent. message: the number of the residual sums that it asks for; sha256: of its
    file."""

    head: Head
    message: int
    sha256: str


def head_bytes(head: Head, plan: JointPlan, message: int) -> bytes:
    """The file of a head: it names its plan, and the message that it asks for."""
    about = json.dumps({"plan": plan.id, "message": message}, sort_keys=True)
    return save({name: tensor.contiguous() for name, tensor in head.tensors().items()}, {"mixveil": about})


def read_head(path: Path, plan: JointPlan, classes: int) -> HeadFile:
    """From a file that others wrote. A head of another plan, of other sizes, or with values that are no numbers or too
    large is refused."""
    files.check_there(path, "the file of a head")
    directions, rounds = plan.settings.directions, plan.settings.rounds
    try:
        data = files.read_small(path, 8 * (directions * classes + directions + classes) + 2 * tensor_files.HEADER)
        about = strict_json.mapping("head", settings_of(data, path))
        strict_json.only("head", about, {"plan", "message"})
        message = strict_json.count("message", about["message"])
        if about["plan"] != plan.id or message > rounds:
            raise ManifestError(f"it is not of the plan {plan.id[:8]}, or beyond its {rounds} rounds")
        head = Head.read(data, directions, classes)
    except (ReleaseError, UnreadableFileError) as error:
        raise DataFormatError(f"{path} is not a head for this plan: {error}") from None
    return HeadFile(head, message, hashlib.sha256(data).hexdigest())


def settings_of(data: bytes, path: Path, limit: int = tensor_files.HEADER) -> Any:
    """The JSON that a safetensors file of mixveil carries in its header."""
    tensor_files.check_header(BytesIO(data), path, limit=limit, metadata=("mixveil",))
    header = strict_json.parsed(data[_LENGTH : _LENGTH + int.from_bytes(data[:_LENGTH], "little")])
    text = strict_json.mapping("header", header.get("__metadata__", {})).get("mixveil")
    return strict_json.loads(strict_json.of("header", text, str))
