"""How far image noise moves features: the paper's way to the noise that its experiments give them (§5).

    r² = V(A/τ − 1)  (`energy`),   displacement = mean ‖f(clamp(x + e)) − f(x)‖,   e uniform on the sphere of radius r

Pixels are clamped to their range. Beyond it a pixel is black or white, however strong the noise: for images with any
contrast the displacement saturates and hardly depends on τ. It bounds nothing; mixveil measures it to compare with the
published experiments.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import Progress
from mixveil.data.images import Images
from mixveil.features.backbones.loading import IMAGENET
from mixveil.features.cache import Loaded
from mixveil.theory import snr

MOST_IMAGES = 1024
"""How many images are given noise, at most."""

_ENERGY_IMAGES = 2048
_BATCH = 16

Normalisation = Literal["imagenet", "table7"]
Scale = tuple[tuple[float, ...], tuple[float, ...]]

_HUNDRED = ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))
TABLE7: dict[str, Scale] = {
    "mnist": ((0.1307,) * 3, (0.3081,) * 3),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": _HUNDRED,
    "tiny-imagenet": _HUNDRED,
}
"""Mean and standard deviation of each channel, by data set, as the paper's Table 7 has them."""


@dataclass(frozen=True)
class Displacement:
    """How far image noise of a nominal τ moves features.

    Attributes:
        image_radius: of the noise, in normalised pixels.
        radius: the mean distance that features moved; feature_norm: their mean norm.
        images: how many images were given noise.
        clamped: the share of pixel values that left their range.
    """

    tau: float
    image_radius: float
    radius: float
    feature_norm: float
    images: int
    clamped: float


def measure(
    images: Images,
    loaded: Loaded,
    taus: Sequence[float],
    *,
    alpha: float,
    normalisation: Normalisation = "imagenet",
    stream: Stream,
    progress: Progress = lambda _: None,
) -> list[Displacement]:
    """The displacement for each τ, over up to 1,024 images chosen by the stream; V is that of up to 2,048.

    All τ move the same images in the same directions. normalisation: the units in which the noise is equally strong in
    every channel. progress: called with `work` steps in all.
    """
    if not loaded.nets:
        raise ArgumentError("displacement needs features of a network: name a backbone")
    checks.enough_rows(len(images))
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in scale(normalisation, images.name))
    order = stream.fork("images").permutation(len(images))
    size, directions = loaded.extractor.side, stream.fork("noise")
    dimension = 3 * size * size
    energy = _energy(((x - mean) / std for x in _resized(images, order[:_ENERGY_IMAGES], size)), progress)
    radii = [math.sqrt(snr.noise_variance(tau, alpha, energy)) for tau in taus]
    moved, clamped = [0.0] * len(taus), [0] * len(taus)
    norm, count = 0.0, 0
    for x in _resized(images, order[:MOST_IMAGES], size):
        clean = loaded(x).double()
        norm, count = norm + float(clean.norm(dim=1).sum()), count + len(x)
        unit = directions.sphere(len(x), dimension, 1.0).view(x.shape) * std
        for place, radius in enumerate(radii):
            noisy = x + radius * unit
            valid = noisy.clamp(images.low, images.high)
            clamped[place] += int((valid != noisy).sum())
            moved[place] += float((loaded(valid.float()).double() - clean).norm(dim=1).sum())
        progress(len(x) * (1 + len(taus)))
    return [
        Displacement(tau, radius, far / count, norm / count, count, changed / (count * dimension))
        for tau, radius, far, changed in zip(taus, radii, moved, clamped, strict=True)
    ]


def work(images: int, taus: int) -> int:
    """How many steps `measure` reports."""
    return min(images, _ENERGY_IMAGES) + min(images, MOST_IMAGES) * (1 + taus)


def scale(normalisation: Normalisation, data: str) -> Scale:
    """Mean and standard deviation of the channels. data: the name of the data set."""
    if normalisation == "imagenet":
        return IMAGENET
    if normalisation != "table7":
        raise ArgumentError(f"normalisation must be imagenet or table7, got {normalisation!r}")
    if data not in TABLE7:
        raise ArgumentError(f"normalisation = table7 knows {', '.join(TABLE7)}, got the data set {data!r}")
    return TABLE7[data]


def _resized(images: Images, index: Tensor, size: int) -> Iterator[Tensor]:
    """Batches of images, (m, 3, size, size), resized as a backbone would."""
    for rows in torch.split(index, _BATCH):
        x = images.take(rows).x
        if x.dim() != 4 or x.shape[1] not in (1, 3):
            raise ArgumentError(f"a backbone needs images of 1 or 3 channels, got {tuple(x.shape[1:])}")
        x = x.float().expand(-1, 3, -1, -1)
        if x.shape[2:] != (size, size):
            shrinks = max(x.shape[2:]) > size
            x = torch.nn.functional.interpolate(x, size=(size, size), mode="bilinear", antialias=shrinks)
        yield x


def _energy(batches: Iterator[Tensor], progress: Progress) -> float:
    """V: the number of values of an image, times the variance of all values around one scalar mean."""
    total = squares = 0.0
    count = values = 0
    for x in batches:
        wide = x.double()
        total, squares = total + float(wide.sum()), squares + float(wide.square().sum())
        count, values = count + len(x), x[0].numel()
        progress(len(x))
    mean = total / (count * values)
    return values * max(0.0, squares / (count * values) - mean**2)
