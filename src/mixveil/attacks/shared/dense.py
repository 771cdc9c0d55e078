"""Dense layers of networks whose updates are attacked: where they lie, and what a step tells of their inputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor, nn

from mixveil.attacks.shared.updates import UpdateTarget
from mixveil.core.local_training import LocalTraining
from mixveil.core.types import OfUpdates, View
from mixveil.features.split.layers import sequence

_SHAPES_ONLY = (nn.Flatten, nn.AvgPool2d, nn.MaxPool2d)  # they keep what is not negative so


class Dense(NamedTuple):
    """A dense layer: the names of its weight (outputs, inputs) and bias, and whether its inputs are never negative."""

    weight: str
    bias: str | None
    positive: bool


def layers_of(net: nn.Sequential, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """All layers in the order in which they are run, with their names, those of sequences in sequences too."""
    for name, layer in sequence(net)._modules.items():
        if isinstance(layer, nn.Sequential):
            yield from layers_of(layer, f"{prefix}{name}.")
        elif layer is not None:
            yield f"{prefix}{name}", layer


def first_dense(view: View) -> Dense | None:
    """The layer that takes whole rows, if the network begins with a dense one."""
    layers = [(name, layer) for name, layer in _layers(view) if not isinstance(layer, nn.Flatten)]
    if not layers or not isinstance(layers[0][1], nn.Linear):
        return None
    return _dense(*layers[0], positive=_low(view) >= 0)


def last_dense(view: View) -> Dense | None:
    """The layer whose outputs are the scores of classes, if it is a dense one."""
    layers = _layers(view)
    if not layers or not isinstance(layers[-1][1], nn.Linear):
        return None
    if layers[-1][1].out_features != len(view.releases[0].classes):
        return None
    before = [layer for _, layer in layers[:-1] if not isinstance(layer, _SHAPES_ONLY)]
    positive = isinstance(before[-1], nn.ReLU | nn.Sigmoid) if before else _low(view) >= 0
    return _dense(*layers[-1], positive=positive)


def mean_slope(target: UpdateTarget, name: str) -> Tensor:
    """(…) float64: the gradient by this weight that, the same in every step, would make the update of the first party;
    of one step it is the step's."""
    apart = target.before[name][0].double() - target.after[name][0].double()
    return apart / (whole_rate(target.training) or 1.0)


def whole_rate(training: LocalTraining) -> float:
    """How far a slope of 1 in every step moves a weight, by steps of SGD with momentum and FedProx's term."""
    moved, speed = 0.0, 0.0
    for rate in training.rates:
        speed = training.momentum * speed + 1.0 - (training.proximal or 0.0) * moved
        moved += rate * speed
    return moved


def _layers(view: View) -> list[tuple[str, nn.Module]]:
    settings = view.releases[0].envelope.settings
    net = settings.network() if isinstance(settings, OfUpdates) else None
    return [] if net is None else [*layers_of(net)]


def _low(view: View) -> float:
    settings = view.releases[0].envelope.settings
    return settings.low if isinstance(settings, OfUpdates) else -1.0


def _dense(name: str, layer: nn.Module, *, positive: bool) -> Dense:
    return Dense(f"{name}.weight", f"{name}.bias" if getattr(layer, "bias", None) is not None else None, positive)
