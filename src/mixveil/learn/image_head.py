"""A trained network on images: what it takes, how it names classes, and its form on disk."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from mixveil.core import strict_json
from mixveil.core.errors import ArgumentError, ManifestError, MismatchError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Progress, Rows
from mixveil.encoders.batch_transform import BatchTransform
from mixveil.encoders.instahide import CalibratedInstaHide
from mixveil.learn.image_training import averaged
from mixveil.learn.resnet import COLOURS, ResNet18

_TOGETHER = 2048  # images that are encoded among themselves
_WIDEST, _LARGEST = 1024, 4096  # channels and pixels of a side that others may ask for


@dataclass(frozen=True)
class InstaHideSettings:
    """The InstaHide that rows were encoded with, as far as it matters for other images: see `CalibratedInstaHide`."""

    k: int
    c1: float
    centre: float

    def encoder(self, values: int) -> CalibratedInstaHide:
        """It mixes images with one another only: public patches do not come with a model."""
        mixing: dict[str, Any] = asdict(self)
        return CalibratedInstaHide(**mixing, c2=0.0, covers=0, pad=0, values=values)


@dataclass(frozen=True)
class ImageHead:
    """A ResNet-18 that takes images.

    Attributes:
        net: In eval mode, in memory; −∞ in its last bias marks a class that no party had.
        shape: Of an image, (1 or 3, height, width).
        mean, std: By which values are normalised.
        instahide: The one that it was trained on; None where it was trained on other rows.
    """

    net: ResNet18 = field(repr=False)
    shape: tuple[int, ...]
    mean: float
    std: float
    instahide: InstaHideSettings | None

    @property
    def inputs(self) -> int:
        return math.prod(self.shape)

    def check_encodings(self, asked: int, rows: int) -> int:
        """How many encodings of an image are averaged, if they can be; 0: images are taken as they are."""
        if asked < 0:
            raise ArgumentError(f"encodings must be 0 or more, got {asked}")
        if asked and self.instahide is None:
            raise MismatchError("encodings are for a model that was trained on InstaHide, and this one was not: use 0")
        if asked and rows < 2:
            raise ArgumentError("one image cannot be encoded: it has no other to be mixed with; use encodings = 0")
        return asked

    def probabilities(self, rows: Rows, encodings: int, progress: Progress = lambda _: None) -> Tensor:
        """(n, classes). Encoded images are mixed with one another, by draws that repeat."""
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        net = self.net.to(device)
        encode, classes = None, max(2, self.net.head.out_features)
        if encodings and self.instahide is not None:
            stream = SeededStream(0).fork("inference")
            encode = BatchTransform(self.instahide.encoder(self.inputs), classes=classes, stream=stream)
        parts = []
        for index in torch.arange(len(rows)).tensor_split(-(-len(rows) // _TOGETHER)):
            x = rows.take(index).x.view(len(index), *self.shape).to(device)
            unknown = x.new_zeros(len(x), classes)
            seen = (x,) if encode is None else (encode(x, unknown)[0] for _ in range(encodings))
            parts.append(averaged(net, (self._normal(one) for one in seen)).cpu())
            progress(len(index))
        return torch.cat(parts)

    def named(self, rows: Rows, progress: Progress = lambda _: None, *, encodings: int = 0) -> Tensor:
        """(n,) the likeliest class of each image."""
        return self.probabilities(rows, self.check_encodings(encodings, len(rows)), progress).argmax(1)

    def _normal(self, x: Tensor) -> Tensor:
        return (x.float() - self.mean) / self.std

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        instahide = None if self.instahide is None else asdict(self.instahide)
        width = self.net.stem.out_channels
        return {"width": width, "shape": list(self.shape), "mean": self.mean, "std": self.std, "instahide": instahide}

    def tensors(self) -> dict[str, Tensor]:
        return {name: tensor.contiguous().cpu() for name, tensor in self.net.state_dict().items()}

    @classmethod
    def read(cls, item: Any, tensors: Mapping[str, Tensor], classes: int) -> ImageHead:
        """From JSON and tensors that others wrote."""
        stated = strict_json.mapping("resnet18", item)
        strict_json.only("resnet18", stated, {"width", "shape", "mean", "std", "instahide"})
        width = strict_json.count("width", stated["width"])
        shape = tuple(strict_json.count("shape", size) for size in strict_json.items("shape", stated["shape"]))
        mean, std = (strict_json.number(name, stated[name]) for name in ("mean", "std"))
        if not 1 <= width <= _WIDEST or not is_image(shape) or max(shape) > _LARGEST or std <= 0:
            raise ManifestError(f"no network of width {width} takes images of {shape} over {std:g}")
        with torch.device("meta"):  # takes no memory, however large a network is asked for
            net = ResNet18(classes, width)
        _check(tensors, net.state_dict())
        net.load_state_dict(dict(tensors), assign=True)
        used = None if stated["instahide"] is None else _settings(stated["instahide"], math.prod(shape))
        return cls(net.eval(), shape, mean, std, used)


def is_image(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and shape[0] in (1, COLOURS) and min(shape) > 0


def _settings(item: Any, values: int) -> InstaHideSettings:
    stated = strict_json.mapping("instahide", item)
    strict_json.only("instahide", stated, {"k", "c1", "centre"})
    numbers = (strict_json.number(name, stated[name]) for name in ("c1", "centre"))
    found = InstaHideSettings(strict_json.count("k", stated["k"]), *numbers)
    if found.k > 1000:
        raise ManifestError(f"k cannot be {found.k}")
    found.encoder(values)  # refuses what no InstaHide has
    return found


def _check(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    if found.keys() != wanted.keys():
        raise ManifestError(f"its tensors are not those of a ResNet-18: {sorted(found.keys() ^ wanted.keys())[:3]}")
    for name, tensor in found.items():
        if tensor.shape != wanted[name].shape or tensor.dtype != torch.float32:
            raise ManifestError(f"its tensor {name} is {tensor.dtype} of shape {tuple(tensor.shape)}")
        fits = tensor.isfinite() | (tensor == -torch.inf) if name == "head.bias" else tensor.isfinite()
        if not bool(fits.all()) or (name.endswith("running_var") and bool((tensor < 0).any())):
            raise ManifestError(f"its tensor {name} has impossible values")
    if not bool(found["head.bias"].isfinite().any()):
        raise ManifestError("no class can be named")
