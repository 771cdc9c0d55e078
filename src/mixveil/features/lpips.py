"""LPIPS v0.1: how far two images are apart to the eye, by the features of AlexNet or VGG16 (Zhang et al., 2018)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from mixveil.core.errors import ArgumentError, WeightsError
from mixveil.features.backbones.weight_files import checked_file

Net = Literal["alex", "vgg"]

_SHIFT, _SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # of an input in [−1, 1]
_EPSILON = 1e-10
_SMALLEST = 32  # of images under 31 pixels AlexNet's last pooling leaves nothing
_PIXELS = {"cpu": 1 << 16, "cuda": 1 << 22}  # at once: VGG16's first maps have 64 floats a pixel
_ROUNDING = 1e-6
_FLAGS = threading.Lock()  # the flags of cuDNN are shared by all threads


class LpipsNetwork(nn.Module):
    """The convolutions of a network with a head for each tapped layer, under the key names of the files. taps: layer
    numbers."""

    def __init__(self, features: list[nn.Module], taps: tuple[int, ...], widths: tuple[int, ...]) -> None:
        super().__init__()
        self.features, self.taps = nn.Sequential(*features), taps
        self.heads = nn.ModuleList(nn.Conv2d(width, 1, 1, bias=False) for width in widths)

    def forward(self, truth: Tensor, guess: Tensor) -> Tensor:
        """(m,) distances of (m, 3, h, w) in [−1, 1]."""
        return self.apart(self.directions(truth), self.directions(guess))

    def directions(self, images: Tensor) -> list[Tensor]:
        """(m, width, h', w') of every tapped layer: what it says of each place, as unit vectors."""
        shift, scale = (images.new_tensor(values).view(3, 1, 1) for values in (_SHIFT, _SCALE))
        x, found = (images - shift) / scale, []
        for number, layer in enumerate(self.features):
            x = layer(x)
            if number in self.taps:
                found.append(x / (torch.linalg.vector_norm(x, dim=1, keepdim=True) + _EPSILON))
        return found

    def apart(self, truth: list[Tensor], guess: list[Tensor]) -> Tensor:
        """(m,) distances of images with these directions."""
        parts = zip(self.heads, truth, guess, strict=True)
        return torch.stack([head((one - other).square_()).mean((1, 2, 3)) for head, one, other in parts]).sum(0)

    def work(self, size: tuple[int, int]) -> float:
        """Floating-point operations of one image (3, h, w), at most."""
        (height, width), total = size, 0.0
        for layer in self.features:
            if isinstance(layer, nn.MaxPool2d):
                height, width = (max(1, side // 2) for side in (height, width))
            elif isinstance(layer, nn.Conv2d):
                height, width = (-(-side // layer.stride[0]) for side in (height, width))
                total += 2.0 * layer.weight.numel() * height * width
        return total


def _alexnet() -> LpipsNetwork:
    convolutions = [
        nn.Conv2d(3, 64, 11, 4, 2),
        nn.Conv2d(64, 192, 5, 1, 2),
        nn.Conv2d(192, 384, 3, 1, 1),
        nn.Conv2d(384, 256, 3, 1, 1),
        nn.Conv2d(256, 256, 3, 1, 1),
    ]
    layers: list[nn.Module] = []
    for number, convolution in enumerate(convolutions):
        layers += [nn.MaxPool2d(3, 2)] if number in (1, 2) else []
        layers += [convolution, nn.ReLU(inplace=True)]
    return LpipsNetwork(layers, (1, 4, 7, 9, 11), (64, 192, 384, 256, 256))


def _vgg16() -> LpipsNetwork:
    layers: list[nn.Module] = []
    inside = 3
    for width, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        layers += [nn.MaxPool2d(2)] if layers else []
        for _ in range(depth):
            layers += [nn.Conv2d(inside, width, 3, 1, 1), nn.ReLU(inplace=True)]
            inside = width
    return LpipsNetwork(layers, (3, 8, 15, 22, 29), (64, 128, 256, 512, 512))


@dataclass(frozen=True)
class LpipsSpec:
    """How to build a network, its file, and the first digits of the file's SHA-256."""

    make: Callable[[], LpipsNetwork]
    file: str
    digest: str


KNOWN: dict[Net, LpipsSpec] = {
    "alex": LpipsSpec(_alexnet, "lpips-alexnet.safetensors", "56bafe8d"),
    "vgg": LpipsSpec(_vgg16, "lpips-vgg16.safetensors", "5ec022d0"),
}


@dataclass(frozen=True)
class Lpips:
    """A loaded network. digest: the SHA-256 of its file."""

    net: Net
    digest: str
    layers: LpipsNetwork = field(repr=False)
    device: torch.device

    @property
    def name(self) -> str:
        return f"lpips-{self.net}"

    def __call__(self, truth: Tensor, guess: Tensor) -> Tensor:
        """(n,) float64 distances of (n, 1 or 3, h, w) images in [0, 1], on the CPU: 0 for equal images, about 1 for
        very different ones.

        Grey counts as colour of three equal channels. Images with a side under 32 are enlarged bilinearly until the
        shorter side is 32; published figures of small images may have been computed differently.
        """
        if truth.shape != guess.shape:
            raise ArgumentError(
                f"LPIPS needs two sets of images of one shape, got {tuple(truth.shape)} and {tuple(guess.shape)}"
            )
        _check("truth", truth)
        pairs = zip(self._batches(truth), self._batches(guess), strict=True)
        return torch.cat([self.from_these(one)(other) for one, other in pairs])

    def from_these(self, truth: Tensor) -> Callable[[Tensor], Tensor]:
        """The same for one guess after another at the same images: these go through the network once, and what it
        says of them is kept."""
        _check("truth", truth)
        with self._running():
            kept = [self.layers.directions(self._input(part)) for part in self._batches(truth)]

        def distances(guess: Tensor) -> Tensor:
            _check("guess", guess)
            if guess.shape != truth.shape:
                raise ArgumentError(f"LPIPS needs guesses of the shape {tuple(truth.shape)}, got {tuple(guess.shape)}")
            with self._running():
                pairs = zip(kept, self._batches(guess), strict=True)
                found = [self.layers.apart(one, self.layers.directions(self._input(part))) for one, part in pairs]
            return torch.cat(found).double().cpu()

        return distances

    def work(self, shape: tuple[int, ...]) -> float:
        """Floating-point operations that one image (channels, h, w) takes."""
        return self.layers.work(self._size(shape))

    def _batches(self, images: Tensor) -> tuple[Tensor, ...]:
        """So many images at a time: what the first layers make of them is large."""
        height, width = self._size(images.shape[1:])
        return torch.split(images, max(1, _PIXELS["cuda" if self.device.type == "cuda" else "cpu"] // (height * width)))

    @staticmethod
    def _size(shape: Sequence[int]) -> tuple[int, int]:
        """Of images (channels, h, w) as they enter the network."""
        sides = shape[1:]
        factor = max(1.0, _SMALLEST / min(sides))
        return round(sides[0] * factor), round(sides[1] * factor)

    @contextmanager
    def _running(self) -> Iterator[None]:
        # In full float32: by default convolutions on a GPU have ten bits of mantissa.
        with _FLAGS, torch.inference_mode(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            yield

    def _input(self, images: Tensor) -> Tensor:
        x, size = images.to(self.device, torch.float32), self._size(images.shape[1:])
        if x.shape[2:] != size:
            x = torch.nn.functional.interpolate(x, size=size, mode="bilinear")
        return 2 * x.expand(-1, 3, -1, -1) - 1


def found(folder: Path | None) -> list[Net]:
    """The networks whose files are in `folder`/weights."""
    return [net for net, known in KNOWN.items() if folder is not None and (folder / "weights" / known.file).is_file()]


def load(net: Net, folder: Path | None, device: str | None = None) -> Lpips:
    """LPIPS by that network with the weights of its file in `folder`/weights. device: a GPU if there is one."""
    if net not in KNOWN:
        raise ArgumentError(f"net must be one of {', '.join(KNOWN)}, got {net!r}")
    from safetensors.torch import load_file

    known = KNOWN[net]
    path, digest = checked_file(f"lpips-{net}", known.file, known.digest, folder)
    layers = known.make()
    try:
        layers.load_state_dict(load_file(path))
    except RuntimeError as error:
        raise WeightsError(f"{path} does not fit lpips-{net}: {error}") from None
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    return Lpips(net, digest, layers.requires_grad_(False).eval().to(where), where)


def _check(name: str, x: Tensor) -> None:
    if x.dim() != 4 or x.shape[1] not in (1, 3):
        raise ArgumentError(f"LPIPS needs images (n, 1 or 3, h, w), {name} has the shape {tuple(x.shape)}")
    if x.numel() and not bool((x.amin() >= -_ROUNDING) & (x.amax() <= 1 + _ROUNDING)):
        raise ArgumentError(f"LPIPS needs values in [0, 1], {name} has {float(x.amin()):g} … {float(x.amax()):g}")
