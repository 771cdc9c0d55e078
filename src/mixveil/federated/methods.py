"""The ways to learn together, each as one function of a scene: what it reaches, what it sends, what it promises."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from mixveil import protocol
from mixveil.data.partition import FEWEST
from mixveil.encoders.singular import PAPER_ALPHA, Singular
from mixveil.errors import ArgumentError, TrainingError
from mixveil.features import Features
from mixveil.federated import dpsgd
from mixveil.federated.algorithms import (
    HeadName,
    Rounds,
    Weights,
    federated,
    new_head,
    size_of,
    weights_of,
)
from mixveil.keys import DeviceStream, SeededStream
from mixveil.projection import Projection
from mixveil.release import Records, in_memory
from mixveil.theory import gdp, snr
from mixveil.train.batches import RemixedEveryBatch, Source
from mixveil.train.fit import Head, Recipe, go_on, steps_per_epoch
from mixveil.train.layers import Layers
from mixveil.types import Batch, Progress, Release

FEDPROX, FEDPROX_RATE = 1e-3, 1e-3
"""μ and learning rate of the paper's FedProx."""

GRID_RATES = (1e-3, 5e-3, 2.5e-2)
GRID_PROXIMAL = (1e-1,)
"""Tried at the best learning rate, beside the paper's."""

_HELD_OUT = 5  # one of so many rows of a party is held out to choose by
_STEPS = 300  # of a training without rounds, at least: few rows make few steps an epoch
_ROWS = 4096


class Point(NamedTuple):
    """After so many bytes either way, messages and seconds: which share of the test rows was named right."""

    bytes: int
    messages: int
    seconds: float
    accuracy: float


@dataclass(frozen=True)
class Outcome:
    """accuracy: the share of test rows that the model names right, in the end; bytes_up, bytes_down: of all parties
    together, from and to them; messages: either way; seconds: of all parties and the server one after the other, on
    this machine; guarantee: in words, what is promised of a record; chosen: settings that the method found by itself;
    curve: after each round, where there are rounds."""

    accuracy: float
    bytes_up: int
    bytes_down: int
    messages: int
    seconds: float
    guarantee: str
    chosen: dict[str, float] = field(default_factory=dict)
    curve: tuple[Point, ...] = ()


@dataclass(frozen=True)
class Scene:
    """What all methods learn on: parties' rows of the same features, the test rows, a projection fitted on public data,
    and settings. x: of each party, as `parties` would read them. encoder: of one-shot, calibrated
    on public data to a nominal τ, whose largest variance is lambda_max. scale: mean and median norm of the public
    features; public: the labels of the public rows, where they have the same classes, and the rows."""

    parties: Sequence[Features]
    x: Sequence[Tensor]
    test: Features
    test_x: Tensor
    projection: Projection
    encoder: Singular
    lambda_max: float
    tau: float
    scale: tuple[Tensor, float]
    public: tuple[Tensor | None, Tensor]
    head: HeadName
    rounds: Rounds
    recipe: Recipe

    @property
    def classes(self) -> int:
        return len(self.parties[0].classes)

    @property
    def rows(self) -> int:
        return sum(len(part) for part in self.parties)

    @property
    def counts(self) -> list[list[int]]:
        """How many rows of each class each party has."""
        return [part.labels.bincount(minlength=self.classes).tolist() for part in self.parties]

    @cached_property
    def head_bytes(self) -> int:
        return size_of(weights_of(self.model()))

    def model(self) -> Head:
        return new_head(self.head, self.test.shape[0], self.classes, self.recipe)

    def clear(self, party: int, rows: Tensor | None = None) -> Source:
        """The rows of a party as they are, or some of them."""
        x, labels = self.x[party], self.parties[party].labels
        if rows is not None:
            x, labels = x[rows], labels[rows]
        return RemixedEveryBatch(x, labels, self.classes, None)

    def accuracy(self, model: Head, weights: Weights | None = None) -> float:
        if weights is not None:
            model.load_state_dict(dict(weights))
        return _share(model.eval(), self.test_x, self.test.labels)


Method = Callable[[Scene, float, Progress], Outcome]


@torch.no_grad()
def _share(model: Callable[[Tensor], Tensor], x: Tensor, labels: Tensor) -> float:
    found = [model(part.float()).argmax(1) for part in torch.split(x, _ROWS)]
    return float(torch.cat(found).eq(labels).double().mean())


def local_only(scene: Scene, mu: float, progress: Progress) -> Outcome:
    """Each party trains alone; the mean accuracy over parties, each counted once."""
    trained = [_trained(scene, scene.clear(party), progress) for party in range(len(scene.parties))]
    found = [scene.accuracy(model) for model, _ in trained]
    spread = {"best party": max(found), "worst party": min(found)}
    seconds = sum(seconds for _, seconds in trained)
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


def fedavg(scene: Scene, mu: float, progress: Progress) -> Outcome:
    return _by_rounds(scene, scene.recipe, None, progress)


def fedprox(scene: Scene, mu: float, progress: Progress) -> Outcome:
    """As the paper has it."""
    return _by_rounds(scene, replace(scene.recipe, learning_rate=FEDPROX_RATE), FEDPROX, progress)


def fedprox_tuned(scene: Scene, mu: float, progress: Progress) -> Outcome:
    """Learning rate, and then μ, are those that name most of the rows right that every party holds out; with them it
    then trains on all rows. What the search sends and takes is counted in."""
    kept = [_kept(len(part), scene.recipe.seed + place) for place, part in enumerate(scene.parties)]
    sources = [scene.clear(party, chosen) for party, chosen in enumerate(kept)]
    held = torch.cat([x[~chosen] for x, chosen in zip(scene.x, kept, strict=True)])
    labels = torch.cat([part.labels[~chosen] for part, chosen in zip(scene.parties, kept, strict=True)])
    seconds, tried, rounds = 0.0, 0, _search(scene)

    def worth(rate: float, proximal: float) -> float:
        nonlocal seconds, tried
        started = time.perf_counter()
        model, recipe = scene.model(), replace(scene.recipe, learning_rate=rate)
        try:
            *_, weights = federated(model, sources, recipe, rounds, proximal=proximal, progress=progress)
        except TrainingError:  # it diverges
            return -1.0
        finally:
            seconds, tried = seconds + time.perf_counter() - started, tried + 1
        model.load_state_dict(dict(weights))
        return _share(model.eval(), held, labels)

    rate, proximal = FEDPROX_RATE, FEDPROX
    if len(held):
        found = {(rate, FEDPROX): worth(rate, FEDPROX) for rate in GRID_RATES}
        rate = max(found, key=lambda pair: found[pair])[0]
        found |= {(rate, proximal): worth(rate, proximal) for proximal in GRID_PROXIMAL}
        rate, proximal = max(found, key=lambda pair: found[pair])
    outcome = _by_rounds(scene, replace(scene.recipe, learning_rate=rate), proximal, progress)
    looked = tried * rounds.rounds * len(scene.parties)  # messages of the search, each way
    sent = looked * scene.head_bytes
    return replace(
        outcome,
        bytes_up=outcome.bytes_up + sent,
        bytes_down=outcome.bytes_down + sent,
        messages=outcome.messages + 2 * looked,
        seconds=outcome.seconds + seconds,
        chosen={"learning rate": rate, "proximal": proximal},
        curve=tuple(
            Point(p.bytes + 2 * sent, p.messages + 2 * looked, p.seconds + seconds, p.accuracy) for p in outcome.curve
        ),
    )


def _search(scene: Scene) -> Rounds:
    """Half as many rounds as it then trains."""
    return replace(scene.rounds, rounds=-(-scene.rounds.rounds // 2))


def _kept(rows: int, seed: int) -> Tensor:
    """Which rows of a party are trained on while settings are looked for: all but a fifth; of very few, all."""
    kept = SeededStream(seed).fork("held out").permutation(rows) % _HELD_OUT != 0
    return kept if int(kept.sum()) >= FEWEST else torch.ones_like(kept)


def _by_rounds(scene: Scene, recipe: Recipe, proximal: float | None, progress: Progress) -> Outcome:
    model = scene.model()
    sources = [scene.clear(party) for party in range(len(scene.parties))]
    steps = federated(model, sources, recipe, scene.rounds, proximal=proximal, progress=progress)
    curve = tuple(_curve(scene, steps, scene.head_bytes, lambda weights: scene.accuracy(model, weights)))
    words = "no guarantee: what a party's weights show of its records has no bound"
    return _of_rounds(scene, curve, scene.head_bytes, words)


def _curve(scene: Scene, steps: Iterator[Weights], size: int, accuracy: Callable[[Weights], float]) -> Iterator[Point]:
    """After each round. Testing takes no time here."""
    parties, seconds, number = len(scene.parties), 0.0, 0
    while True:
        started = time.perf_counter()
        weights = next(steps, None)
        seconds += time.perf_counter() - started
        if weights is None:
            return
        number += 1
        messages = (2 * number + 1) * parties  # with the model that comes back at last
        yield Point(messages * size, messages, seconds, accuracy(weights))


def _of_rounds(scene: Scene, curve: tuple[Point, ...], size: int, words: str) -> Outcome:
    parties, rounds = len(scene.parties), scene.rounds.rounds
    return Outcome(
        accuracy=curve[-1].accuracy,
        bytes_up=rounds * parties * size,
        bytes_down=(rounds + 1) * parties * size,
        messages=(2 * rounds + 1) * parties,
        seconds=curve[-1].seconds,
        guarantee=words,
        curve=curve,
    )


def dp_sgd(scene: Scene, mu: float, progress: Progress) -> Outcome:
    """FedAvg with DP-SGD, at the ε that μ is. The head is linear: batch normalisation would mix records."""
    mean, norm = scene.scale
    parties = [
        dpsgd.Party((x.float() - mean) / norm, part.labels) for x, part in zip(scene.x, scene.parties, strict=True)
    ]
    test = (scene.test_x.float() - mean) / norm
    epsilon = gdp.epsilon(mu, dpsgd.DELTA)
    stream = SeededStream(scene.recipe.seed).fork("dp-sgd")
    settings = dpsgd.Private(epsilon)
    rate = dpsgd.rate_for([len(x) for x in scene.x], settings, scene.rounds)  # the accountant's time is not counted
    steps = dpsgd.federated_dpsgd(parties, scene.classes, settings, scene.rounds, stream=stream, progress=progress)

    def accuracy(weights: Weights) -> float:
        return _share(lambda x: torch.addmm(weights["bias"], x, weights["weight"]), test, scene.test.labels)

    size = 4 * scene.classes * (test.shape[1] + 1)
    curve = tuple(_curve(scene, steps, size, accuracy))
    words = (
        f"ε = {epsilon:.3g} at δ = {dpsgd.DELTA:g} for a record taken out, its label with it (replaced by another: up "
        f"to 2ε); how many rows a party has is public"
    )
    return replace(_of_rounds(scene, curve, size, words), chosen={"learning rate": rate})


def one_shot(scene: Scene, mu: float, progress: Progress) -> Outcome:
    """Every party encodes its rows once; the server trains on the union."""
    started = time.perf_counter()
    stream = SeededStream(scene.recipe.seed).fork("one-shot")
    releases = [
        in_memory(part, scene.encoder, (), party=str(i), stream=stream.fork(f"party {i}"))
        for i, part in enumerate(scene.parties)
    ]
    sent = sum(release.payload.bytes for release in releases if isinstance(release.payload, Records))
    encoding = time.perf_counter() - started
    model, training = _trained(scene, _Union(releases), progress)
    found, seconds = scene.accuracy(model), encoding + training
    back, messages = len(scene.parties) * scene.head_bytes, 2 * len(releases)
    curve = (Point(sent + back, messages, seconds, found),)
    return Outcome(found, sent, back, messages, seconds, _nominal(scene), curve=curve)


def remixed(scene: Scene, mu: float, progress: Progress) -> Outcome:
    """As the paper's code trains: pairs, weights and noise anew in every epoch, so that it needs the raw rows all the
    time. Counted as what it would be: a release an epoch."""
    model, seconds = _trained(scene, _Remixed(scene), progress)
    row, epochs = scene.test.shape[0] * 2 + 4 * scene.classes, _epochs(scene)
    sent = scene.rows * row * epochs
    words = f"no guarantee: {epochs} encodings of every record, each a release"
    back = len(scene.parties) * scene.head_bytes
    return Outcome(scene.accuracy(model), sent, back, 2 * len(scene.parties), seconds, words)


def _nominal(scene: Scene) -> str:
    realised = snr.directional_snr(scene.lambda_max, scene.encoder.sigma or 0.0, scene.encoder.alpha or PAPER_ALPHA)
    return (
        f"no guarantee of a record: nominal τ = {scene.tau:g} is of the average one, and where rows vary as the public "
        f"ones do the directional SNR of what is released is {realised:.3g}; labels are shown"
    )


def _trained(scene: Scene, source: Source, progress: Progress) -> tuple[Head, float]:
    """A model that was trained without rounds, and the seconds that it took."""
    model, started = scene.model(), time.perf_counter()
    epochs = max(scene.recipe.epochs, -(-_STEPS // steps_per_epoch(source.rows, scene.recipe)))
    go_on(source, replace(scene.recipe, epochs=epochs), model, range(epochs), progress=progress)
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


class _Remixed:
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
            self._weight = self._draws.capped_weights(self.rows, self._encoder.alpha or PAPER_ALPHA)
        partner, (own, other) = self._partner[index], self._weight[index].T[:, :, None]
        noise = self._draws.normal(torch.empty(len(index), self.inputs)) * (self._encoder.sigma or 0.0)
        x = own * self._x[index].float() + other * (self._x[partner].float() + noise)
        return Batch(x, own * self._y[index] + other * self._y[partner])


def _certified(name: protocol.Protocol) -> Method:
    def run(scene: Scene, mu: float, progress: Progress) -> Outcome:
        started = time.perf_counter()
        stream = SeededStream(scene.recipe.seed).fork(name)
        found = protocol.learn(scene.parties, scene.projection, name, mu, stream=stream)
        layers = Layers.of(found.head, found.projection)
        seconds, parties = time.perf_counter() - started, len(scene.parties)
        progress(scene.rows)
        accuracy = _share(layers, scene.test_x, scene.test.labels)
        model = sum(weight.nbytes + bias.nbytes for weight, bias in layers.layers)
        down, messages = found.down + parties * model, found.messages + parties
        words = (
            f"μ = {mu:g} for a record replaced by another of its label (ε = {gdp.epsilon(mu):.3g} at δ = 1e-05); "
            f"labels are shown, {'row by row' if name.startswith('two-step') else 'as counts of the classes'}"
        )
        curve = (Point(found.up + down, messages, seconds, accuracy),)
        return Outcome(accuracy, found.up, down, messages, seconds, words, {"directions": found.k}, curve)

    return run


@dataclass(frozen=True)
class Listed:
    """A method by name. title: for tables; at: what it is run at, a μ or a τ; passes: how often it goes over all rows,
    for a progress bar."""

    run: Method
    title: str
    at: Literal["mu", "tau", ""]
    passes: Callable[[Scene], int]
    in_rounds: bool = False


def _epochs(scene: Scene) -> int:
    return max(scene.recipe.epochs, -(-_STEPS // steps_per_epoch(scene.rows, scene.recipe)))


def _alone(scene: Scene) -> int:
    return max(scene.recipe.epochs, -(-_STEPS // steps_per_epoch(scene.rows // len(scene.parties), scene.recipe)))


def _rounds(scene: Scene) -> int:
    return scene.rounds.rounds * scene.rounds.epochs


def _once(scene: Scene) -> int:
    return 1


def _tuned(scene: Scene) -> int:
    search = _search(scene).rounds * scene.rounds.epochs * (len(GRID_RATES) + len(GRID_PROXIMAL))
    return _rounds(scene) + search * (_HELD_OUT - 1) // _HELD_OUT


METHODS: dict[str, Listed] = {
    "local": Listed(local_only, "each party alone", "", _alone),
    "public": Listed(public_alone, "the public rows alone", "", _once),
    "centralised": Listed(centralised, "all rows in one place", "", _epochs),
    "fedavg": Listed(fedavg, "FedAvg", "", _rounds, True),
    "fedprox": Listed(fedprox, "FedProx, the paper's setting", "", _rounds, True),
    "fedprox-tuned": Listed(fedprox_tuned, "FedProx, tuned", "", _tuned, True),
    "one-shot": Listed(one_shot, "one release of records", "tau", _epochs),
    "remixed": Listed(remixed, "re-mixed in every epoch", "tau", _epochs),
    "two-step": Listed(_certified("two-step"), "two steps, mixed records", "mu", _once),
    "two-step-gaussian": Listed(_certified("two-step-gaussian"), "two steps, plain records", "mu", _once),
    "sums": Listed(_certified("sums"), "class sums at full μ", "mu", _once),
    "sums-twice": Listed(_certified("sums-twice"), "class sums twice", "mu", _once),
    "moments": Listed(_certified("moments"), "class sums and second moments", "mu", _once),
    "dp-sgd": Listed(dp_sgd, "DP-SGD in rounds", "mu", _rounds, True),
}


def chosen_methods(text: str) -> list[str]:
    """Names from `all` or a list with commas between.

    >>> chosen_methods("fedavg, two-step")
    ['fedavg', 'two-step']
    """
    if text.strip() == "all":
        return list(METHODS)
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in METHODS]
    if unknown or not names:
        raise ArgumentError(f"methods are all or some of {', '.join(METHODS)}, got {', '.join(unknown) or 'none'}")
    return list(dict.fromkeys(names))
