"""Sources of training images: the same encodings in every epoch, or images that are encoded again for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError
from mixveil.core.types import Batch
from mixveil.learn.resnet import COLOURS

PAD = 4
_BLOCK = 1 << 13


class EpochSource(Protocol):
    """What a training goes through in an epoch."""

    rows: int
    classes: int
    device: torch.device

    def epoch(self, number: int) -> Batch:
        """(rows, colours, height, width) and (rows, classes), on the device: the same for the same number."""


class Transform(Protocol):
    """Encodes all images of an epoch at once, as `BatchTransform` does."""

    def restart(self, number: int) -> None: ...
    def __call__(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]: ...


class SameEveryEpoch:
    """Released rows, once made: every epoch goes through these."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        if x.dim() != 4 or len(x) != len(y):
            raise ArgumentError(f"x must be (n, colours, height, width), with as many labels, got {tuple(x.shape)}")
        self.rows, self.classes, self.device = len(x), y.shape[1], x.device
        self._batch = Batch(x, y)

    def epoch(self, number: int) -> Batch:
        return self._batch


class EncodedEveryEpoch:
    """Raw images that are encoded again for every epoch, all at once: any may be mixed with any other, as in the paper.
    It needs the raw images in every epoch, so it is no release.

    x: (n, colours, height, width), octets that stand for [0, 1] or floats; labels: (n,) class numbers.
    transform: None trains on the images as they are. augment: they are moved by up to 4 pixels and mirrored before.
    """

    def __init__(
        self,
        x: Tensor,
        labels: Tensor,
        classes: int,
        normal: Callable[[Tensor], Tensor],
        transform: Transform | None = None,
        *,
        augment: DeviceStream | None = None,
    ) -> None:
        self.rows, self.classes, self.device = len(x), classes, x.device
        self._x, self._labels = x, labels.to(x.device)
        self._normal, self._transform, self._augment = normal, transform, augment

    def epoch(self, number: int) -> Batch:
        x = self._x
        if self._augment is not None:
            self._augment.restart(number)
            x = moved(x, self._augment)
        x = self._normal(x)
        if self._transform is None:
            return Batch(x, torch.nn.functional.one_hot(self._labels, self.classes).float())
        self._transform.restart(number)
        return Batch(*self._transform(x, self._labels))


class Normalisation:
    """(x − mean)/std of each colour, of octets that stand for [0, 1] or of floats; grey images get three colours."""

    def __init__(self, mean: tuple[float, ...] = (0.5,), std: tuple[float, ...] = (0.5,)) -> None:
        self.mean, self.std = mean, std

    def __call__(self, x: Tensor) -> Tensor:
        scale = 1 / 255 if x.dtype == torch.uint8 else 1.0
        std, mean = (torch.tensor(values, device=x.device).view(-1, 1, 1) for values in (self.std, self.mean))
        return (x.expand(-1, COLOURS, -1, -1).float() * (scale / std)).sub_(mean / std)


def moved(x: Tensor, draws: DeviceStream, pad: int = PAD) -> Tensor:
    """Every image (n, c, h, w) moved by up to `pad` pixels each way, zeros coming in, and mirrored or not."""
    n, _, height, width = x.shape
    device = x.device
    moves = (draws.uniform(2, n, device=device) * (2 * pad + 1)).long()
    mirror = draws.uniform(n, device=device) < 0.5
    down, right = (torch.arange(side, device=device) for side in (height, width))
    column = torch.where(mirror[:, None], right.flip(0), right) + moves[1][:, None]
    row = down + moves[0][:, None]
    taken = torch.empty_like(x, memory_format=torch.contiguous_format)
    for part in torch.split(torch.arange(n, device=device), _BLOCK):
        wide = torch.nn.functional.pad(x[part], (pad, pad, pad, pad)).movedim(1, -1)
        image = torch.arange(len(part), device=device)[:, None, None]
        taken[part] = wide[image, row[part][:, :, None], column[part][:, None, :]].movedim(-1, 1)
    return taken
