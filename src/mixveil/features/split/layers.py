"""The layers that halves of networks are written and read as: plain settings in JSON, weights beside them.

A half that others wrote is built from this list alone: nothing of theirs is run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from mixveil.core import strict_json
from mixveil.core.errors import ArgumentError, ManifestError

_LARGEST = 1 << 16
_MOST_LAYERS = 1000
_NAME = r"[A-Za-z0-9_]{1,60}"
_EPSILON, _MOMENTUM = 1e-5, 0.1


class LayerKind(NamedTuple):
    """A kind of layer. settings: those of its settings that are numbers, and that its constructor takes, in order."""

    kind: type[nn.Module]
    make: Callable[..., nn.Module]
    settings: tuple[str, ...]


def _pool(kind: type[nn.Module]) -> Callable[[int, int, int], nn.Module]:
    return lambda kernel_size, stride, padding: kind(kernel_size, stride, padding)


class BatchNorm(nn.Module):
    """Batch normalisation of (m, width, …) without torch's counter of batches, which is no weight."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features
        self.weight, self.bias = nn.Parameter(torch.ones(num_features)), nn.Parameter(torch.zeros(num_features))
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))

    def forward(self, x: Tensor) -> Tensor:
        settings = (self.weight, self.bias, self.training, _MOMENTUM, _EPSILON)
        return batch_norm(x, self.running_mean, self.running_var, *settings)

    @classmethod
    def of(cls, layer: nn.BatchNorm2d) -> BatchNorm:
        """The same as torch's, with its weights."""
        found = cls(layer.num_features)
        if not layer.affine or not layer.track_running_stats or (layer.eps, layer.momentum) != (_EPSILON, _MOMENTUM):
            raise ArgumentError(f"{layer}: it has settings that halves on disk do not have")
        if _touched(layer) or any(t.dtype != torch.float32 for t in layer.state_dict().values() if t.dim()):
            raise ArgumentError(
                f"{layer}: it has hooks, or weights that are not float32, and halves on disk have neither"
            )
        found.load_state_dict({name: tensor for name, tensor in layer.state_dict().items() if tensor.dim()})
        return found


def without_counters(net: nn.Sequential) -> nn.Sequential:
    """The same layers, with `BatchNorm` in place of torch's."""
    for name, layer in [*net._modules.items()]:  # `named_children` leaves out a layer that is there twice
        if isinstance(layer, nn.Sequential):
            without_counters(layer)
        elif type(layer) is nn.BatchNorm2d:
            net._modules[name] = BatchNorm.of(layer).train(layer.training)
    return net


def _convolution(inputs: int, outputs: int, side: int, stride: int, padding: int, bias: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, side, stride, padding, bias=bool(bias))


LAYERS: dict[str, LayerKind] = {
    "convolution": LayerKind(
        nn.Conv2d, _convolution, ("in_channels", "out_channels", "kernel_size", "stride", "padding", "bias")
    ),
    "linear": LayerKind(
        nn.Linear, lambda inputs, outputs, bias: nn.Linear(inputs, outputs, bool(bias)),
        ("in_features", "out_features", "bias"),
    ),
    "batch-norm": LayerKind(BatchNorm, BatchNorm, ("num_features",)),
    "relu": LayerKind(nn.ReLU, nn.ReLU, ()),
    "tanh": LayerKind(nn.Tanh, nn.Tanh, ()),
    "sigmoid": LayerKind(nn.Sigmoid, nn.Sigmoid, ()),
    "gelu": LayerKind(nn.GELU, nn.GELU, ()),
    "max-pool": LayerKind(nn.MaxPool2d, _pool(nn.MaxPool2d), ("kernel_size", "stride", "padding")),
    "average-pool": LayerKind(nn.AvgPool2d, _pool(nn.AvgPool2d), ("kernel_size", "stride", "padding")),
    "flatten": LayerKind(nn.Flatten, nn.Flatten, ()),
}  # fmt: skip


def plain(net: nn.Sequential) -> list[dict[str, Any]]:
    """A sequence of layers, for JSON. One that is not among `LAYERS`, or has settings that they do not, is refused."""
    return [_plain(name, layer) for name, layer in sequence(net)._modules.items()]


def sequence(layer: nn.Module) -> nn.Sequential:
    """The same, if it does what a sequence does: one layer behind the other, and nothing else."""
    if not isinstance(layer, nn.Sequential):
        raise ArgumentError(f"only sequences of layers can be cut, got a {type(layer).__name__}")
    if type(layer).forward is not nn.Sequential.forward or _touched(layer):
        raise ArgumentError(f"a {type(layer).__name__} has its own way forward, or hooks: put its layers in a sequence")
    return layer


def _plain(name: str, layer: nn.Module | None) -> dict[str, Any]:
    if not re.fullmatch(_NAME, name):
        raise ArgumentError(f"layer {name!r:.60}: names have up to 60 letters, digits and underscores")
    if isinstance(layer, nn.Sequential):
        return {"name": name, "layers": plain(layer)}
    code = next((code for code, known in LAYERS.items() if type(layer) is known.kind), None)
    if layer is None or code is None:
        known = ", ".join(of.kind.__name__ for of in LAYERS.values())
        raise ArgumentError(f"layer {name} is a {type(layer).__name__}; halves on disk have {known} in sequences")
    settings = {setting: _number(name, setting, getattr(layer, setting)) for setting in LAYERS[code].settings}
    found = {"name": name, "layer": code, **settings}
    try:
        with torch.device("meta"):
            again = _layer(found)
    except ManifestError as error:
        raise ArgumentError(f"layer {name}: {error}") from None
    if _touched(layer) or _all_settings(again) != _all_settings(layer):
        raise ArgumentError(f"layer {name}, {layer}: it has settings that halves on disk do not have")
    return found


def _touched(layer: nn.Module) -> bool:
    """Whether something was hung on the layer that runs with it."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer))


def _all_settings(layer: nn.Module) -> dict[str, Any]:
    """What torch says that a layer is made with, also what its constructor here does not take, and its tensors."""
    found: dict[str, Any] = {}
    for name in getattr(type(layer), "__constants__", ()):
        value = getattr(layer, name)
        found[name] = value[0] if isinstance(value, tuple) and len(set(value)) == 1 else value
    return found | {name: (tensor.shape, tensor.dtype) for name, tensor in layer.state_dict().items()}


def _number(name: str, setting: str, value: Any) -> int:
    if setting == "bias":
        return int(value is not None and value is not False)
    if isinstance(value, tuple):
        if len(set(value)) != 1:
            raise ArgumentError(f"layer {name}: {setting} must be the same both ways, got {value}")
        value = value[0]
    if type(value) is not int:
        raise ArgumentError(f"layer {name}: {setting} must be a whole number, got {value!r:.60}")
    return value


def built(item: Any) -> nn.Sequential:
    """The layers that JSON of others names, without weights that mean anything."""
    return _sequence(item, [0])


def _sequence(item: Any, count: list[int]) -> nn.Sequential:
    net = nn.Sequential()
    for each in strict_json.items("layers", item):
        count[0] += 1
        if count[0] > _MOST_LAYERS:
            raise ManifestError(f"a half has at most {_MOST_LAYERS:,} layers")
        fields = strict_json.mapping("layer", each)
        name = strict_json.text("layer's name", fields.get("name"), _NAME)
        if name in dict(net.named_children()) or hasattr(nn.Sequential, name):
            raise ManifestError(f"no layer can have the name {name!r} here")
        if "layers" in fields:
            strict_json.only("layer", fields, {"name", "layers"})
            net.add_module(name, _sequence(fields["layers"], count))
        else:
            net.add_module(name, _layer(fields))
    return net


def _layer(fields: Mapping[str, Any]) -> nn.Module:
    code = fields.get("layer")
    if not isinstance(code, str) or code not in LAYERS:
        raise ManifestError(f"layer must be one of {', '.join(LAYERS)}, got {strict_json.shown(code)}")
    known = LAYERS[code]
    strict_json.only("layer", fields, {"name", "layer", *known.settings})
    numbers = []
    for setting in known.settings:
        value, least = fields[setting], 0 if setting in ("padding", "bias") else 1
        if type(value) is not int or not least <= value <= _LARGEST:
            raise ManifestError(f"layer {code}: {setting} cannot be {strict_json.shown(value)}")
        numbers.append(value)
    try:
        return known.make(*numbers)
    except (ValueError, RuntimeError) as error:
        raise ManifestError(f"layer {code}: {error}") from None


def check_tensors(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Refuse weights of others that are not those of the layers: by their names, shapes, types and values."""
    if found.keys() != wanted.keys():
        raise ManifestError(f"its tensors are not those of its layers: {sorted(found.keys() ^ wanted.keys())[:3]}")
    for name, tensor in found.items():
        if tensor.shape != wanted[name].shape or tensor.dtype != torch.float32:
            raise ManifestError(f"its tensor {name} is {tensor.dtype} of shape {tuple(tensor.shape)}")
        if not bool(tensor.isfinite().all()) or (name.endswith("running_var") and bool((tensor < 0).any())):
            raise ManifestError(f"its tensor {name} has impossible values")
