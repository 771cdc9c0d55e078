"""Rounds of sums: accuracy against μ, the number of parties and whether sums are secure, beside DP-SGD.

    MIXVEIL_DATA=DIR python -m reproduce.certified.rounds SCENARIO [--repeat 3] [--parties P …]

Scenarios: cifar10 (CIFAR-100 public), skew (the same rows dealt by β = 0.1 and with one small party), dp-sgd, networks
(six of them side by side), mnist (pixels, FashionMNIST public), cifar100 (Tiny-ImageNet public), patients (of 1 to 20
images, made of CIFAR-10's). --projection keeps the public preparation in a file, for several runs.

Noise is secure, and labels are covered. Settings come from public data and sizes alone: `learn.public_tasks`. Its rule,
and the form of the head's steps, were made while the test accuracy of CIFAR-10, MNIST and CIFAR-100 could be seen; no
figure of a run is chosen by it.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from mixveil.core.randomness import SecureStream, SeededStream
from mixveil.data.opening import data_folder, open_data
from mixveil.data.partition import partition
from mixveil.features import cache, projection_file, projection_fit
from mixveil.features.cache import Features
from mixveil.features.extractor import Extractor
from mixveil.features.projection import Projection
from mixveil.features.round_settings import RoundSettings
from mixveil.federated import dpsgd
from mixveil.federated.algorithms import Rounds
from mixveil.federated.simulation.setup import share_right
from mixveil.learn import public_tasks
from mixveil.learn.protocol import in_rounds
from mixveil.report import results
from mixveil.theory import gdp

PAIR = "efficientnet_lite0+mobilenet_v2"
SIX = "efficientnet_lite2+efficientnet_lite0+mobilenet_v2+resnet50-keras+efficientnet_lite1+resnet18"
MUS = (0.5, 1.0, 2.0)
Row = dict[str, Any]
_ROUNDS = 50  # of DP-SGD


@dataclass(frozen=True)
class World:
    """Rows to deal, to test on, and what is public."""

    name: str
    private: Features
    test: Features
    public: Features
    projection: Projection

    def dealt(self, parties: int, beta: float | None = None, rho: float = 1.0) -> list[Features]:
        stream = SeededStream(0).fork("partition")
        parts = partition(self.private.labels, parties, beta=beta, rho=rho, stream=stream)
        return [self.private.part(index) for index in parts] if parties > 1 else [self.private]


def opened(name: str, extractor: Extractor, sets: Sequence[str], kept: Path | None) -> World:
    loaded = cache.load(extractor, data_folder(None))
    folder = cache.cache_folder() if extractor.names else None
    private, test, public = (cache.extract(open_data(data), loaded, folder) for data in sets)
    test = replace(test, rows=test.rows.listed(private.classes))
    if kept is not None and kept.exists():
        return World(name, private, test, public, projection_file.read(kept)[0])
    started = time.perf_counter()
    fitted = projection_fit.fit(public, loaded.digest)
    fitted = replace(fitted, rounds=public_tasks.find(public))
    tell({"scenario": name, "preparing, seconds": time.perf_counter() - started})
    if kept is not None:
        projection_file.write(kept, fitted)
    return World(name, private, test, public, fitted)


def found_settings(world: World, found: RoundSettings) -> Row:
    """What public tasks say of one level of noise."""
    figures = {"directions": found.directions, "rate": found.rate, "rounds": found.rounds}
    settings = {"data": world.name, "method": "settings", "noise": found.noise}
    return {"settings": settings, "figures": {**figures, "accuracy on public tasks %": 100 * found.accuracy}}


def cell(world: World, parts: Sequence[Features], mu: float, honest: int, repeat: int, **more: Any) -> list[Row]:
    """The same job several times, with noise of its own."""
    rows = []
    for number in range(repeat):
        started = time.perf_counter()
        found = in_rounds(parts, world.projection, mu, honest=honest, stream=SecureStream())
        settings = {"data": world.name, "method": "rounds", "parties": len(parts), "honest": honest, "mu": mu, **more}
        figures = {
            "accuracy %": 100 * found.accuracy(world.test),
            "directions": found.k,
            "bytes up": found.up,
            "seconds": time.perf_counter() - started,
        }
        rows.append(tell({"settings": {**settings, "repetition": number}, "figures": figures}))
    return rows


def grid(world: World, repeat: int, numbers: Sequence[int]) -> list[Row]:
    rows = []
    for parties in numbers:
        for mu in MUS:
            rows += cell(world, world.dealt(parties), mu, parties, repeat)
            if parties > 1:
                rows += cell(world, world.dealt(parties), mu, 1, repeat)
    for honest in (9, 5) if 10 in numbers else ():  # of ten: less noise is shared than it could be
        rows += cell(world, world.dealt(10), 1.0, honest, repeat)
    return rows


def skew(world: World, repeat: int, numbers: Sequence[int]) -> list[Row]:
    rows = []
    for parties, (beta, rho) in (
        (p, dealt) for p in numbers if p in (10, 100) for dealt in ((None, 1.0), (0.1, 1.0), (0.5, 0.01))
    ):
        parts = world.dealt(parties, beta, rho)
        for honest in (1, parties):
            rows += cell(world, parts, 1.0, honest, repeat, beta=beta, rho=rho)
    return rows


def one_and_ten(world: World, repeat: int, numbers: Sequence[int]) -> list[Row]:
    rows = []
    for mu in MUS:
        rows += cell(world, world.dealt(1), mu, 1, repeat)
        for honest in (1, 10):
            rows += cell(world, world.dealt(10), mu, honest, repeat)
    rows += cell(world, world.dealt(1), 1e4, 1, 1)  # next to no noise
    return rows


def compared(world: World, repeat: int, numbers: Sequence[int]) -> list[Row]:
    """DP-SGD at the relation of rounds: a record taken out."""
    rows = []
    known = torch.cat([world.public.read(index) for index in torch.split(torch.arange(len(world.public)), 4096)])
    mean = known.mean(0)
    norm = float(torch.linalg.vector_norm(known - mean, dim=1).median())
    test = (world.test.read(torch.arange(len(world.test))) - mean) / norm
    for parties in numbers:
        parts = [
            dpsgd.Party((part.read(torch.arange(len(part))) - mean) / norm, part.labels)
            for part in world.dealt(parties)
        ]
        for mu in MUS:
            started = time.perf_counter()
            outside = gdp.taken_out(mu, public_tasks.SHARE)
            private = dpsgd.Private(gdp.epsilon(outside, dpsgd.DELTA))
            stream, classes = SecureStream(), len(world.private.classes)
            for weights in dpsgd.federated_dpsgd(parts, classes, private, Rounds(_ROUNDS), stream=stream):
                last = weights

            def scores(x: torch.Tensor, weights: Any = last) -> torch.Tensor:
                return torch.addmm(weights["bias"], x, weights["weight"])

            settings = {"data": world.name, "method": "dp-sgd", "parties": parties, "mu": mu, "rounds": _ROUNDS}
            figures = {
                "accuracy %": 100 * share_right(scores, test, world.test.labels),
                "epsilon, taken out": private.epsilon,
                "seconds": time.perf_counter() - started,
            }
            rows.append(tell({"settings": settings, "figures": figures}))
    return rows


def patients(world: World, repeat: int, numbers: Sequence[int]) -> list[Row]:
    """Patients of 1 to 20 images of one class each, at one μ a patient, against noise for m times one record."""
    stream = SeededStream(0).fork("patients")
    order = stream.permutation(len(world.private))
    order = order[torch.argsort(world.private.labels[order], stable=True)]
    sizes = (1 + (stream.uniform(len(order)) * 20).long()).tolist()
    names: list[str] = []
    number = 0
    while len(names) < len(order):
        names += [f"patient {number}"] * sizes[number]
        number += 1
    part = world.private.part(order)
    named = replace(part, rows=replace(part.rows, units=tuple(names[: len(order)])))
    rows = []
    for mu in MUS:
        rows += cell(replace(world, private=named), [named], mu, 1, repeat, unit="patient, clipped as a whole")
        each = mu / 20  # every record alone at a twentieth: what m·μ of a record would need
        rows += cell(world, [part], each, 1, repeat, unit="record, 20 of which are a patient", patient_mu=mu)
        root = mu / math.sqrt(20)
        rows += cell(world, [part], root, 1, repeat, unit="record at μ/√20, which promises no patient μ", patient_mu=mu)
    return rows


CIFAR10 = ("cifar10:train", "cifar10:test", "cifar100:train")
SCENARIOS: dict[str, tuple[str, tuple[str, str, str], Callable[[World, int, Sequence[int]], list[Row]]]] = {
    "cifar10": (PAIR, CIFAR10, grid),
    "skew": (PAIR, CIFAR10, skew),
    "dp-sgd": (PAIR, CIFAR10, compared),
    "networks": (SIX, CIFAR10, one_and_ten),
    "mnist": ("none", ("mnist:train", "mnist:test", "fashion-mnist:train"), one_and_ten),
    "cifar100": (PAIR, ("cifar100:train", "cifar100:test", "tiny-imagenet:train"), one_and_ten),
    "patients": (PAIR, CIFAR10, patients),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--parties", type=int, nargs="*", default=[1, 10, 50, 100])
    parser.add_argument("--projection", type=Path)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    networks, sets, measured = SCENARIOS[chosen.scenario]
    extractor = Extractor.parse(networks, mirror=networks != "none")
    world = opened(chosen.scenario, extractor, sets, chosen.projection)
    rows = [found_settings(world, item) for item in world.projection.rounds]
    rows += measured(world, chosen.repeat, chosen.parties)
    about = {"features": str(extractor), "private": sets[0], "public": sets[2]}
    out = chosen.out or Path(__file__).parent / f"rounds-{chosen.scenario}.json"
    title = f"Rounds of sums, {chosen.scenario}, {extractor}"
    results.write_results(out, results.Results(title, results.provenance(about), tuple(rows)))


def tell(row: Row) -> Row:
    sys.stderr.write(f"{row}\n")
    return row


if __name__ == "__main__":
    main()
