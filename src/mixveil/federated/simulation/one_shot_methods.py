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
from mixveil.core.wording.notes import Note, note
from mixveil.federated.simulation.setup import Outcome, Point, Simulation, share_right
from mixveil.learn import protocol
from mixveil.learn.batches import BatchSource, RemixedEveryBatch
from mixveil.learn.fit import Head, steps_per_epoch, train_epochs
from mixveil.learn.layers import Layers
from mixveil.releases.kinds.records import Records
from mixveil.releases.records import in_memory


def local_only(simulation: Simulation, progress: Progress) -> Outcome:
    """Each party trains alone; the mean accuracy over parties, each counted once."""
    found, seconds = [], 0.0
    for party in range(len(simulation.parties)):
        model, took = _trained(simulation, simulation.clear(party), progress)
        found.append(simulation.accuracy(model))
        seconds += took
    spread = {"best party": max(found), "worst party": min(found)}
    return Outcome(sum(found) / len(found), 0, 0, 0, seconds, note("nothing-sent"), spread)


def public_alone(simulation: Simulation, progress: Progress) -> Outcome:
    """No party sends anything: what the labelled public rows teach by themselves."""
    public = simulation.agreed
    if public.classes != simulation.test.classes:
        raise ArgumentError("the public rows do not have the classes of the others: alone they teach nothing")
    model, seconds = _trained(
        simulation, RemixedEveryBatch(public.rows, public.labels, simulation.classes, None), progress
    )
    return Outcome(simulation.accuracy(model), 0, 0, 0, seconds, note("nothing-sent"))


def centralised(simulation: Simulation, progress: Progress) -> Outcome:
    """The server has all rows as they are, once."""
    x = torch.cat(list(simulation.x))
    labels = torch.cat([part.labels for part in simulation.parties])
    model, seconds = _trained(simulation, RemixedEveryBatch(x, labels, simulation.classes, None), progress)
    return Outcome(
        simulation.accuracy(model),
        x.nbytes + labels.nbytes,
        len(simulation.parties) * simulation.head_bytes,
        2 * len(simulation.parties),
        seconds,
        note("every-record-sent"),
    )


def one_shot(simulation: Simulation, progress: Progress) -> Outcome:
    """Every party encodes its rows once; the server trains on the union."""
    started = time.perf_counter()
    stream = SeededStream(simulation.recipe.seed).fork("one-shot")
    releases = [
        in_memory(part, simulation.agreed.encoder, (), party=str(i), stream=stream.fork(f"party {i}"))
        for i, part in enumerate(simulation.parties)
    ]
    sent = sum(release.payload.bytes for release in releases if isinstance(release.payload, Records))
    encoding = time.perf_counter() - started
    model, training = _trained(simulation, _Union(releases), progress)
    found, seconds = simulation.accuracy(model), encoding + training
    back, messages = len(simulation.parties) * simulation.head_bytes, 2 * len(releases)
    curve = (Point(sent + back, messages, seconds, found),)
    return Outcome(found, sent, back, messages, seconds, _nominal(simulation), curve=curve)


def remixed(simulation: Simulation, progress: Progress) -> Outcome:
    """As the paper's code trains: pairs, weights and noise again in every epoch, so that it needs the raw rows all the
    time. Counted as what it would be: a release an epoch."""
    model, seconds = _trained(simulation, Remixed(simulation), progress)
    row, epochs = simulation.test.shape[0] * 2 + 4 * simulation.classes, simulation.epochs_for(simulation.rows)
    sent = simulation.rows * row * epochs
    promised = note("released-every-epoch", epochs=epochs)
    back = len(simulation.parties) * simulation.head_bytes
    return Outcome(simulation.accuracy(model), sent, back, 2 * len(simulation.parties), seconds, promised)


def _nominal(simulation: Simulation) -> Note:
    realised = simulation.agreed.encoder.directional_snr(simulation.agreed.lambda_max)
    return note("nominal-tau", tau=simulation.agreed.tau, snr=realised)


def _trained(simulation: Simulation, source: BatchSource, progress: Progress) -> tuple[Head, float]:
    """A model that was trained without rounds, and the seconds that it took."""
    model, started = simulation.model(), time.perf_counter()
    epochs = simulation.epochs_for(source.rows)
    train_epochs(source, replace(simulation.recipe, epochs=epochs), model, range(epochs), progress=progress)
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
    """All parties' rows, paired within each party again in every epoch."""

    def __init__(self, simulation: Simulation) -> None:
        self.rows, self.inputs, self.classes = simulation.rows, simulation.test.shape[0], simulation.classes
        self._x, self._sizes = torch.cat(list(simulation.x)), [len(x) for x in simulation.x]
        self._y = torch.nn.functional.one_hot(
            torch.cat([p.labels for p in simulation.parties]), simulation.classes
        ).float()
        self._encoder, self._epoch = simulation.agreed.encoder, -1
        self._draws = DeviceStream(SeededStream(simulation.recipe.seed).fork("remixed"))
        self._per_epoch = steps_per_epoch(self.rows, simulation.recipe)

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


def certified(
    simulation: Simulation, name: protocol.Protocol, mu: float, progress: Progress, promised: Note
) -> Outcome:
    """A protocol at a total μ."""
    started = time.perf_counter()
    stream = SeededStream(simulation.recipe.seed).fork(name)
    learned = protocol.learn(simulation.parties, simulation.agreed.projection, name, mu, stream=stream)
    layers = Layers.of(learned.head, learned.projection)
    seconds, parties = time.perf_counter() - started, len(simulation.parties)
    progress(simulation.rows)
    accuracy = share_right(layers, simulation.test_x, simulation.test.labels)
    model = sum(weight.nbytes + bias.nbytes for weight, bias in layers.layers)
    down, messages = learned.down + parties * model, learned.messages + parties
    curve = (Point(learned.up + down, messages, seconds, accuracy),)
    return Outcome(accuracy, learned.up, down, messages, seconds, promised, {"directions": learned.k}, curve)
