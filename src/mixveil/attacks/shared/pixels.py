"""Images as the paper's two attacks see them: pixels of [0, 1] under ImageNet's normalisation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError
from mixveil.core.types import View
from mixveil.features.backbones.loading import IMAGENET


@dataclass(frozen=True)
class Pixels:
    """From a record's own values, low…high, to normalised ones and back. normalised: they are that already."""

    channels: int
    low: float
    high: float
    normalised: bool

    @classmethod
    def of(cls, view: View, normalised: bool) -> Pixels:
        """The range is that of public data where they state one, else [0, 1]."""
        shape = view.releases[0].shape
        if len(shape) != 3:
            raise ArgumentError(f"this attack needs images, got rows of the shape {shape}")
        low, high = getattr(view.public, "low", 0.0), getattr(view.public, "high", 1.0)
        if not math.isfinite(high - low):
            low, high = 0.0, 1.0
        return cls(shape[0], low, high, normalised)

    def enter(self, x: Tensor) -> Tensor:
        """(n, c, h, w) normalised."""
        mean, std = self._scale(x)
        return x if self.normalised else ((x - self.low) / (self.high - self.low) - mean) / std

    def leave(self, v: Tensor) -> Tensor:
        """(n, c, h, w) in the records' own values."""
        mean, std = self._scale(v)
        return v if self.normalised else (v * std + mean) * (self.high - self.low) + self.low

    def clamp(self, v: Tensor) -> Tensor:
        """Normalised values within what a pixel can be."""
        mean, std = self._scale(v)
        return torch.minimum(torch.maximum(v, -mean / std), (1 - mean) / std)

    def clamp_(self, v: Tensor) -> None:
        """The same in place."""
        mean, std = self._scale(v)
        for channel, low, high in zip(v.unbind(1), -mean / std, (1 - mean) / std, strict=True):
            channel.clamp_(float(low), float(high))

    def _scale(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """(c, 1, 1) each: ImageNet's where there are three channels, their mean where there are not."""
        mean, std = (torch.tensor(values, dtype=like.dtype, device=like.device) for values in IMAGENET)
        if self.channels != 3:
            mean, std = mean.mean().expand(self.channels), std.mean().expand(self.channels)
        return mean.view(-1, 1, 1), std.view(-1, 1, 1)


def total_variation(v: Tensor) -> Tensor:
    """Mean size of the differences down plus those across: anisotropic."""
    ways = (v[:, :, 1:] - v[:, :, :-1], v[..., 1:] - v[..., :-1])
    return torch.stack([way.abs().mean() if way.numel() else v.new_zeros(()) for way in ways]).sum()
