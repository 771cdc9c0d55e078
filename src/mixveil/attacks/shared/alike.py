"""How similar images look, all with all, by SSIM: what searches of InstaHide's authors rank by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from mixveil.attacks.shared import training
from mixveil.attacks.shared.pixels import Pixels
from mixveil.core.types import View
from mixveil.data.similarity import ssim_of_all

_SIDE = 32
_PAIRS = 1 << 24  # that are held at a time


@dataclass(frozen=True)
class Comparison:
    """Images in the records' own values, low…high, are compared in [0, 1], and larger ones at 32 × 32."""

    low: float
    high: float

    @classmethod
    def of(cls, view: View) -> Comparison:
        pixels = Pixels.of(view, normalised=False)
        return cls(pixels.low, pixels.high)

    def in_parts(self, one: Tensor, other: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Numbers (m,) of some images of `one`, and (m, p) their similarity with all of `other`; then of the next."""
        seen = self._entered(other)
        for number in torch.split(torch.arange(len(one)), max(1, _PAIRS // len(other))):
            yield number, ssim_of_all(self._entered(one[number]), seen).cpu()

    def _entered(self, images: Tensor) -> Tensor:
        scaled = ((images - self.low) / (self.high - self.low)).float().to(training.fastest())
        longest = max(images.shape[2:])
        if longest <= _SIDE:
            return scaled
        size = [max(1, round(length * _SIDE / longest)) for length in images.shape[2:]]
        return interpolate(scaled, size=size, mode="bilinear", antialias=True)
