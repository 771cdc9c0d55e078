"""Public preparation: from features to few whitened numbers of bounded length, fitted on PUBLIC data only.

    z = clip((f − mean) · matrix)

The within-class covariance of labelled public data whitens all directions; they are ordered by how much public features
vary in them, so that the first k of them are a projection as well. Nothing of it may depend on private records: a
projection carries the fingerprints of the images that it was fitted on, so that an owner can see whether his are among
them. Whoever sends a projection must learn nothing from what happens to it: no record makes it fail.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import save
from torch import Tensor

from mixveil.core import checks, files, strict_json
from mixveil.core.errors import (
    ArgumentError,
    DataFormatError,
    ManifestError,
    PrivateFactError,
    ProjectionError,
    ReleaseError,
    UnreadableFileError,
)
from mixveil.core.tensor_files import check_header, mapped
from mixveil.core.types import Batch, Dataset
from mixveil.core.wording.notes import Note
from mixveil.data import fingerprint as prints
from mixveil.features.cache import Features
from mixveil.features.extractor import Extractor
from mixveil.theory import gdp
from mixveil.theory.moments import blocks
from mixveil.theory.response import LARGEST_EPSILON, SMALLEST_EPSILON

FORMAT = "mixveil-projection"
VERSION = 3
RIDGE = 0.1
"""Of the mean variance, added to every direction's before whitening: few public rows say little of small variances."""

_SAMPLE = 2000
_QUANTILE = 0.7
_LARGEST = 1e15  # clip norm: far from where float32 ends, so that no record makes anything overflow
_LIMIT = 2 << 30  # bytes of a file
Whitening = Literal["within", "total"]


class Used(NamedTuple):
    """Statistics that found a projection's directions. mu: what they promised a unit of unit_rows rows, 0 for nothing;
    label_epsilon: of randomised labels; None: they were shown."""

    id: str
    party: str
    mu: float
    unit_rows: int
    label_epsilon: float | None


@dataclass(frozen=True)
class Projection:
    """mean: (d,), matrix: (d, k); clip: the norm to which records are clipped. separation: (k,) the mean squared
    distance of two public classes in each direction; norms: (k,) the median public norm in the first 1…k directions;
    sample: (m, k) some public rows; prints: (n, 8) fingerprints of the public images. extractor, weights: which
    features it takes, and their digest; about: where it came from, in words; spent: the statistics that found its
    directions; means, precision: (classes, k) and (classes,) what those statistics say of the
    classes' means, for a head to start from; none (0, k) before there are statistics; classes: of those statistics."""

    mean: Tensor = field(repr=False)
    matrix: Tensor = field(repr=False)
    clip: float
    separation: Tensor = field(repr=False)
    norms: Tensor = field(repr=False)
    sample: Tensor = field(repr=False)
    prints: Tensor = field(repr=False)
    extractor: Extractor
    weights: str
    origin: Literal["public", "private"]
    about: Mapping[str, str]
    means: Tensor = field(repr=False)
    precision: Tensor = field(repr=False)
    spent: tuple[Used, ...] = ()
    classes: tuple[str, ...] = ()

    @property
    def dimension(self) -> int:
        return self.matrix.shape[1]

    def first(self, k: int) -> Projection:
        """Its first k directions."""
        checks.at_least("k", k, 1)
        if k > self.dimension:
            raise ArgumentError(f"k = {k}: the projection has {self.dimension} directions only")
        if not 1 / _LARGEST < float(self.norms[k - 1]) < _LARGEST:
            raise ArgumentError(f"k = {k}: a clip norm of {float(self.norms[k - 1]):g} is beyond all records")
        return replace(
            self,
            matrix=self.matrix[:, :k].contiguous(),
            clip=float(self.norms[k - 1]),
            separation=self.separation[:k],
            norms=self.norms[:k],
            sample=self.sample[:, :k].contiguous(),
            means=self.means[:, :k].contiguous(),
        )

    def along(
        self,
        directions: Tensor,
        means: Tensor,
        precision: Tensor,
        classes: tuple[str, ...],
        spent: tuple[Used, ...],
    ) -> Projection:
        """Its part along orthonormal directions (k, m), clipped at a public quantile of the norms there. means,
        precision: of the classes, in all its directions."""
        if not len(self.sample):
            raise ArgumentError("a projection that was fitted on private data shows no norms to clip new directions by")
        sample = self.sample.float() @ directions
        squares = sample.square().cumsum(1)
        return replace(
            self,
            matrix=(self.matrix @ directions).contiguous(),
            clip=float(squares[:, -1].sqrt().quantile(_QUANTILE)),
            separation=self.separation @ directions.square(),
            norms=squares.sqrt().median(0).values,
            sample=sample.half(),
            means=(means @ directions.double()).float(),
            precision=precision.float(),
            spent=spent,
            classes=classes,
        )

    def __call__(self, features: Tensor) -> Tensor:
        """(m, k) float32: centred, whitened, projected, and scaled down to norm `clip` where it is longer. A model
        takes them without the last step: who uses it protects nobody."""
        z = (features.float() - self.mean) @ self.matrix
        wild = ~z.isfinite().all(1)
        if bool(wild.any()):  # too large for float32, in no way for float64; a feature that is no number becomes 0
            far = (features[wild].double().nan_to_num(0.0, 0.0, 0.0) - self.mean.double()) @ self.matrix.double()
            z[wild] = (far * (self.clip / torch.linalg.vector_norm(far, dim=1, keepdim=True)).clamp(max=1)).float()
        z = torch.where(z.isfinite().all(1, keepdim=True), z, 0.0)
        norm = torch.linalg.vector_norm(z.double(), dim=1, keepdim=True)
        return z.mul_((self.clip / norm).clamp_(max=1))

    def to_bytes(self) -> bytes:
        settings = {
            "format": FORMAT,
            "version": VERSION,
            "clip": self.clip,
            "extractor": self.extractor.plain(),
            "weights": self.weights,
            "origin": self.origin,
            "about": dict(self.about),
            "spent": [list(item) for item in self.spent],
            "classes": list(self.classes),
        }
        header = {"mixveil": json.dumps(settings, sort_keys=True)}  # one entry: the order of several is not fixed
        return save({name: getattr(self, name).contiguous() for name in _TENSORS}, header)

    def digest(self) -> str:
        """The SHA-256 of its file: by this every release names it."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


_KINDS = {
    "mean": (torch.float32, 1),
    "matrix": (torch.float32, 2),
    "separation": (torch.float32, 1),
    "norms": (torch.float32, 1),
    "sample": (torch.float16, 2),
    "prints": (torch.uint8, 2),
    "means": (torch.float32, 2),
    "precision": (torch.float32, 1),
}
_TENSORS = tuple(_KINDS)


def fit(
    features: Features,
    weights: str,
    *,
    whitening: Whitening = "within",
    origin: Literal["public", "private"] = "public",
) -> Projection:
    """Mean, whitening and ordered directions of labelled features. Reads them twice."""
    n, classes = checks.enough_rows(len(features)), len(features.classes)
    d = features.shape[0]
    sums, second = torch.zeros(classes, d, dtype=torch.float64), torch.zeros(d, d, dtype=torch.float64)
    start = 0
    for block in blocks(features):
        labels = features.labels[start : start + len(block)]
        sums.index_add_(0, labels, block)
        second.addmm_(block.T, block)
        start += len(block)
    counts = features.labels.bincount(minlength=classes).double()
    met = counts > 0
    mean, means = sums.sum(0) / n, sums[met] / counts[met, None]
    total = second / n - mean.outer(mean)
    between = ((means - mean) * (counts[met] / n)[:, None]).T @ (means - mean)
    if whitening == "within" and int(met.sum()) < 2:
        raise ArgumentError("whitening within classes needs labelled data of at least two classes: use total")
    spread = total - between if whitening == "within" else total
    level = float(spread.diagonal().mean())
    if not level > 0:
        raise ArgumentError("the public data do not vary: there is nothing to whiten")
    values, vectors = torch.linalg.eigh(spread + RIDGE * level * torch.eye(d, dtype=torch.float64))
    whiten = vectors / values.sqrt()
    order = torch.linalg.eigh(total).eigenvectors.flip(1)
    nested = torch.linalg.qr(
        (vectors * values.sqrt()).T @ order
    ).Q  # the first k span the k directions of most variance
    matrix = whiten @ nested
    centred = (means - mean) @ matrix
    separation = 2 * (centred.var(0) - (1 / counts[met]).mean()).clamp(min=0) if len(means) > 1 else 0 * centred[0]
    index = torch.linspace(0, n - 1, min(n, _SAMPLE)).round().long()
    sample = (features.take(index).x.double() - mean) @ matrix
    norms = sample.square().cumsum(1).sqrt().median(0).values
    used = prints.fingerprints(features.images)
    if origin == "private":  # it may be sent: no record goes with it, nor what tells of one
        sample, used = sample[:0], used[:0]
    return Projection(
        mean=mean.float(),
        matrix=matrix.float(),
        clip=float(norms[-1]),
        separation=separation.float(),
        norms=norms.float(),
        sample=sample.half(),
        prints=used,
        extractor=features.extractor,
        weights=weights,
        origin=origin,
        means=torch.empty(0, d),
        precision=torch.empty(0),
        about={"rows": str(n), "classes": str(int(met.sum())), "whitening": whitening, "ridge": f"{RIDGE:g}"},
    )


def directions_for_sums(projection: Projection, *, parties: int, rows: int, classes: int, mu: float) -> int:
    """How many of its directions to use for class sums at μ, of all parties' rows, from public figures alone.

    With k directions two classes' means are Δ² apart (as public classes are) and carry noise of kν each, ν = P (2C/μ)²
    over the rows of a class squared. A discriminant along their noisy difference separates the classes by
    Δ⁴/(Δ² + 2kν): the k that makes this largest."""
    checks.at_least("parties", parties, 1)
    each = max(1.0, rows / classes)
    return _widest(projection, parties * (2 * projection.norms.double() / checks.positive("mu", mu) / each).square())


def directions_for_records(projection: Projection, *, rows: int, classes: int, mu: float, alpha: float) -> int:
    """The same for mixed records at μ: their noise averages out over the rows of a class, whoever has them."""
    noise = (2 * projection.norms.double() / checks.positive("mu", mu)).square() * gdp.record_factor(alpha) ** 2 / 2
    return _widest(projection, noise / max(1.0, rows / classes))


def _widest(projection: Projection, noise: Tensor) -> int:
    apart, k = projection.separation.double().cumsum(0), torch.arange(1, projection.dimension + 1)
    if not float(apart[-1]) > 0:
        raise ArgumentError("the public data do not show how far classes are apart: say how many directions with k")
    return int((apart.square() / (apart + 2 * k * noise).clamp(min=1e-300)).argmax()) + 1


@dataclass(frozen=True)
class Projected:
    """A data set of projected features: what enters a mixture, or a sum. All of its values are in ±clip."""

    features: Features
    projection: Projection

    def __len__(self) -> int:
        return len(self.features)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.projection.dimension,)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.features.classes

    @property
    def labels(self) -> Tensor:
        return self.features.labels

    @property
    def low(self) -> float:
        return -self.projection.clip

    @property
    def high(self) -> float:
        return self.projection.clip

    def take(self, index: Tensor) -> Batch:
        batch = self.features.take(index)
        return Batch(self.projection(batch.x), batch.y)

    @property
    def declared(self) -> bool:
        return self.features.declared

    @property
    def units(self) -> tuple[str, ...] | None:
        return self.features.units

    def originals(self, index: Tensor) -> Sequence[Tensor]:
        return self.features.originals(index)

    def warnings(self) -> list[Note]:
        return self.features.warnings()


def projected(features: Features, weights: str, projection: Projection, *, certified: bool) -> Projected:
    """Features through a projection that was made for such features; for a certified release, a public one."""
    if features.shape[0] != projection.mean.numel():
        raise ProjectionError(
            f"the projection takes {projection.mean.numel()} features, these images have {features.shape[0]}: their "
            f"size or colours are others"
        )
    if weights != projection.weights or features.extractor != projection.extractor:
        raise ProjectionError(
            f"the projection takes features of {projection.extractor} ({projection.weights[:8]}), these are of "
            f"{features.extractor} ({weights[:8]})"
        )
    if certified and projection.origin != "public":
        raise PrivateFactError("the projection was fitted on private data: a certified release needs a public one")
    return Projected(features, projection)


def shared(projection: Projection, images: Dataset) -> int:
    """How many of these images the projection was fitted on. For their owner's eyes: in a network nothing that leaves
    may depend on it, or whoever wrote the fingerprints would learn whose they are."""
    return prints.among(projection.prints, prints.fingerprints(images))


def check(projection: Projection) -> None:
    """Refuse one that would be refused to be read."""
    _check(projection.clip, {name: getattr(projection, name) for name in _TENSORS}, projection.classes)


def write(path: Path, projection: Projection) -> str:
    """Write it; its digest. What would be refused to be read is not written."""
    files.check_new(path)
    try:
        check(projection)
    except ArgumentError as error:
        raise ProjectionError(f"{path} is not written: {error}") from None
    data = projection.to_bytes()
    files.write_whole(path, data)
    return hashlib.sha256(data).hexdigest()


def read(path: Path) -> tuple[Projection, str]:
    """Read it; it and its digest. Everything is checked."""
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
    if whole.get("format") != FORMAT or whole.get("version") != VERSION or set(tensors) != set(_TENSORS):
        raise ArgumentError(f"not a projection of version {VERSION}")
    names = {"format", "version", "clip", "extractor", "weights", "origin", "about", "spent", "classes"}
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
        spent=tuple(_spent(item) for item in strict_json.items("spent", whole["spent"])),
        classes=classes,
    )


def _check(clip: float, tensors: Mapping[str, Tensor], classes: tuple[str, ...]) -> None:
    """Tensors of the right kinds that fit together, and figures that can be counted with."""
    kinds = {name: (tensor.dtype, tensor.dim()) for name, tensor in tensors.items()}
    if kinds != _KINDS:
        raise ArgumentError("its tensors are not of the kinds that a projection has")
    d, k = tensors["matrix"].shape
    shapes = {"mean": (d,), "matrix": (d, k), "separation": (k,), "norms": (k,)}
    fits = all(tuple(tensors[name].shape) == shape for name, shape in shapes.items())
    fits &= tensors["means"].shape == (len(tensors["precision"]), k) and bool((tensors["precision"] >= 0).all())
    fits &= tensors["sample"].shape[1] == k and tensors["prints"].shape[1] == 8
    fits &= len(classes) == len(tensors["precision"])
    if not 1 / _LARGEST < clip < _LARGEST or bool((tensors["norms"].abs() > _LARGEST).any()):
        raise ArgumentError(f"a clip norm of {clip:g} is beyond all records")
    if not fits or d < 1 or k < 1 or not all(bool(tensors[n].float().isfinite().all()) for n in _TENSORS):
        raise ArgumentError("its tensors do not fit together")
    if len(set(classes)) != len(classes):
        raise ArgumentError("two classes have the same name")


def _spent(item: Any) -> Used:
    if not isinstance(item, list) or len(item) != len(Used._fields):
        raise ArgumentError("spent must list ids, parties and figures")
    mu = strict_json.number("mu", item[2])
    if mu:  # nothing was promised
        strict_json.figure("mu", mu)
    epsilon = None if item[4] is None else strict_json.number("label_epsilon", item[4])
    if epsilon is not None and not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise ArgumentError(f"label_epsilon cannot be {epsilon:g}")
    names = strict_json.text("id", item[0], r"[0-9a-f]{32}"), strict_json.text("party", item[1])
    return Used(*names, mu, strict_json.count("unit_rows", item[3]), epsilon)
