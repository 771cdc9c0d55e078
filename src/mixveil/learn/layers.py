"""The form of every trained head: linear layers on features, with GELU between them."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import gelu

from mixveil.core.errors import MismatchError
from mixveil.core.types import Progress
from mixveil.features.cache import Features
from mixveil.features.projection import Projection
from mixveil.learn.discriminant import Discriminant

_VALUES = 1 << 24  # features in memory at a time


@dataclass(frozen=True)
class Layers:
    """Linear layers with GELU between them: the (inputs, outputs) weight and (outputs,) bias of each, float32. −∞ in
    the last bias marks a class that no party had."""

    layers: tuple[tuple[Tensor, Tensor], ...] = field(repr=False)

    @classmethod
    def of(cls, head: Discriminant, projection: Projection | None) -> Layers:
        """The layers of a discriminant behind a projection."""
        return cls(((head.weight, head.bias),)).after(projection)

    def after(self, projection: Projection | None) -> Layers:
        """The same layers on features before the projection, which is multiplied into the first layer."""
        (weight, bias), *others = self.layers
        if projection is not None:
            weight = projection.matrix.double() @ weight.double()
            bias = bias.double() - projection.mean.double() @ weight
        return Layers(tuple((w.float(), b.float()) for w, b in ((weight, bias), *others)))

    @property
    def inputs(self) -> int:
        return len(self.layers[0][0])

    def __call__(self, x: Tensor) -> Tensor:
        """(m, classes) scores of (m, inputs) features."""
        for number, (weight, bias) in enumerate(self.layers):
            x = torch.addmm(bias, gelu(x) if number else x, weight)
        return x

    def named(self, features: Features, progress: Progress = lambda _: None) -> Tensor:
        """(n,) the likeliest class of each row."""
        parts = []
        for index in torch.split(torch.arange(len(features)), max(1, _VALUES // self.inputs)):
            parts.append(self(features.take(index).x).argmax(1))
            progress(len(index))
        return torch.cat(parts)


def layers_of(head: object) -> Layers:
    """A head that is layers on features; a network on images is refused."""
    if not isinstance(head, Layers):
        raise MismatchError("this model is a network on images, and layers on features were asked for")
    return head
