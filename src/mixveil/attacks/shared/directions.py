"""Directions in which records are told apart: matrices where rows are many, waves and spans where they are few.

In the eigenbasis of a covariance of d values there are d × d numbers, and from fewer rows than values they are mostly
chance. Images then have waves, which need no matrix; other rows have the directions that they span, and beside them a
rest in which all directions count alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Directions(Protocol):
    """A linear map from values (n, d) to coordinates (n, k), and back.

    Attributes:
        count: (k,) for how many directions each coordinate stands, d in all. Sums of squares and products over
            coordinates are those over directions as they are; whatever else is summed over directions is weighed by it.
    """

    @property
    def count(self) -> Tensor: ...
    def coordinates(self, x: Tensor) -> Tensor: ...
    def back(self, coordinates: Tensor) -> Tensor: ...
    def to(self, device: torch.device) -> Directions: ...


@dataclass(frozen=True)
class Basis:
    """matrix: (d, d), orthonormal, a direction a column."""

    matrix: Tensor

    @property
    def count(self) -> Tensor:
        return torch.ones_like(self.matrix[0])

    def coordinates(self, x: Tensor) -> Tensor:
        return x @ self.matrix

    def back(self, coordinates: Tensor) -> Tensor:
        return coordinates @ self.matrix.T

    def to(self, device: torch.device) -> Basis:
        return Basis(self.matrix.to(device))


@dataclass(frozen=True)
class Spanned:
    """The directions that few rows span, matrix (d, m), and then the rest: what they leave of each value. The d values
    of the rest stand for its d − m directions. What treats all of these alike, as a covariance does that is the same in
    each of them, is exact: no basis of the rest is needed."""

    matrix: Tensor

    @property
    def count(self) -> Tensor:
        values, spanned = self.matrix.shape
        rest = torch.full_like(self.matrix[:, 0], (values - spanned) / values)
        return torch.cat([torch.ones_like(self.matrix[0]), rest])

    def coordinates(self, x: Tensor) -> Tensor:
        spanned = x @ self.matrix
        return torch.cat([spanned, torch.addmm(x, spanned, self.matrix.T, alpha=-1)], 1)

    def back(self, coordinates: Tensor) -> Tensor:
        """Of what is given as the rest, only what lies in it counts."""
        spanned, rest = coordinates.tensor_split([self.matrix.shape[1]], 1)
        return torch.addmm(rest, spanned - rest @ self.matrix, self.matrix.T)

    def to(self, device: torch.device) -> Spanned:
        return Spanned(self.matrix.to(device))


@dataclass(frozen=True)
class Waves:
    """The cosine transform of images of a shape (channels, height, width). Natural images are much alike under shifts,
    so that their waves hardly depend on one another."""

    shape: tuple[int, ...]
    device: torch.device

    @property
    def count(self) -> Tensor:
        return torch.ones(math.prod(self.shape), dtype=torch.float64, device=self.device)

    def coordinates(self, x: Tensor) -> Tensor:
        return self._turned(x, back=False)

    def back(self, coordinates: Tensor) -> Tensor:
        return self._turned(coordinates, back=True)

    def to(self, device: torch.device) -> Waves:
        return Waves(self.shape, device)

    @property
    def length(self) -> Tensor:
        """(d,) of each wave a number for its channel and, rounded, its waves a picture."""
        waves = torch.cartesian_prod(*(torch.arange(size) for size in self.shape))
        length = waves[:, 1:].double().square().sum(1).sqrt().round().long()
        return (waves[:, 0] * (int(length.max()) + 1) + length).to(self.device)

    def _turned(self, x: Tensor, back: bool) -> Tensor:
        whole = x.view(-1, *self.shape)
        channel, down, across = (cosines(size).to(x) for size in self.shape)
        if back:
            channel, down, across = channel.T, down.T, across.T
        planes = _fast(whole, back) if x.device.type == "cpu" else down @ whole @ across.T
        return (channel @ planes.flatten(2)).flatten(1) if self.shape[0] > 1 else planes.flatten(1)


def _fast(images: Tensor, back: bool) -> Tensor:
    """The cosine transform of each plane of images (n, c, h, w): O(log n) a value, where a product of matrices is
    O(n)."""
    from scipy import fft

    transform = fft.idctn if back else fft.dctn
    turned = transform(images.numpy(), axes=(2, 3), norm="ortho", workers=torch.get_num_threads())
    return torch.from_numpy(turned)


def cosines(size: int) -> Tensor:
    """(size, size): the orthonormal cosine transform, a wave a row."""
    place, wave = torch.arange(size).double() + 0.5, torch.arange(size).double()
    found = torch.cos(math.pi / size * wave[:, None] * place) * math.sqrt(2 / size)
    found[0] /= math.sqrt(2)
    return found
