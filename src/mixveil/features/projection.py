"""A public projection: from features to few whitened numbers of bounded length.

    z = clip((f − mean) · matrix)

A projection is fitted on PUBLIC data only (`projection_fit`); nothing in it may depend on private records. It carries
the fingerprints of the images that it was fitted on, so that a data owner can see whether theirs are among them. The
sender of a projection must learn nothing from what happens to it: no record makes it fail.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import torch
from safetensors.torch import save
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError, PrivateFactError, ProjectionError
from mixveil.core.types import Batch, Dataset
from mixveil.core.wording.notes import Note
from mixveil.data import fingerprint
from mixveil.data.row_views import RowsView
from mixveil.features.cache import Features
from mixveil.features.extractor import Extractor
from mixveil.features.round_settings import RoundSettings

FORMAT = "mixveil-projection"
VERSION = 4
LARGEST_CLIP = 1e15
"""Far from the end of float32, so that no record makes anything overflow; its inverse is the smallest clip norm."""

TENSOR_KINDS = {
    "mean": (torch.float32, 1),
    "matrix": (torch.float32, 2),
    "separation": (torch.float32, 1),
    "norms": (torch.float32, 1),
    "sample": (torch.float16, 2),
    "prints": (torch.uint8, 2),
    "means": (torch.float32, 2),
    "precision": (torch.float32, 1),
}
"""The tensors of a projection by field, with their types and dimensions."""

_CLIP_QUANTILE = 0.7
_BLOCK = 4096


class Used(NamedTuple):
    """Statistics that were used to find the directions of a projection.

    Attributes:
        id: of their release.
        party: the party that sent them.
        mu: what they promised a unit of unit_rows rows; 0 for nothing.
        unit_rows: the most rows that a unit has.
        label_epsilon: 0 where μ covers labels, ε where they were randomised; None where they were shown.
    """

    id: str
    party: str
    mu: float
    unit_rows: int
    label_epsilon: float | None


@dataclass(frozen=True)
class Projection:
    """A map from d features to k numbers.

    Attributes:
        mean: (d,) of the public features.
        matrix: (d, k) whitens and projects.
        clip: the norm to which records are clipped.
        separation: (k,) the mean squared distance of two public classes in each direction.
        norms: (k,) the median public norm in the first 1…k directions.
        sample: (m, k) some public rows.
        prints: (n, 8) fingerprints of the public images.
        extractor: the features that the projection takes.
        weights: the digest of the extractor's settings and networks.
        origin: whether the data that it was fitted on are public.
        about: how it was fitted.
        means: (classes, k) the class means that statistics show, for a head to start from; (0, k) before there are any.
        precision: (classes,) the inverse variance of those means; 0 where nothing is known.
        spent: the statistics that found its directions.
        classes: the classes of those statistics.
        rounds: settings of rounds of sums, by the noise of a job.
    """

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
    rounds: tuple[RoundSettings, ...] = ()

    @property
    def dimension(self) -> int:
        return self.matrix.shape[1]

    def first(self, k: int) -> Projection:
        """Its first k directions."""
        checks.at_least("k", k, 1)
        if k > self.dimension:
            raise ArgumentError(f"k must be at most {self.dimension}, the directions of the projection, got {k}")
        clip = float(self.norms[k - 1])
        if not 1 / LARGEST_CLIP < clip < LARGEST_CLIP:
            raise ArgumentError(f"k = {k}: the projection has a clip norm of {clip:g}, which no record can have")
        return replace(
            self,
            matrix=self.matrix[:, :k].contiguous(),
            clip=clip,
            separation=self.separation[:k],
            norms=self.norms[:k],
            sample=self.sample[:, :k].contiguous(),
            means=self.means[:, :k].contiguous(),
            rounds=tuple(settings for settings in self.rounds if settings.directions <= k),
        )

    def along(
        self, directions: Tensor, means: Tensor, precision: Tensor, classes: tuple[str, ...], spent: tuple[Used, ...]
    ) -> Projection:
        """Its part along orthonormal directions (k, m), clipped at a public quantile of the norms there.

        means, precision: of the classes, (classes, k) and (classes,), in all its directions.
        """
        if not len(self.sample):
            raise ArgumentError("a projection that was fitted on private data has no public norms to clip by")
        sample = self.sample.float() @ directions
        squares = sample.square().cumsum(1)
        return replace(
            self,
            matrix=(self.matrix @ directions).contiguous(),
            clip=float(squares[:, -1].sqrt().quantile(_CLIP_QUANTILE)),
            separation=self.separation @ directions.square(),
            norms=squares.sqrt().median(0).values,
            sample=sample.half(),
            means=(means @ directions.double()).float(),
            precision=precision.float(),
            spent=spent,
            classes=classes,
            rounds=(),
        )

    def __call__(self, features: Tensor) -> Tensor:
        """(m, k) float32: centred, whitened, projected, and scaled down to norm `clip` where it is longer.

        A model takes features without the last step, since it releases nothing.
        """
        z = (features.float() - self.mean) @ self.matrix
        wild = ~z.isfinite().all(1)
        if bool(wild.any()):  # beyond float32, but not beyond float64; a feature that is no number becomes 0
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
            "rounds": [settings.plain() for settings in self.rounds],
        }
        header = {"mixveil": json.dumps(settings, sort_keys=True)}  # one entry: the order of several is not fixed
        return save({name: tensor.contiguous() for name, tensor in self.tensors().items()}, header)

    def tensors(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in TENSOR_KINDS}

    def digest(self) -> str:
        """The SHA-256 of its file, by which every release names it."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


@dataclass(frozen=True)
class Projected(RowsView):
    """Features through a projection: what enters a mixture or a sum. All values are in ±clip."""

    rows: Features
    projection: Projection

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.projection.dimension,)

    @property
    def low(self) -> float:
        return -self.projection.clip

    @property
    def high(self) -> float:
        return self.projection.clip

    @property
    def labels(self) -> Tensor:
        return self.rows.labels

    def take(self, index: Tensor) -> Batch:
        batch = self.rows.take(index)
        return Batch(self.projection(batch.x), batch.y)

    def warnings(self) -> list[Note]:
        return self.rows.warnings()


@dataclass(frozen=True)
class HeldRows(Projected):
    """Projected rows that are kept in memory. z: (n, k) float32."""

    z: Tensor = field(repr=False)

    def take(self, index: Tensor) -> Batch:
        labels = torch.nn.functional.one_hot(self.labels[index], len(self.classes)).float()
        return Batch(self.z[index], labels)


def held(rows: Projected) -> HeldRows:
    """The same rows, projected once: for protocols that go over them again and again."""
    parts = [rows.take(index).x for index in torch.split(torch.arange(len(rows)), _BLOCK)]
    return HeldRows(rows.rows, rows.projection, torch.cat(parts))


def projected(features: Features, weights: str, projection: Projection, *, certified: bool) -> Projected:
    """Features through a projection that was made for such features; a certified release needs a public projection."""
    if features.shape[0] != projection.mean.numel():
        raise ProjectionError(
            f"the projection takes {projection.mean.numel()} features, and these images have {features.shape[0]}: "
            f"their size or colours differ (--size, --grey)"
        )
    if weights != projection.weights or features.extractor != projection.extractor:
        raise ProjectionError(
            f"the projection takes features of {projection.extractor} ({projection.weights[:8]}), and these are of "
            f"{features.extractor} ({weights[:8]})"
        )
    if certified and projection.origin != "public":
        raise PrivateFactError("the projection was fitted on private data: a certified release needs a public one")
    return Projected(features, projection)


def shared(projection: Projection, images: Dataset) -> int:
    """How many of these images the projection was fitted on.

    Only the owner of the images may see the result. In a network nothing that leaves may depend on it: the author of
    the fingerprints would learn whose images they are.
    """
    return fingerprint.among(projection.prints, fingerprint.fingerprints(images))
