"""Methods without rounds: nothing sent, everything sent, one release, or statistics and records at a μ."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Batch, Progress, Release
from mixveil.federated.simulation.setup import Method, Outcome, Point, Scene, share_right
from mixveil.learn import protocol
from mixveil.learn.batches import BatchSource, RemixedEveryBatch
from mixveil.learn.fit import Head, steps_per_epoch, train_epochs
from mixveil.learn.layers import Layers
from mixveil.releases.records import in_memory
from mixveil.theory import gdp

_STEPS = 300  # of a training, at least: few rows make few steps an epoch


def epochs_for(scene: Scene, rows: int) -> int:
    """Of a training on so many rows."""
    return max(scene.recipe.epochs, -(-_STEPS // steps_per_epoch(rows, scene.recipe)))


def local_only(scene: Scene, mu: float, progress: Progress) -> Outcome:
    """Each party trains alone; the mean accuracy over parties, each counted once."""
    found, seconds = [], 0.0
    for party in range(len(scene.parties)):
        model, took = _trained(scene, scene.clear(party), progress)
        found.append(scene.accuracy(model))
        seconds += took
    spread = {"best party": max(found), "worst party": min(found)}
    return Outcome(sum(found) / len(found), 0, 0, 0, seconds, "nothing is sent", spread)


def public_alone(scene: Scene, mu: float, progress: Progress) -> Outcome:
    """Nobody sends anything: what the labelled public rows teach by themselves."""
    labels, x = scene.public
    if labels is None:
        raise ArgumentError("the public rows do not have the classes of the others: alone they teach nothing")
    model, seconds = _trained(scene, RemixedEveryBatch(x, labels, scene.classes, None), progress)
    return Outcome(scene.accuracy(model), 0, 0, 0, seconds, "nothing is sent")


def centralised(scene: Scene, mu: float, progress: Progress) -> Outcome:
    """The server has all rows as they are, once."""
    x = torch.cat(list(scene.x))
    labels = torch.cat([part.labels for part in scene.parties])
    model, seconds = _trained(scene, RemixedEveryBatch(x, labels, scene.classes, None), progress)
    return Outcome(
        scene.accuracy(model),
        x.nbytes + labels.nbytes,
        len(scene.parties) * scene.head_bytes,
        2 * len(scene.parties),
        seconds,
        "no guarantee: the server has every record",
    )


def one_shot(scene: Scene, mu: float, progress: Progress) -> Outcome:
    """Every party encodes its rows once; the server trains on the union."""
    started = time.perf_counter()
    stream = SeededStream(scene.recipe.seed).fork("one-shot")
    releases = [
        in_memory(part, scene.encoder, (), party=str(i), stream=stream.fork(f"party {i}"))
        for i, part in enumerate(scene.parties)
    ]
    sent = sum(release.payload.bytes for release in releases)
    encoding = time.perf_counter() - started
    model, training = _trained(scene, _Union(releases), progress)
    found, seconds = scene.accuracy(model), encoding + training
    back, messages = len(scene.parties) * scene.head_bytes, 2 * len(releases)
    curve = (Point(sent + back, messages, seconds, found),)
    return Outcome(found, sent, back, messages, seconds, _nominal(scene), curve=curve)


def remixed(scene: Scene, mu: float, progress: Progress) -> Outcome:
    """As the paper's code trains: pairs, weights and noise anew in every epoch, so that it needs the raw rows all the
    time. Counted as what it would be: a release an epoch."""
    model, seconds = _trained(scene, Remixed(scene), progress)
    row, epochs = scene.test.shape[0] * 2 + 4 * scene.classes, epochs_for(scene, scene.rows)
    sent = scene.rows * row * epochs
    words = f"no guarantee: {epochs} encodings of every record, each a release"
    back = len(scene.parties) * scene.head_bytes
    return Outcome(scene.accuracy(model), sent, back, 2 * len(scene.parties), seconds, words)


def _nominal(scene: Scene) -> str:
    realised = scene.encoder.directional_snr(scene.lambda_max)
    return (
        f"no guarantee of a record: nominal τ = {scene.tau:g} is of the average one, and where rows vary as the public "
        f"ones do the directional SNR of what is released is {realised:.3g}; labels are shown"
    )


def _trained(scene: Scene, source: BatchSource, progress: Progress) -> tuple[Head, float]:
    """A model that was trained without rounds, and the seconds that it took."""
    model, started = scene.model(), time.perf_counter()
    epochs = epochs_for(scene, source.rows)
    train_epochs(source, replace(scene.recipe, epochs=epochs), model, range(epochs), progress=progress)
    return model, time.perf_counter() - started


class _Union:
    """The rows of all releases in memory, as the server has them."""

    def __init__(self, releases: Sequence[Release]) -> None:
        parts = [release.payload.take(torch.arange(len(release.payload))) for release in releases]
        self._x = torch.cat(
            [release.encoder.restore(part.x.flatten(1)).float() for release, part in zip(releases, parts, strict=True)]
        )
        self._y = torch.cat([part.y for part in parts]).float()
        self.rows, self.inputs, self.classes = len(self._x), self._x.shape[1], self._y.shape[1]

    def batch(self, index: Tensor, step: int) -> Batch:
        return Batch(self._x[index], self._y[index])


class Remixed:
    """All parties' rows, paired within each party anew in every epoch."""

    def __init__(self, scene: Scene) -> None:
        self.rows, self.inputs, self.classes = scene.rows, scene.test.shape[0], scene.classes
        self._x, self._sizes = torch.cat(list(scene.x)), [len(x) for x in scene.x]
        self._y = torch.nn.functional.one_hot(torch.cat([p.labels for p in scene.parties]), scene.classes).float()
        self._encoder, self._epoch = scene.encoder, -1
        self._draws = DeviceStream(SeededStream(scene.recipe.seed).fork("remixed"))
        self._per_epoch = steps_per_epoch(self.rows, scene.recipe)

    def batch(self, index: Tensor, step: int) -> Batch:
        if step // self._per_epoch != self._epoch:
            self._epoch = step // self._per_epoch
            self._draws.restart(self._epoch)
            starts = torch.tensor([0, *self._sizes]).cumsum(0)
            self._partner = torch.cat(
                [int(start) + self._draws.cycle(size) for start, size in zip(starts, self._sizes, strict=False)]
            )
            self._weight = self._draws.capped_weights(self.rows, self._encoder.alpha)
        partner, (own, other) = self._partner[index], self._weight[index].T[:, :, None]
        noise = self._draws.normal(torch.empty(len(index), self.inputs)) * self._encoder.sigma
        x = own * self._x[index].float() + other * (self._x[partner].float() + noise)
        return Batch(x, own * self._y[index] + other * self._y[partner])


def certified(name: protocol.Protocol) -> Method:
    def run(scene: Scene, mu: float, progress: Progress) -> Outcome:
        started = time.perf_counter()
        stream = SeededStream(scene.recipe.seed).fork(name)
        found = protocol.learn(scene.parties, scene.projection, name, mu, stream=stream)
        layers = Layers.of(found.head, found.projection)
        seconds, parties = time.perf_counter() - started, len(scene.parties)
        progress(scene.rows)
        accuracy = share_right(layers, scene.test_x, scene.test.labels)
        model = sum(weight.nbytes + bias.nbytes for weight, bias in layers.layers)
        down, messages = found.down + parties * model, found.messages + parties
        words = (
            f"μ = {mu:g} for a record replaced by another of its label (ε = {gdp.epsilon(mu):.3g} at δ = 1e-05); "
            f"labels are shown, {'row by row' if name.startswith('two-step') else 'as counts of the classes'}"
        )
        curve = (Point(found.up + down, messages, seconds, accuracy),)
        return Outcome(accuracy, found.up, down, messages, seconds, words, {"directions": found.k}, curve)

    return run
