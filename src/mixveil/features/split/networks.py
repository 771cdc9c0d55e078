"""Networks to split, as sequences of named blocks, and where MixCon's paper cuts them.

LeNet-5 and VGG-16 (with batch normalisation, for images of 32 × 32) take images in [0, 1]. The network of the paper's
synthetic experiment takes vectors.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from torch import nn

from mixveil.core.errors import ArgumentError
from mixveil.features.split.layers import BatchNorm, sequence

_VGG = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
_HIDDEN, _WIDE = 100, 2048


class KnownNetwork(NamedTuple):
    """A network by name. cut: the block after which the paper cuts it; make: from the shape of an input and the number
    of classes."""

    cut: str
    make: Callable[[tuple[int, ...], int], nn.Sequential]


def lenet5(shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """LeNet-5 with ReLU, and averages of 2 × 2 for its subsampling. It takes images of 32 × 32: the first convolution
    pads smaller ones to that."""
    channels, height, width = _image(shape, 1)
    pads = [max(0, 32 - side) // 2 for side in (height, width)]
    if pads[0] != pads[1]:
        raise ArgumentError(f"lenet5 pads small images to 32 × 32, and {shape} needs other paddings each way")
    small = [((side + 2 * pads[0] - 4) // 2 - 4) // 2 for side in (height, width)]
    return _named(
        block1=nn.Sequential(nn.Conv2d(channels, 6, 5, padding=pads[0]), nn.ReLU(), nn.AvgPool2d(2)),
        block2=nn.Sequential(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.AvgPool2d(2)),
        flat=nn.Flatten(),
        dense1=nn.Sequential(nn.Linear(16 * math.prod(small), 120), nn.ReLU()),
        dense2=nn.Sequential(nn.Linear(120, 84), nn.ReLU()),
        scores=nn.Linear(84, classes),
    )


def vgg16(shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """VGG-16 for images of 32 × 32 or more, with batch normalisation: 13 convolutions in five blocks, and one dense
    layer."""
    channels, height, width = _image(shape, 32)
    blocks: OrderedDict[str, nn.Module] = OrderedDict()
    for number, widths in enumerate(_VGG, 1):
        layers: list[nn.Module] = []
        for outputs in widths:
            layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), BatchNorm(outputs), nn.ReLU()]
            channels = outputs
        blocks[f"block{number}"] = nn.Sequential(*layers, nn.MaxPool2d(2))
    blocks["flat"] = nn.Flatten()
    blocks["scores"] = nn.Linear(channels * (height // 32) * (width // 32), classes)
    return nn.Sequential(blocks)


def synthetic(shape: tuple[int, ...], classes: int, *, deeper: bool = False, wider: bool = False) -> nn.Sequential:
    """The paper's network for vectors (§4.2): d → 500 → 2 → 100 → classes, ReLU between. deeper: two more layers of 100
    behind the third; wider: the third has 2,048."""
    third = _WIDE if wider else _HIDDEN
    blocks: OrderedDict[str, nn.Module] = OrderedDict(
        layer1=nn.Sequential(nn.Linear(math.prod(shape), 500), nn.ReLU()),
        layer2=nn.Sequential(nn.Linear(500, 2), nn.ReLU()),
        layer3=nn.Sequential(nn.Linear(2, third), nn.ReLU()),
    )
    for number in (4, 5) if deeper else ():
        blocks[f"layer{number}"] = nn.Sequential(nn.Linear(third, _HIDDEN), nn.ReLU())
        third = _HIDDEN
    blocks["scores"] = nn.Linear(third, classes)
    return nn.Sequential(blocks)


def convnet(shape: tuple[int, ...], classes: int, *, width: int = 32) -> nn.Sequential:
    """Eight layers, for images of 16 × 16 or more: six convolutions, every other one at half the side, and two dense
    layers, without batch normalisation. Fed-AugMix's paper has a ConvNet of eight layers, and does not say which."""
    channels, height, width_ = _image(shape, 16)
    blocks: OrderedDict[str, nn.Module] = OrderedDict()
    for number, outputs in enumerate((width, 2 * width, 4 * width), 1):
        blocks[f"block{number}"] = nn.Sequential(
            nn.Conv2d(channels, outputs, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        channels = outputs
        height, width_ = (height + 1) // 2, (width_ + 1) // 2
    blocks["flat"] = nn.Flatten()
    blocks["dense"] = nn.Sequential(nn.Linear(channels * height * width_, 8 * width), nn.ReLU())
    blocks["scores"] = nn.Linear(8 * width, classes)
    return nn.Sequential(blocks)


NETWORKS: dict[str, KnownNetwork] = {
    "lenet5": KnownNetwork("block2", lenet5),
    "vgg16": KnownNetwork("block2", vgg16),
    "synthetic": KnownNetwork("layer2", synthetic),
    "convnet": KnownNetwork("block2", convnet),
}


def network(name: str, shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """A network of `NETWORKS` for inputs of this shape."""
    if name not in NETWORKS:
        raise ArgumentError(f"network must be one of {', '.join(NETWORKS)}, got {name!r:.60}")
    return NETWORKS[name].make(shape, classes)


def cut(net: nn.Sequential, after: str) -> tuple[nn.Sequential, nn.Sequential]:
    """The client part h and the server part g of a network, g ∘ h: it is cut behind the block of this name, with dots
    between where sequences lie in sequences (`features.4`). Both parts hold the network's own layers, not copies.

    >>> client, server = cut(lenet5((1, 28, 28), 10), "block2")
    >>> [*client._modules], [*server._modules]
    (['block1', 'block2'], ['flat', 'dense1', 'dense2', 'scores'])
    """
    before, behind = _parts(net, after)
    if not behind:
        raise ArgumentError(f"nothing is left for the server behind {after}: cut earlier")
    return nn.Sequential(before), nn.Sequential(behind)


def _parts(net: nn.Module, after: str) -> tuple[OrderedDict[str, nn.Module], OrderedDict[str, nn.Module]]:
    """The layers up to the one of this name, and those behind it."""
    first, _, rest = after.partition(".")
    # Not `named_children`, which leaves out a layer that is there twice.
    children = [(name, layer) for name, layer in sequence(net)._modules.items() if layer is not None]
    names = [name for name, _ in children]
    if first not in names:
        raise ArgumentError(f"the cut must be behind one of {', '.join(names) or 'no layer'}, got {after!r:.60}")
    place = names.index(first) + 1
    before, behind = OrderedDict(children[:place]), OrderedDict(children[place:])
    if rest:
        one, other = _parts(before[first], rest)
        before[first] = nn.Sequential(one)
        behind = OrderedDict([(first, nn.Sequential(other)), *behind.items()]) if other else behind
    return before, behind


def _image(shape: tuple[int, ...], least: int) -> tuple[int, int, int]:
    if len(shape) != 3 or min(shape[1:]) < least:
        raise ArgumentError(f"this network takes images of {least} × {least} pixels or more, got {shape}")
    return shape[0], shape[1], shape[2]


def _named(**blocks: nn.Module) -> nn.Sequential:
    return nn.Sequential(OrderedDict(blocks))
