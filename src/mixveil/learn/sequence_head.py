"""Networks on images that are plain sequences of layers: as they are trained, and their form on disk.

Unlike a ResNet-18 (`image_head`) they are written with their layers, and built from that list alone: nothing of others
is run.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from mixveil.core import strict_json
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError, ManifestError, TrainingError
from mixveil.core.first_weights import started
from mixveil.core.types import Progress, Rows
from mixveil.features.split import layers
from mixveil.features.split.networks import network
from mixveil.features.split.shapes import MOST_VALUES, shapes
from mixveil.learn.distributed import ALONE
from mixveil.learn.layers import Layers, layers_of

PREFIX = "net."
"""What the names of a trained network's weights begin with, before those of its layers."""

MOST_WEIGHTS = 1 << 26
"""Of a network that is trained by name: weights of more would not fit a message of a job."""

_ROWS, _AT_ONCE = 1024, 1 << 26  # images at a time, and values that one layer makes of them


class ImageSequence(nn.Module):
    """A network in training. It takes flat rows, as all heads do, and sees them as images.

    Attributes:
        shape: Of an image, (channels, height, width).
        draws: Of the first weights.
    """

    def __init__(self, net: nn.Sequential, shape: tuple[int, ...], *, draws: DeviceStream) -> None:
        super().__init__()
        self.shape, self.draws = shape, draws
        self.net = started(net, draws, ALONE.device)

    @classmethod
    def of(cls, name: str, shape: tuple[int, ...], classes: int, *, draws: DeviceStream) -> ImageSequence:
        """A network of `features.split.networks` with first weights. One that is too large is refused before it takes
        memory."""
        with torch.device("meta"):
            planned = network(name, shape, classes)
        shapes(planned, shape)
        if (values := sum(parameter.numel() for parameter in planned.parameters())) > MOST_WEIGHTS:
            raise ArgumentError(f"{name} on images of {shape} has {values:,} weights, and {MOST_WEIGHTS:,} is the most")
        return cls(network(name, shape, classes), shape, draws=draws)

    def forward(self, x: Tensor, rows: int | None = None) -> Tensor:
        """(m, classes) scores of (m, c·h·w) flat images."""
        scores: Tensor = self.net(x.reshape(len(x), *self.shape))
        return scores

    def layers(self) -> Layers:
        """Of other heads the layers on features. This one has none, and says so."""
        return layers_of(self.head())

    def head(self) -> SequenceHead:
        """The network as it was trained, in memory: a copy."""
        net = copy.deepcopy(self.net).cpu().to(memory_format=torch.contiguous_format).eval()  # type: ignore[call-overload]
        if not all(bool(tensor.isfinite().all()) for tensor in net.state_dict().values()):
            raise TrainingError("the trained network is not finite: try a smaller learning rate")
        return SequenceHead(net, self.shape)


@dataclass(frozen=True)
class SequenceHead:
    """A trained network that takes images, in eval mode and in memory. shape: of an image."""

    net: nn.Sequential = field(repr=False)
    shape: tuple[int, ...]

    @property
    def inputs(self) -> int:
        return math.prod(self.shape)

    def named(self, rows: Rows, progress: Progress = lambda _: None) -> Tensor:
        """(n,) the likeliest class of each image."""
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        net, widest = copy.deepcopy(self.net).to(device), max(map(math.prod, shapes(self.net, self.shape)))
        parts = []
        for index in torch.split(torch.arange(len(rows)), max(1, min(_ROWS, _AT_ONCE // widest))):
            x = rows.take(index).x.float().reshape(len(index), *self.shape).to(device)
            with torch.inference_mode():
                parts.append(net(x).argmax(1).cpu())
            progress(len(index))
        return torch.cat(parts)

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {"shape": list(self.shape), "layers": layers.plain(self.net)}

    def tensors(self) -> dict[str, Tensor]:
        return {name: tensor.contiguous().cpu() for name, tensor in self.net.state_dict().items()}

    @classmethod
    def read(cls, item: Any, tensors: Mapping[str, Tensor], classes: int) -> SequenceHead:
        """From JSON and tensors that others wrote."""
        stated = strict_json.mapping("network", item)
        strict_json.only("network", stated, {"shape", "layers"})
        shape = tuple(strict_json.count("shape", size) for size in strict_json.items("shape", stated["shape"]))
        if len(shape) != 3 or not 0 < math.prod(shape) <= MOST_VALUES:
            raise ManifestError(f"no network takes images of {strict_json.shown(stated['shape'])}")
        with torch.device("meta"):  # takes no memory, however large a network is asked for
            net = layers.built(stated["layers"])
        if (made := shapes(net, shape)[-1]) != (classes,):
            raise ManifestError(f"its layers make {made} of an image, and it has {classes} classes")
        layers.check_tensors(tensors, net.state_dict())
        net.load_state_dict(dict(tensors), assign=True)
        return cls(net.eval(), shape)
