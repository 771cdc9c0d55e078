"""The shapes that go through the layers of a half, by arithmetic: no network of others is run to learn its shapes, and
none that would fill the memory, or would not come to an end, is taken."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torch import nn

from mixveil.core.errors import MismatchError
from mixveil.features.split.layers import BatchNorm, sequence

MOST_VALUES = 1 << 24
"""Of one input, and of what any layer makes of it."""

MOST_WORK = 10**11
"""Of all layers together, for one input, in multiply-adds: VGG-16 has 1.5e10 for an image of 224 × 224."""

_READ, _PASSED = (
    100,
    10,
)  # multiply-adds that take as long as a read of a pool's window, and as a value that is passed on


def shapes(net: nn.Sequential, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Of one input of this shape, and behind each layer. Inputs that a layer does not take are refused, and networks
    that would work on one for very long."""
    found, work = [_bounded("the input", shape)], 0
    for name, layer in _flat(net):
        found.append(_bounded(name, _behind(layer, found[-1])))
        work += _work(layer, math.prod(found[-1]))
        if work > MOST_WORK:
            raise MismatchError(
                f"{name}: up to here one input takes {work:.1e} multiply-adds, and a half has {MOST_WORK:.0e} at most"
            )
    return found


def _flat(net: nn.Sequential) -> Iterator[tuple[str, nn.Module]]:
    """All layers in order, those of sequences in sequences too."""
    for name, layer in sequence(net)._modules.items():  # `named_children` leaves out a layer that is there twice
        if layer is None:
            raise MismatchError(f"{name} is no layer")
        if isinstance(layer, nn.Sequential):
            yield from _flat(layer)
        else:
            yield name, layer


def _work(layer: nn.Module, values: int) -> int:
    """Multiply-adds, or what takes as long, of a layer that makes so many values."""
    if isinstance(layer, nn.Conv2d):
        return values * layer.in_channels * _one(layer.kernel_size) ** 2
    if isinstance(layer, nn.Linear):
        return values * layer.in_features
    if isinstance(layer, nn.MaxPool2d | nn.AvgPool2d):
        return values * _READ * _one(layer.kernel_size) ** 2
    return values * _PASSED


def _bounded(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    if not 0 < len(shape) <= 4 or min(shape) < 1 or math.prod(shape) > MOST_VALUES:
        raise MismatchError(
            f"{name}: a half cannot have {_said(shape)}, which has no values, or more than {MOST_VALUES:,}"
        )
    return shape


def _behind(layer: nn.Module, shape: tuple[int, ...]) -> tuple[int, ...]:
    if isinstance(layer, nn.Conv2d):
        return _slid(layer, shape, layer.in_channels, layer.out_channels)
    if isinstance(layer, nn.MaxPool2d | nn.AvgPool2d):
        if _one(layer.padding) > _one(layer.kernel_size) // 2:
            raise MismatchError(f"{layer} pads by more than half of its size")
        return _slid(layer, shape, shape[0], shape[0])
    if isinstance(layer, nn.Linear):
        _meets(layer, shape, shape[-1], layer.in_features)
        return *shape[:-1], layer.out_features
    if isinstance(layer, BatchNorm):
        _meets(layer, shape, shape[0], layer.num_features)
    return (math.prod(shape),) if isinstance(layer, nn.Flatten) else shape


def _slid(
    layer: nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d, shape: tuple[int, ...], inputs: int, outputs: int
) -> tuple[int, ...]:
    """Of a window that goes over the image."""
    if len(shape) != 3:
        raise MismatchError(f"{layer} takes images of (channels, height, width), got {_said(shape)}")
    _meets(layer, shape, shape[0], inputs)
    size, stride, padding = (_one(value) for value in (layer.kernel_size, layer.stride, layer.padding))
    sides = [(side + 2 * padding - size) // stride + 1 for side in shape[1:]]
    if min(sides) < 1:
        raise MismatchError(f"{layer} is larger than {_said(shape)}")
    return outputs, *sides


def _one(value: object) -> int:
    """A setting that is the same both ways, as `layers.plain` holds it to be."""
    found = value[0] if isinstance(value, tuple) else value
    if type(found) is not int:
        raise MismatchError(f"a layer has the setting {found!r:.60}, which is no whole number")
    return found


def _meets(layer: nn.Module, shape: tuple[int, ...], found: int, wanted: int) -> None:
    if found != wanted:
        raise MismatchError(f"{layer} does not take {_said(shape)}: it is for {wanted}, not {found}")


def _said(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape[:8]))
