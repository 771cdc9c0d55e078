"""The networks of the trained attacks, in plain torch. Their first weights are drawn from a stream, never globally."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, interpolate, max_pool2d, pad, relu

from mixveil.core.first_weights import started as started

_LEVELS = 3


class UNet(nn.Module):
    """Three levels: double convolutions (3×3, ReLU, no normalisation) of base, 2, 4 and 8 times base channels, 2×2
    max-pooling, transposed convolutions, skips, 1×1 out. Sides that 8 does not divide are padded."""

    def __init__(self, inputs: int, outputs: int, base: int) -> None:
        super().__init__()
        widths = [base << level for level in range(_LEVELS + 1)]
        self.down = nn.ModuleList(_double(a, b) for a, b in zip([inputs, *widths], widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths[:-1]))
        self.join = nn.ModuleList(_double(2 * w, w) for w in reversed(widths[:-1]))
        self.out = nn.Conv2d(base, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        side = 1 << _LEVELS
        if width % side or height % side:  # padding by nothing would still lose the channels-last order
            x = pad(x, (0, -width % side, 0, -height % side), mode="replicate")
        skips = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else max_pool2d(x, 2))
            skips.append(x)
        for up, join, skip in zip(self.up, self.join, reversed(skips[:-1]), strict=True):
            x = join(torch.cat([skip, up(x)], dim=1))
        found: Tensor = self.out(x)[..., :height, :width]
        return found


class Decoder(nn.Module):
    """From k values to pictures: a dense layer to a small map, which is doubled and convolved up to the size."""

    def __init__(self, inputs: int, shape: tuple[int, ...], base: int) -> None:
        super().__init__()
        channels, self.height, self.width = shape
        small = max(1, math.ceil(max(self.height, self.width) / 8))
        self.small = (8 * base, small, small)
        self.dense = nn.Linear(inputs, math.prod(self.small))
        self.blocks = nn.ModuleList(_double((8 * base) >> level, (4 * base) >> level) for level in range(_LEVELS))
        self.out = nn.Conv2d(base, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = relu(self.dense(x)).view(-1, *self.small)
        for block in self.blocks:
            x = block(interpolate(x, scale_factor=2.0, mode="nearest"))
        found: Tensor = self.out(x)[..., : self.height, : self.width]
        return found


class Embedding(nn.Module):
    """From pictures to k values: three double convolutions, the later ones after 2×2 max-pooling, and a dense layer
    from their maps, averaged to 4 × 4."""

    def __init__(self, channels: int, outputs: int, base: int) -> None:
        super().__init__()
        widths = [base << level for level in range(_LEVELS)]
        self.blocks = nn.ModuleList(_double(a, b) for a, b in zip([channels, *widths], widths, strict=False))
        self.dense = nn.Linear(16 * widths[-1], outputs)

    def forward(self, x: Tensor) -> Tensor:
        for level, block in enumerate(self.blocks):
            x = block(x if level == 0 else max_pool2d(x, 2))
        found: Tensor = self.dense(adaptive_avg_pool2d(x, 4).flatten(1))
        return found


def _double(inputs: int, outputs: int) -> nn.Sequential:
    first, second = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
    return nn.Sequential(first, nn.ReLU(inplace=True), second, nn.ReLU(inplace=True))
