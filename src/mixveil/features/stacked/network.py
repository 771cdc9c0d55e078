"""A sequence of layers, run at once for k clients that have different weights.

Weights are (k, …), one slice a client, and images (k, b, …). A sum of losses over clients then has the gradient of
every client in one backward pass, and its slope in the images in a second: what attacks on updates, and cohorts of
clients that train side by side, need. A convolution has the clients' channels as groups: on a CPU that is twice as
fast, backward passes included, as a product of all windows with all kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, conv2d, max_pool2d

from mixveil.core.errors import ArgumentError
from mixveil.features.split.layers import sequence

Weights = Mapping[str, Tensor]
Layer = Callable[[Weights, Tensor], Tensor]

_PLAIN: Final[dict[type[nn.Module], Callable[[Tensor], Tensor]]] = {
    nn.ReLU: torch.relu,
    nn.Tanh: torch.tanh,
    nn.Sigmoid: torch.sigmoid,
    nn.GELU: nn.functional.gelu,
}

# Settings that other networks have and that are not followed here: only these values of them are taken.
_ONLY: Final[dict[type[nn.Module], dict[str, tuple[Any, ...]]]] = {
    nn.Conv2d: {"groups": (1,), "dilation": ((1, 1),), "padding_mode": ("zeros",)},
    nn.AvgPool2d: {"ceil_mode": (False,), "count_include_pad": (True,), "divisor_override": (None,)},
    nn.MaxPool2d: {"ceil_mode": (False,), "dilation": (1, (1, 1)), "return_indices": (False,)},
    nn.Flatten: {"start_dim": (1,), "end_dim": (-1,)},
    nn.GELU: {"approximate": ("none",)},
}


class Stacked:
    """The layers of a network whose weights are given with every call. Layers that mix the rows of a batch (batch
    normalisation) are refused."""

    def __init__(self, net: nn.Sequential) -> None:
        self._layers = [*_layers(net, "")]
        self.shapes = {name: tuple(value.shape) for name, value in net.named_parameters()}
        if len(self.shapes) != len([*net.named_parameters(remove_duplicate=False)]):
            raise ArgumentError("two layers share their weights, and many clients at once cannot go through them")

    def __call__(self, weights: Weights, x: Tensor) -> Tensor:
        """(k, b, …) outputs of (k, b, …) inputs, by weights (k, …) by name."""
        for layer in self._layers:
            x = layer(weights, x)
        return x

    @property
    def values(self) -> int:
        """Of all weights of one client."""
        return sum(math.prod(shape) for shape in self.shapes.values())


def stacked(weights: Weights, clients: int) -> dict[str, Tensor]:
    """The same weights for every client, as (k, …): copies, not views, as each client goes its own way."""
    return {name: value.detach().expand(clients, *value.shape).clone() for name, value in weights.items()}


def _layers(net: nn.Sequential, prefix: str) -> list[Layer]:
    found: list[Layer] = []
    for name, layer in sequence(net)._modules.items():
        if isinstance(layer, nn.Sequential):
            found += _layers(layer, f"{prefix}{name}.")
        else:
            found.append(_layer(layer, f"{prefix}{name}"))
    return found


def _layer(layer: nn.Module | None, name: str) -> Layer:
    for setting, values in _ONLY.get(type(layer), {}).items():  # type: ignore[arg-type]
        if getattr(layer, setting) not in values:
            raise ArgumentError(f"layer {name}: {setting} must be {values[0]!r}, got {getattr(layer, setting)!r:.60}")
    if type(layer) is nn.Conv2d:
        return _convolution(layer, name)
    if type(layer) is nn.Linear:
        has_bias = layer.bias is not None
        return lambda weights, x: _dense(x, weights[f"{name}.weight"], weights[f"{name}.bias"] if has_bias else None)
    if type(layer) is nn.AvgPool2d or type(layer) is nn.MaxPool2d:
        return _pool(layer)
    if type(layer) is nn.Flatten:
        return lambda _, x: x.flatten(2)
    for kind, run in _PLAIN.items():
        if type(layer) is kind:
            return lambda _, x, run=run: run(x)  # type: ignore[misc]
    raise ArgumentError(f"layer {name} is a {type(layer).__name__}, and many clients at once cannot go through it")


def _dense(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(k, b, outputs) of (k, b, inputs) by (k, outputs, inputs)."""
    product = torch.bmm(x, weight.transpose(1, 2))
    return product if bias is None else product + bias[:, None]


def _pool(layer: nn.AvgPool2d | nn.MaxPool2d) -> Layer:
    run: Any = avg_pool2d if isinstance(layer, nn.AvgPool2d) else max_pool2d
    settings = layer.kernel_size, layer.stride, layer.padding

    def pooled(_: Weights, x: Tensor) -> Tensor:
        found: Tensor = run(x.flatten(0, 1), *settings)
        return found.view(*x.shape[:2], *found.shape[1:])

    return pooled


def _convolution(layer: nn.Conv2d, name: str) -> Layer:
    stride, padding, has_bias = layer.stride, layer.padding, layer.bias is not None
    if isinstance(padding, str):
        raise ArgumentError(f"layer {name}: padding must be numbers, got {padding!r}")

    def run(weights: Weights, x: Tensor) -> Tensor:
        clients, batch = x.shape[:2]
        kernel = weights[f"{name}.weight"].flatten(0, 1)
        bias = weights[f"{name}.bias"].flatten() if has_bias else None
        found = conv2d(x.transpose(0, 1).flatten(1, 2), kernel, bias, stride, padding, groups=clients)
        return found.view(batch, clients, -1, *found.shape[2:]).transpose(0, 1)

    return run
