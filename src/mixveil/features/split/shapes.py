"""The shapes that go through the layers of a half, by arithmetic: no network of others is run to learn its shapes, and
none that would fill the memory is taken."""

from __future__ import annotations

import math

from torch import nn

from mixveil.core.errors import MismatchError
from mixveil.features.split.layers import BatchNorm, sequence

MOST_VALUES = 1 << 24
"""Of one input, and of what any layer makes of it."""


def shapes(net: nn.Sequential, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Of one input of this shape, and behind each layer. Inputs that a layer does not take are refused."""
    found = [_bounded("the input", shape)]
    for name, layer in net._modules.items():  # `named_children` leaves out a layer that is there twice
        if layer is None:
            raise MismatchError(f"{name} is no layer")
        inner = shapes(sequence(layer), found[-1]) if isinstance(layer, nn.Sequential) else [_behind(layer, found[-1])]
        found += [_bounded(name, each) for each in inner]
    return found


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
