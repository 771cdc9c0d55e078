"""Networks of inverted residuals: MobileNetV2 (Sandler et al. 2018) under torchvision's key names, and
EfficientNet-Lite0, 1 and 2 (Tan and Le 2019, without squeeze and excitation) under those of their published files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from torch import Tensor, nn

from mixveil.features.backbones._blocks import Frozen, conv

# expansion, kernel, first stride, channels, repeats
_MOBILE = (
    (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 3, 2, 32, 3), (6, 3, 2, 64, 4), (6, 3, 1, 96, 3), (6, 3, 2, 160, 3),
    (6, 3, 1, 320, 1),
)  # fmt: skip
_LITE = (
    (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)  # fmt: skip
_LITE_EPS = 1e-3


class MobileBlock(nn.Module):
    def __init__(self, inside: int, outside: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        width = inside * expansion
        layers: list[nn.Module] = [] if expansion == 1 else [_unit(inside, width, 1)]
        layers += [_unit(width, width, kernel, stride, width), conv(width, outside, 1), nn.BatchNorm2d(outside)]
        self.conv = nn.Sequential(*layers)
        self.shortcut = stride == 1 and inside == outside

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return x + y if self.shortcut else y


class MobileNetV2(Frozen):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [_unit(3, 32, 3, 2)]
        inside, self.ends = 32, [0]
        for expansion, kernel, first, outside, repeats in _MOBILE:
            for i in range(repeats):
                layers.append(MobileBlock(inside, outside, expansion, kernel, first if i == 0 else 1))
                inside = outside
            self.ends.append(len(layers) - 1)
        layers.append(_unit(inside, 1280, 1))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    def maps(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        for i, layer in enumerate(self.features):
            x = layer(x)
            if i in self.ends:
                yield f"stage{self.ends.index(i)}", x
        yield "head", x


class LiteBlock(nn.Module):
    def __init__(self, inside: int, outside: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        width = inside * expansion
        self.act = nn.ReLU6(inplace=True)
        self.expands, self.shortcut = expansion != 1, stride == 1 and inside == outside
        if self.expands:
            self._expand_conv, self._bn0 = conv(inside, width, 1), nn.BatchNorm2d(width, _LITE_EPS)
        self._depthwise_conv = conv(width, width, kernel, stride, width)
        self._bn1 = nn.BatchNorm2d(width, _LITE_EPS)
        self._project_conv, self._bn2 = conv(width, outside, 1), nn.BatchNorm2d(outside, _LITE_EPS)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self._bn0(self._expand_conv(x))) if self.expands else x
        y = self.act(self._bn1(self._depthwise_conv(y)))
        y = self._bn2(self._project_conv(y))
        out: Tensor = x + y if self.shortcut else y
        return out


class EfficientNetLite(Frozen):
    """width, depth: factors of channels and repeats. Stem, head, and the repeats of the first and the last stage keep
    their sizes."""

    def __init__(self, width: float = 1.0, depth: float = 1.0) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = conv(3, 32, 3, 2), nn.BatchNorm2d(32, _LITE_EPS)
        blocks: list[nn.Module] = []
        inside, self.ends = 32, []
        for stage, (expansion, kernel, first, channels, repeats) in enumerate(_LITE):
            outside = _channels(width * channels)
            scaled = repeats if stage in (0, len(_LITE) - 1) else math.ceil(depth * repeats)
            for i in range(scaled):
                blocks.append(LiteBlock(inside, outside, expansion, kernel, first if i == 0 else 1))
                inside = outside
            self.ends.append(len(blocks) - 1)
        self._blocks = nn.ModuleList(blocks)
        self._conv_head, self._bn1 = conv(inside, 1280, 1), nn.BatchNorm2d(1280, _LITE_EPS)
        self._fc = nn.Linear(1280, 1000)
        self.act = nn.ReLU6(inplace=True)

    def maps(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        x = self.act(self._bn0(self._conv_stem(x)))
        yield "stage0", x
        for i, block in enumerate(self._blocks):
            x = block(x)
            if i in self.ends:
                yield f"stage{self.ends.index(i) + 1}", x
        yield "head", self.act(self._bn1(self._conv_head(x)))


def _channels(wanted: float) -> int:
    """The multiple of eight next to it, and not below nine tenths of it."""
    found = max(8, int(wanted + 4) // 8 * 8)
    return found if found >= 0.9 * wanted else found + 8


def _unit(inside: int, outside: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution, normalisation, ReLU6: numbered, as torchvision's files number them."""
    return nn.Sequential(conv(inside, outside, kernel, stride, groups), nn.BatchNorm2d(outside), nn.ReLU6(inplace=True))


efficientnet_lite0 = partial(EfficientNetLite)
efficientnet_lite1 = partial(EfficientNetLite, 1.0, 1.1)
efficientnet_lite2 = partial(EfficientNetLite, 1.1, 1.2)
