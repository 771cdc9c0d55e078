"""The trainings behind InstaHide's accuracies (Table 2, Figures 3 and 4): what each trains on, and how it is tested."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from mixveil.core.device_random import DeviceStream
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Fact, Facts
from mixveil.data.images import Images
from mixveil.data.opening import open_data
from mixveil.encoders.batch_transform import BatchTransform
from mixveil.encoders.instahide import InstaHide
from mixveil.encoders.laplace import Laplace
from mixveil.learn.epochs import EncodedEveryEpoch, EpochSource, Normalisation, SameEveryEpoch, Transform
from mixveil.learn.image_training import ImageRecipe, averaged, probabilities
from mixveil.learn.resnet import ResNet18

NORMAL = {
    "mnist": Normalisation(),
    "cifar10": Normalisation((0.49, 0.48, 0.45), (0.20, 0.20, 0.20)),
}
SCHEDULE = {"mnist": (30, (15,)), "cifar10": (200, (100, 150))}
"""Epochs, and after which of them the rate falls (App. E)."""

ALPHAS = tuple(round(0.1 * step, 1) for step in range(1, 10))
ENCODINGS = 10
_READ = 4096


@dataclass(frozen=True)
class Run:
    """One training. mode: vanilla, inside, cross, release (the same encodings in every epoch), laplace, or pair
    (InstaHide of two images with the weights 1 − α and α)."""

    data: str
    mode: str
    k: int | None = None
    alpha: float | None = None
    epochs: int = 0
    seed: int = 0

    @property
    def name(self) -> str:
        parts = [self.data, self.mode, None if self.k is None else f"k{self.k}", self.alpha, self.epochs, self.seed]
        return "-".join(str(part) for part in parts if part is not None)

    def recipe(self, width: int, batch: int) -> ImageRecipe:
        whole, falls = SCHEDULE[self.data]
        scaled = tuple(round(fall * self.epochs / whole) for fall in falls)
        return ImageRecipe(self.epochs, scaled, batch, width=width, seed=self.seed)

    def plain(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Sets:
    """Images on the device: octets where they lose nothing by it."""

    x: Tensor
    labels: Tensor
    test_x: Tensor
    test_labels: Tensor
    classes: int
    normal: Normalisation


def runs(what: str, epochs: int | None, seeds: int = 1) -> list[Run]:
    """The trainings of a part, with so many epochs or the paper's. The rate falls at the same share of them."""
    made = {
        "vanilla": [Run("cifar10", "vanilla")],
        "inside": [Run("cifar10", "inside", 4)],
        "release": [Run("cifar10", "release", 4)],
        "table2": [Run("cifar10", "inside", 4), Run("cifar10", "release", 4), Run("cifar10", "vanilla")],
        "mnist": [
            Run("mnist", "vanilla"),
            Run("mnist", "inside", 4),
            Run("mnist", "cross", 4),
            Run("mnist", "cross", 6),
        ],
        "ks": [Run("cifar10", "inside", k) for k in (1, 2, 3, 4, 5, 6)] + [Run("cifar10", "vanilla")],
        "alpha": [Run("cifar10", mode, alpha=alpha) for alpha in ALPHAS for mode in ("laplace", "pair")],
    }[what]
    return [
        Run(run.data, run.mode, run.k, run.alpha, epochs or SCHEDULE[run.data][0], seed)
        for seed in range(seeds)
        for run in made
    ]


def loaded(name: str, device: torch.device, rows: int | None) -> Sets:
    train, test = open_data(name), open_data(f"{name}:test")
    parts = [on_device(images, device, rows) for images in (train, test)]
    (x, labels), (test_x, test_labels) = parts
    return Sets(x, labels, test_x, test_labels, len(train.classes), NORMAL[name])


def on_device(images: Images, device: torch.device, rows: int | None) -> tuple[Tensor, Tensor]:
    n = len(images) if rows is None else min(rows, len(images))
    x = torch.empty(n, *images.shape, dtype=torch.uint8, device=device)
    for index in torch.split(torch.arange(n), _READ):
        x[index[0] : index[-1] + 1] = images.take(index).x.mul(255).round().to(device, torch.uint8)
    return x, images.labels[:n].to(device)


def covers_for(sets: Sets, device: torch.device, rows: int | None, stream: SeededStream) -> Tensor:
    """Random crops of CIFAR-10 to the size of the images, normalised as these are."""
    x, _ = on_device(open_data("cifar10"), device, rows)
    height, width = sets.x.shape[2:]
    down, right = (
        (stream.uniform(len(x)) * (have - want + 1)).long().to(device)
        for have, want in zip(x.shape[2:], (height, width), strict=True)
    )
    row = down[:, None] + torch.arange(height, device=device)
    column = right[:, None] + torch.arange(width, device=device)
    image = torch.arange(len(x), device=device)[:, None, None]
    patches = x.movedim(1, -1)[image, row[:, :, None], column[:, None, :]].movedim(-1, 1)
    return sets.normal(patches.contiguous())


def transform_of(run: Run, sets: Sets, covers: Tensor | None, name: str = "encoding") -> Transform | None:
    """What encodes the images of an epoch."""
    stream = SeededStream(run.seed).fork(name)
    if run.mode == "vanilla":
        return None
    if run.mode == "laplace":
        return WithLaplace(run.alpha or 0.0, sets, stream)
    if run.mode == "pair":
        return FixedPair(run.alpha or 0.0, sets.classes, stream)
    encoder = InstaHide(k=run.k or 4)
    return BatchTransform(encoder, classes=sets.classes, covers=covers if run.mode == "cross" else None, stream=stream)


def source_of(run: Run, sets: Sets, covers: Tensor | None, *, augment: bool) -> EpochSource:
    moves = DeviceStream(SeededStream(run.seed).fork("moves")) if augment else None
    transform = transform_of(run, sets, covers)
    made = EncodedEveryEpoch(sets.x, sets.labels, sets.classes, sets.normal, transform, augment=moves)
    return SameEveryEpoch(*made.epoch(0)) if run.mode == "release" else made


def tested(
    run: Run, sets: Sets, covers: Tensor | None, every: int, encoded_every: int
) -> Callable[[int, ResNet18], dict[str, Any]]:
    """Test accuracy in percent of images as they are, and of the mean over ten encodings of each among themselves."""
    x = sets.normal(sets.test_x)
    transform = transform_of(run, sets, covers, "inference")

    def encodings(epoch: int) -> Iterator[Tensor]:
        if transform is not None:
            transform.restart(epoch)
            for _ in range(ENCODINGS):
                yield transform(x, sets.test_labels)[0]

    def measure(epoch: int, model: ResNet18) -> dict[str, Any]:
        last, found = epoch == run.epochs, {}
        if last or epoch % every == 0:
            found["plain %"] = right(probabilities(model, x), sets.test_labels)
        if transform is not None and (last or epoch % encoded_every == 0):
            found["encoded %"] = right(averaged(model, encodings(epoch)), sets.test_labels)
        return found

    return measure


def right(probability: Tensor, labels: Tensor) -> float:
    return 100 * float(probability.argmax(1).eq(labels).double().mean())


class WithLaplace:
    """(1 − α)x + e with E‖e‖₁ = α E‖x‖₁ (§5.2), which is the encoder's release times 1 − α."""

    def __init__(self, alpha: float, sets: Sets, stream: SeededStream) -> None:
        size = float(sets.normal(sets.x).abs().mean())
        known = {"dimension": float(sets.x[0].numel()), "centre": 0.0, "size": size}
        facts = Facts({name: Fact(value, "private") for name, value in known.items()})
        self.encoder, _ = Laplace(alpha).calibrate(None, facts)
        self.classes, self.draws = sets.classes, DeviceStream(stream)

    def restart(self, number: int) -> None:
        self.draws.restart(number)

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        noise = self.draws.laplace(x).mul_(self.encoder.scale)
        return noise.add_(x).mul_(1 - self.encoder.alpha), torch.nn.functional.one_hot(y, self.classes).float()


class FixedPair:
    """InstaHide of two images with fixed weights: s ∘ ((1 − α)x + αx'), x' another image."""

    def __init__(self, alpha: float, classes: int, stream: SeededStream) -> None:
        self.alpha, self.classes, self.draws = alpha, classes, DeviceStream(stream)

    def restart(self, number: int) -> None:
        self.draws.restart(number)

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        partner = self.draws.cycle(len(x)).to(x.device, non_blocking=True)
        labels = torch.nn.functional.one_hot(y, self.classes).float()
        mixed = x.lerp(x[partner], self.alpha)
        return mixed.mul_(self.draws.signs(mixed)), labels.lerp(labels[partner], self.alpha)
