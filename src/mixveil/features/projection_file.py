"""The file of a projection: safetensors, with its settings in the header. Everything that is read is checked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from mixveil.core import files, strict_json
from mixveil.core.errors import (
    ArgumentError,
    DataFormatError,
    ManifestError,
    ProjectionError,
    ReleaseError,
    UnreadableFileError,
)
from mixveil.core.tensor_files import check_header, mapped
from mixveil.data import fingerprint
from mixveil.features.extractor import Extractor
from mixveil.features.projection import FORMAT, LARGEST_CLIP, TENSOR_KINDS, VERSION, Projection, Used
from mixveil.features.round_settings import RoundSettings
from mixveil.theory.response import LARGEST_EPSILON, SMALLEST_EPSILON

_LIMIT = 2 << 30  # bytes of a file
_MOST_ROUNDS = 100  # settings of rounds that are read


def check(projection: Projection) -> None:
    """Refuse a projection that `read` would refuse."""
    _check(projection.clip, projection.tensors(), projection.classes)


def write(path: Path, projection: Projection) -> str:
    """Write a projection and return its digest. What `read` would refuse is not written."""
    files.check_new(path)
    try:
        check(projection)
    except ArgumentError as error:
        raise ProjectionError(f"{path} is not written: {error}") from None
    data = projection.to_bytes()
    files.write_whole(path, data)
    return hashlib.sha256(data).hexdigest()


def read(path: Path) -> tuple[Projection, str]:
    """Read a projection; also its digest."""
    files.check_there(path, "the file of a projection")
    try:
        with files.opened(path, _LIMIT) as opened:
            check_header(opened, path, limit=strict_json.MANIFEST_LIMIT, metadata=("mixveil",))
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
            with mapped(opened, path) as file:
                header = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, UnreadableFileError, ReleaseError, SafetensorError) as error:
        raise DataFormatError(f"{path} is not a projection: {error}") from None
    if "mixveil" not in header:
        raise DataFormatError(f"{path} is not a projection")
    try:
        return _parsed(header["mixveil"], tensors), digest
    except (ManifestError, ArgumentError) as error:
        raise DataFormatError(f"{path}: {error}") from None


def _parsed(text: str, tensors: dict[str, Tensor]) -> Projection:
    whole = strict_json.mapping("settings", strict_json.loads(text))
    if whole.get("format") != FORMAT or whole.get("version") != VERSION or set(tensors) != set(TENSOR_KINDS):
        raise ArgumentError(f"not a projection of version {VERSION}")
    names = {"format", "version", "clip", "extractor", "weights", "origin", "about", "spent", "classes", "rounds"}
    strict_json.only("settings", whole, names)
    classes = tuple(strict_json.text("classes", name) for name in strict_json.items("classes", whole["classes"]))
    clip = strict_json.number("clip", whole["clip"])
    _check(clip, tensors, classes)
    origin = strict_json.text("origin", whole["origin"], "public|private")
    about = strict_json.mapping("about", whole["about"])
    return Projection(
        **tensors,
        clip=clip,
        extractor=Extractor.read(whole["extractor"]),
        weights=strict_json.text("weights", whole["weights"], r"[0-9a-f]{64}"),
        origin="public" if origin == "public" else "private",
        about={strict_json.text("about", k): strict_json.text("about", v) for k, v in about.items()},
        spent=tuple(_used(item) for item in strict_json.items("spent", whole["spent"])),
        classes=classes,
        rounds=tuple(RoundSettings.read(item) for item in strict_json.items("rounds", whole["rounds"])[:_MOST_ROUNDS]),
    )


def _check(clip: float, tensors: Mapping[str, Tensor], classes: tuple[str, ...]) -> None:
    """Tensors of the right kinds and shapes, all finite, and a clip norm that can be computed with."""
    kinds = {name: (tensor.dtype, tensor.dim()) for name, tensor in tensors.items()}
    if kinds != TENSOR_KINDS:
        raise ArgumentError("its tensors do not have the types of a projection")
    d, k = tensors["matrix"].shape
    shapes = {"mean": (d,), "matrix": (d, k), "separation": (k,), "norms": (k,)}
    fits = all(tuple(tensors[name].shape) == shape for name, shape in shapes.items())
    fits &= tensors["means"].shape == (len(tensors["precision"]), k) and bool((tensors["precision"] >= 0).all())
    fits &= tensors["sample"].shape[1] == k and tensors["prints"].shape[1] == fingerprint.BYTES
    fits &= len(classes) == len(tensors["precision"])
    if not 1 / LARGEST_CLIP < clip < LARGEST_CLIP or bool((tensors["norms"].abs() > LARGEST_CLIP).any()):
        raise ArgumentError(f"it has a clip norm of {clip:g}, which no record can have")
    if not fits or d < 1 or k < 1 or not all(bool(tensors[n].float().isfinite().all()) for n in TENSOR_KINDS):
        raise ArgumentError("its tensors do not fit together")
    if len(set(classes)) != len(classes):
        raise ArgumentError("two classes have the same name")


def _used(item: Any) -> Used:
    if not isinstance(item, list) or len(item) != len(Used._fields):
        raise ArgumentError("spent must list ids, parties and figures")
    mu = strict_json.number("mu", item[2])
    if mu:  # 0 stands for no promise
        strict_json.figure("mu", mu)
    epsilon = None if item[4] is None else strict_json.number("label_epsilon", item[4])
    if epsilon and not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise ArgumentError(f"label_epsilon must be in [{SMALLEST_EPSILON:g}, {LARGEST_EPSILON:g}], got {epsilon:g}")
    names = strict_json.text("id", item[0], r"[0-9a-f]{32}"), strict_json.name("party", item[1])
    return Used(*names, mu, strict_json.count("unit_rows", item[3]), epsilon)
