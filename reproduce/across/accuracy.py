"""Accuracy, bytes and promise of every way to learn together."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import mixveil
from mixveil.core.types import Batch, Encoder, Release
from mixveil.encoders.batch_transform import BatchTransform
from mixveil.encoders.instahide import C1, C2, CalibratedInstaHide
from mixveil.encoders.mixup import Mixup
from mixveil.federated.algorithms import new_head
from mixveil.federated.simulation.setup import share_right
from mixveil.learn.fit import Head, train_epochs
from mixveil.learn.split import SplitJob, SplitTrained, in_turns, measured
from mixveil.learn.split_training import SplitRecipe
from mixveil.releases.kinds.records import Records
from mixveil.releases.records import in_memory
from reproduce.across.world import World, pixels

Figures = dict[str, Any]
ENCODINGS = 10
"""Of a test image, whose mean InstaHide's paper takes."""


def simulated(world: World, method: str) -> Figures:
    """By `mixveil.simulate`."""
    scale = world.scale
    found = mixveil.simulate(
        world.train,
        parties=scale.parties,
        beta=scale.beta,
        methods=method,
        mu=scale.mu,
        tau=scale.tau,
        head=scale.head,
        rounds=scale.rounds,
        epochs=scale.epochs,
        learning_rate=scale.learning_rate,
        test=world.test,
        public=world.public,
        seed=scale.seed,
        severity=scale.severity,
        cache=world.work,
    )
    (row,) = found.rows
    promise = row["guarantee"]
    stated = {f"promise {name}": value for name, value in promise.get("figures", {}).items()}
    sent = {"bytes up": row["bytes_up"], "bytes down": row["bytes_down"]}
    return {"accuracy": row["accuracy"], **sent, "promise": promise["code"], **stated}


def encoder_of(world: World, method: str) -> Encoder:
    """That of a method whose rows promise nothing: k = 2 for Mixup, k = 4 inside a party's rows for InstaHide."""
    if method == "mixup":
        return Mixup(k=2)
    values = torch.Size(world.train.shape).numel()
    return CalibratedInstaHide(k=4, c1=C1, c2=C2, covers=0, pad=0, values=values, centre=0.5)


def mixed(world: World, method: str) -> Figures:
    """Every party encodes its rows once, and the server trains on the union."""
    encoder, stream = encoder_of(world, method), world.stream(method)
    releases = [
        in_memory(part, encoder, (), party=str(i), stream=stream.fork(f"party {i}"))
        for i, part in enumerate(world.parts)
    ]
    sent = sum(release.payload.bytes for release in releases if isinstance(release.payload, Records))
    model, x = trained(world, Union(releases)), pixels(world.test)
    down = world.scale.parties * sum(value.nbytes for value in model.state_dict().values())
    found: Figures = {"accuracy": share_right(model, x.flatten(1), world.test.labels)}
    if isinstance(encoder, CalibratedInstaHide):
        found["accuracy encoded"] = _by_encodings(world, model, encoder, x)
    return {**found, "bytes up": sent, "bytes down": down, "promise": "no-noise"}


class Union:
    """The rows of all releases, as the server has them."""

    def __init__(self, releases: list[Release]) -> None:
        parts = [release.payload.take(torch.arange(len(release.payload))) for release in releases]
        restored = [
            release.encoder.restore(part.x.flatten(1)).float() for release, part in zip(releases, parts, strict=True)
        ]
        self._x, self._y = torch.cat(restored), torch.cat([part.y for part in parts]).float()
        self.rows, self.inputs, self.classes = len(self._x), self._x.shape[1], self._y.shape[1]

    def batch(self, index: Tensor, step: int) -> Batch:
        return Batch(self._x[index], self._y[index])


def trained(world: World, source: Union) -> Head:
    recipe = world.recipe(source.rows)
    model = new_head(world.scale.head, source.inputs, source.classes, recipe, shape=world.train.shape)
    train_epochs(source, recipe, model, range(recipe.epochs))
    return model.eval()


@torch.no_grad()
def _by_encodings(world: World, model: Head, encoder: CalibratedInstaHide, x: Tensor) -> float:
    """Accuracy of the mean over encodings of each test image, mixed with one another, as the paper tests."""
    transform = BatchTransform(encoder, classes=world.classes, stream=world.stream("inference"))
    total = torch.zeros(len(x), world.classes)
    for _ in range(ENCODINGS):
        encoded = transform(x, world.test.labels)[0].flatten(1)
        total += torch.cat([torch.softmax(model(part), 1) for part in torch.split(encoded, 4096)])
    return float(total.argmax(1).eq(world.test.labels).double().mean())


def split(world: World) -> tuple[SplitTrained, Figures]:
    """MixCon: both halves are trained on all rows in the clear; then parties send representations of images."""
    recipe = SplitRecipe(epochs=world.scale.split_epochs, seed=world.scale.seed)
    job = SplitJob.of(world.train, "lenet5", None)
    ((_, halves),) = in_turns(job, [(recipe, None)])
    figures = measured(halves, world.test)
    sent = 4 * halves.client.values
    return halves, {"accuracy": figures.accuracy, "bytes an image": sent, "promise": "halves-promise-nothing"}
