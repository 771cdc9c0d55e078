"""Every way to learn together that there is here, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from mixveil.core.errors import ArgumentError
from mixveil.federated.simulation import one_shot_methods, round_methods
from mixveil.federated.simulation.setup import Method, Scene


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
    return one_shot_methods.epochs_for(scene, scene.rows)


def _alone(scene: Scene) -> int:
    return one_shot_methods.epochs_for(scene, scene.rows // len(scene.parties))


def _rounds(scene: Scene) -> int:
    return scene.rounds.rounds * scene.rounds.epochs


def _once(scene: Scene) -> int:
    return 1


def _tuned(scene: Scene) -> int:
    search = (
        round_methods.search(scene).rounds
        * scene.rounds.epochs
        * (len(round_methods.GRID_RATES) + len(round_methods.GRID_PROXIMAL))
    )
    return _rounds(scene) + search * (round_methods.HELD_OUT - 1) // round_methods.HELD_OUT


METHODS: dict[str, Listed] = {
    "local": Listed(one_shot_methods.local_only, "each party alone", "", _alone),
    "public": Listed(one_shot_methods.public_alone, "the public rows alone", "", _once),
    "centralised": Listed(one_shot_methods.centralised, "all rows in one place", "", _epochs),
    "fedavg": Listed(round_methods.fedavg, "FedAvg", "", _rounds, True),
    "fedprox": Listed(round_methods.fedprox, "FedProx, the paper's setting", "", _rounds, True),
    "fedprox-tuned": Listed(round_methods.fedprox_tuned, "FedProx, tuned", "", _tuned, True),
    "one-shot": Listed(one_shot_methods.one_shot, "one release of records", "tau", _epochs),
    "remixed": Listed(one_shot_methods.remixed, "re-mixed in every epoch", "tau", _epochs),
    "two-step": Listed(one_shot_methods.certified("two-step"), "two steps, mixed records", "mu", _once),
    "two-step-gaussian": Listed(
        one_shot_methods.certified("two-step-gaussian"), "two steps, plain records", "mu", _once
    ),
    "sums": Listed(one_shot_methods.certified("sums"), "class sums at full μ", "mu", _once),
    "sums-twice": Listed(one_shot_methods.certified("sums-twice"), "class sums twice", "mu", _once),
    "moments": Listed(one_shot_methods.certified("moments"), "class sums and second moments", "mu", _once),
    "dp-sgd": Listed(round_methods.dp_sgd, "DP-SGD in rounds", "mu", _rounds, True),
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
