"""Methods with rounds: FedAvg, FedProx in the paper's setting and tuned, either with Fed-AugMix, DP-SGD."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from mixveil.core.errors import TrainingError
from mixveil.core.local_training import AugMix
from mixveil.core.randomness import SeededStream, Stream
from mixveil.core.types import Progress
from mixveil.core.wording.notes import Note, note
from mixveil.data.partition import FEWEST
from mixveil.federated import dpsgd
from mixveil.federated.algorithms import Rounds, Weights, federated
from mixveil.federated.simulation.setup import Outcome, Point, Simulation, share_right
from mixveil.learn.augmix_loss import augmix_loss
from mixveil.learn.fit import TrainingRecipe
from mixveil.theory import gdp

FEDPROX, FEDPROX_RATE = 1e-3, 1e-3
"""μ and learning rate of the paper's FedProx."""

GRID_RATES = (1e-3, 5e-3, 2.5e-2)
GRID_PROXIMAL = (1e-1,)
"""Tried at the best learning rate, beside the paper's."""

CLASS_SUMS_SHARE = 0.2
"""Of μ² that rounds of sums spend on class sums. By it DP-SGD is run at what their μ is for a record taken out."""

HELD_OUT = 5  # one of so many rows of a party is held out to choose by


def fedavg(simulation: Simulation, progress: Progress, augmix: AugMix | None = None) -> Outcome:
    return _by_rounds(simulation, simulation.recipe, None, progress, augmix)


def fedprox(simulation: Simulation, progress: Progress, augmix: AugMix | None = None) -> Outcome:
    """As the paper has it."""
    return _by_rounds(simulation, replace(simulation.recipe, learning_rate=FEDPROX_RATE), FEDPROX, progress, augmix)


def fedprox_tuned(simulation: Simulation, progress: Progress) -> Outcome:
    """Learning rate, and then μ, are those that name most of the rows right that every party holds out; with them it
    then trains on all rows. What the search sends and takes is counted in."""
    stream = SeededStream(simulation.recipe.seed)
    kept = [_kept(len(part), stream.fork(f"held out {place}")) for place, part in enumerate(simulation.parties)]
    sources = [simulation.clear(party, chosen) for party, chosen in enumerate(kept)]
    held = torch.cat([x[~chosen] for x, chosen in zip(simulation.x, kept, strict=True)])
    labels = torch.cat([part.labels[~chosen] for part, chosen in zip(simulation.parties, kept, strict=True)])
    seconds, tried, rounds = 0.0, 0, search(simulation)

    def worth(rate: float, proximal: float) -> float:
        nonlocal seconds, tried
        started = time.perf_counter()
        model, recipe = simulation.model(), replace(simulation.recipe, learning_rate=rate)
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
    outcome = _by_rounds(simulation, replace(simulation.recipe, learning_rate=rate), proximal, progress)
    looked = tried * rounds.rounds * len(simulation.parties)  # messages of the search, each way
    sent = looked * simulation.head_bytes
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


def search(simulation: Simulation) -> Rounds:
    """Half as many rounds as it then trains."""
    return replace(simulation.rounds, rounds=-(-simulation.rounds.rounds // 2))


def search_passes(simulation: Simulation) -> int:
    """How often the search goes over all rows."""
    tries = len(GRID_RATES) + len(GRID_PROXIMAL)
    return search(simulation).rounds * simulation.rounds.epochs * tries * (HELD_OUT - 1) // HELD_OUT


def _kept(rows: int, stream: Stream) -> Tensor:
    """Which rows of a party are trained on while settings are looked for: all but a fifth; of very few, all."""
    kept = stream.permutation(rows) % HELD_OUT != 0
    return kept if int(kept.sum()) >= FEWEST else torch.ones_like(kept)


def _by_rounds(
    simulation: Simulation,
    recipe: TrainingRecipe,
    proximal: float | None,
    progress: Progress,
    augmix: AugMix | None = None,
) -> Outcome:
    loss = None if augmix is None else augmix_loss(augmix, *simulation.images("Fed-AugMix"))
    model = simulation.model()
    sources = [simulation.clear(party) for party in range(len(simulation.parties))]
    steps = federated(model, sources, recipe, simulation.rounds, proximal=proximal, loss=loss, progress=progress)
    curve = tuple(_curve(simulation, steps, simulation.head_bytes, lambda weights: simulation.accuracy(model, weights)))
    return _of_rounds(simulation, curve, simulation.head_bytes, note("weights-unbounded"))


def _curve(
    simulation: Simulation, steps: Iterator[Weights], size: int, accuracy: Callable[[Weights], float]
) -> Iterator[Point]:
    """After each round. Testing takes no time here."""
    parties, seconds, number = len(simulation.parties), 0.0, 0
    while True:
        started = time.perf_counter()
        weights = next(steps, None)
        seconds += time.perf_counter() - started
        if weights is None:
            return
        number += 1
        messages = (2 * number + 1) * parties  # with the model that comes back at last
        yield Point(messages * size, messages, seconds, accuracy(weights))


def _of_rounds(simulation: Simulation, curve: tuple[Point, ...], size: int, promised: Note) -> Outcome:
    parties, rounds = len(simulation.parties), simulation.rounds.rounds
    return Outcome(
        accuracy=curve[-1].accuracy,
        bytes_up=rounds * parties * size,
        bytes_down=(rounds + 1) * parties * size,
        messages=(2 * rounds + 1) * parties,
        seconds=curve[-1].seconds,
        guarantee=promised,
        curve=curve,
    )


def dp_sgd(simulation: Simulation, mu: float, progress: Progress) -> Outcome:
    """FedAvg with DP-SGD, at the ε of what rounds of sums at μ promise for a record taken out: methods at one μ then
    stand under one relation. The head is linear: batch normalisation would mix records."""
    mean, norm = simulation.agreed.mean, simulation.agreed.norm
    parties = [
        dpsgd.Party((x.float() - mean) / norm, part.labels)
        for x, part in zip(simulation.x, simulation.parties, strict=True)
    ]
    test = (simulation.test_x.float() - mean) / norm
    out = gdp.taken_out(mu, CLASS_SUMS_SHARE)
    epsilon = gdp.epsilon(out, dpsgd.DELTA)
    stream = SeededStream(simulation.recipe.seed).fork("dp-sgd")
    settings = dpsgd.Private(epsilon)
    rate = dpsgd.rate_for(
        [len(x) for x in simulation.x], settings, simulation.rounds
    )  # the accountant's time is not counted
    steps = dpsgd.federated_dpsgd(
        parties, simulation.classes, settings, simulation.rounds, stream=stream, progress=progress
    )

    def accuracy(weights: Weights) -> float:
        return share_right(lambda x: torch.addmm(weights["bias"], x, weights["weight"]), test, simulation.test.labels)

    size = 4 * simulation.classes * (test.shape[1] + 1)
    curve = tuple(_curve(simulation, steps, size, accuracy))
    twice, larger = gdp.replaced(epsilon, dpsgd.DELTA)
    promised = note(
        "epsilon-record-taken-out",
        epsilon=epsilon,
        delta=dpsgd.DELTA,
        epsilon_replaced=twice,
        delta_replaced=larger,
        mu=mu,
        mu_out=out,
    )
    return replace(_of_rounds(simulation, curve, size, promised), chosen={"learning rate": rate})
