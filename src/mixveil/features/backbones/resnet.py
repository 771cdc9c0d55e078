"""ResNet-18, -34 and -50 (He et al. 2016), under torchvision's key names; and the Keras variant of ResNet-50."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from torch import Tensor, nn

from mixveil.features.backbones._blocks import Frozen, conv


class Basic(nn.Module):
    """Two 3×3 convolutions around a shortcut."""

    widening = 1

    def __init__(self, inside: int, width: int, stride: int, eps: float, early: bool) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(inside, width, 3, stride), nn.BatchNorm2d(width, eps)
        self.conv2, self.bn2 = conv(width, width, 3), nn.BatchNorm2d(width, eps)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inside, width, stride, eps)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x if self.downsample is None else self.downsample(x)
        out: Tensor = self.relu(y)
        return out


class Bottleneck(nn.Module):
    """Convolutions of 1×1, 3×3 and 1×1. early: the stride is on the first, as in the original, not on the second."""

    widening = 4

    def __init__(self, inside: int, width: int, stride: int, eps: float, early: bool) -> None:
        super().__init__()
        outside = width * self.widening
        self.conv1, self.bn1 = conv(inside, width, 1, stride if early else 1), nn.BatchNorm2d(width, eps)
        self.conv2, self.bn2 = conv(width, width, 3, 1 if early else stride), nn.BatchNorm2d(width, eps)
        self.conv3, self.bn3 = conv(width, outside, 1), nn.BatchNorm2d(outside, eps)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inside, outside, stride, eps)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(y)))))
        y += x if self.downsample is None else self.downsample(x)
        out: Tensor = self.relu(y)
        return out


class ResNet(Frozen):
    def __init__(
        self, block: type[Basic | Bottleneck], depths: tuple[int, ...], eps: float = 1e-5, early: bool = False
    ) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(3, 64, 7, 2), nn.BatchNorm2d(64, eps)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        inside = 64
        for stage, depth in enumerate(depths, 1):
            width = 32 << stage
            blocks = []
            for i in range(depth):
                blocks.append(block(inside, width, 2 if stage > 1 and i == 0 else 1, eps, early))
                inside = width * block.widening
            self.add_module(f"layer{stage}", nn.Sequential(*blocks))
        self.fc = nn.Linear(inside, 1000)

    def maps(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        yield "stem", x
        for stage in range(1, 5):
            x = self.get_submodule(f"layer{stage}")(x)
            yield f"layer{stage}", x


def _shortcut(inside: int, outside: int, stride: int, eps: float) -> nn.Sequential | None:
    if stride == 1 and inside == outside:
        return None
    return nn.Sequential(conv(inside, outside, 1, stride), nn.BatchNorm2d(outside, eps))


resnet18 = partial(ResNet, Basic, (2, 2, 2, 2))
resnet34 = partial(ResNet, Basic, (3, 4, 6, 3))
resnet50 = partial(ResNet, Bottleneck, (3, 4, 6, 3))
resnet50_keras = partial(ResNet, Bottleneck, (3, 4, 6, 3), eps=1e-3, early=True)
