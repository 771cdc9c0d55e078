"""Methods with rounds: FedAvg, FedProx in the paper's setting and tuned, DP-SGD."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from mixveil.core.errors import TrainingError
from mixveil.core.randomness import SeededStream, Stream
from mixveil.core.types import Progress
from mixveil.data.partition import FEWEST
from mixveil.federated import dpsgd
from mixveil.federated.algorithms import Rounds, Weights, federated
from mixveil.federated.simulation.setup import Outcome, Point, Scene, share_right
from mixveil.learn.fit import TrainingRecipe
from mixveil.theory import gdp

FEDPROX, FEDPROX_RATE = 1e-3, 1e-3
"""μ and learning rate of the paper's FedProx."""

GRID_RATES = (1e-3, 5e-3, 2.5e-2)
GRID_PROXIMAL = (1e-1,)
"""Tried at the best learning rate, beside the paper's."""

HELD_OUT = 5  # one of so many rows of a party is held out to choose by


def fedavg(scene: Scene, mu: float, progress: Progress) -> Outcome:
    return _by_rounds(scene, scene.recipe, None, progress)


def fedprox(scene: Scene, mu: float, progress: Progress) -> Outcome:
    """As the paper has it."""
    return _by_rounds(scene, replace(scene.recipe, learning_rate=FEDPROX_RATE), FEDPROX, progress)


def fedprox_tuned(scene: Scene, mu: float, progress: Progress) -> Outcome:
    """Learning rate, and then μ, are those that name most of the rows right that every party holds out; with them it
    then trains on all rows. What the search sends and takes is counted in."""
    stream = SeededStream(scene.recipe.seed)
    kept = [_kept(len(part), stream.fork(f"held out {place}")) for place, part in enumerate(scene.parties)]
    sources = [scene.clear(party, chosen) for party, chosen in enumerate(kept)]
    held = torch.cat([x[~chosen] for x, chosen in zip(scene.x, kept, strict=True)])
    labels = torch.cat([part.labels[~chosen] for part, chosen in zip(scene.parties, kept, strict=True)])
    seconds, tried, rounds = 0.0, 0, search(scene)

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
        return share_right(model.eval(), held, labels)

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


def search(scene: Scene) -> Rounds:
    """Half as many rounds as it then trains."""
    return replace(scene.rounds, rounds=-(-scene.rounds.rounds // 2))


def _kept(rows: int, stream: Stream) -> Tensor:
    """Which rows of a party are trained on while settings are looked for: all but a fifth; of very few, all."""
    kept = stream.permutation(rows) % HELD_OUT != 0
    return kept if int(kept.sum()) >= FEWEST else torch.ones_like(kept)


def _by_rounds(scene: Scene, recipe: TrainingRecipe, proximal: float | None, progress: Progress) -> Outcome:
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
        return share_right(lambda x: torch.addmm(weights["bias"], x, weights["weight"]), test, scene.test.labels)

    size = 4 * scene.classes * (test.shape[1] + 1)
    curve = tuple(_curve(scene, steps, size, accuracy))
    words = (
        f"ε = {epsilon:.3g} at δ = {dpsgd.DELTA:g} for a record taken out, its label with it (replaced by another: up "
        f"to 2ε); how many rows a party has is public"
    )
    return replace(_of_rounds(scene, curve, size, words), chosen={"learning rate": rate})
