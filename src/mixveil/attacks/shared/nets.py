"""The networks of the trained attacks, in plain torch. Their first weights are drawn from a stream, never globally."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, interpolate, max_pool2d, pad, relu

from mixveil.core.first_weights import started as started
from mixveil.features.split.layers import BatchNorm

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


class MapDecoder(nn.Module):
    """From representations, flat, to images: a convolution of their map, or a dense layer where they have none, to
    1/2ᵏ of the image's size, which is doubled and convolved up to it.

    inputs: the shape of one representation; normalised: each convolution is followed by batch normalisation, as in a
    DCGAN's generator."""

    def __init__(self, inputs: tuple[int, ...], shape: tuple[int, ...], base: int, *, normalised: bool) -> None:
        super().__init__()
        channels, *size = shape
        self.inputs, mapped = inputs, len(inputs) == 3
        ratio = max(whole / side for whole, side in zip(size, inputs[1:], strict=True)) if mapped else max(size) / 4
        levels = min(_LEVELS, int(math.log2(max(1.0, ratio))))
        self.sizes = [[-(-side // (1 << level)) for side in size] for level in range(levels, -1, -1)]
        width = base << levels
        self.first: nn.Module
        if mapped:
            self.first = nn.Conv2d(inputs[0], width, 3, padding=1)
        else:
            self.first = nn.Linear(math.prod(inputs), width * math.prod(self.sizes[0]))
        widths = [width, *(width >> level for level in range(levels + 1))]
        self.blocks = nn.ModuleList(_single(a, b, normalised) for a, b in pairwise(widths))
        self.out = nn.Conv2d(base, channels, 3, padding=1)

    def forward(self, z: Tensor) -> Tensor:
        if isinstance(self.first, nn.Linear):
            x = relu(self.first(z.flatten(1))).view(len(z), -1, *self.sizes[0])
        else:
            x = relu(self.first(z.view(-1, *self.inputs)))
            x = x if [*x.shape[2:]] == self.sizes[0] else interpolate(x, self.sizes[0], mode="bilinear")
        for level, block in enumerate(self.blocks):
            height, width = self.sizes[level]
            x = block(x if level == 0 else interpolate(x, scale_factor=2.0, mode="nearest")[..., :height, :width])
        found: Tensor = self.out(x)
        return found


class Discriminator(nn.Module):
    """From images to one value each, the log-odds that they are real: convolutions that halve the size down to 4 × 4 or
    less, with leaky ReLUs and batch normalisation by each batch itself, and a dense layer (DCGAN)."""

    def __init__(self, shape: tuple[int, ...], base: int) -> None:
        super().__init__()
        channels, *size = shape
        layers: list[nn.Module] = []
        for level in range(max(1, math.ceil(math.log2(max(size) / 4)))):
            width = base << min(level, _LEVELS)
            layers += [nn.Conv2d(channels, width, 3, stride=2, padding=1)]
            layers += [nn.BatchNorm2d(width, track_running_stats=False)] if level else []
            layers += [nn.LeakyReLU(0.2)]
            channels, size = width, [-(-side // 2) for side in size]
        self.layers = nn.Sequential(*layers)
        self.dense = nn.Linear(channels * math.prod(size), 1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.dense(self.layers(x).flatten(1))[:, 0]
        return found


def _single(inputs: int, outputs: int, normalised: bool) -> nn.Sequential:
    layers = [nn.Conv2d(inputs, outputs, 3, padding=1), *([BatchNorm(outputs)] if normalised else []), nn.ReLU()]
    return nn.Sequential(*layers)


def _double(inputs: int, outputs: int) -> nn.Sequential:
    first, second = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
    return nn.Sequential(first, nn.ReLU(inplace=True), second, nn.ReLU(inplace=True))
