"""Every way to learn together that there is here, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from mixveil.errors import ArgumentError
from mixveil.federated import by_rounds, once
from mixveil.federated.scene import Method, Scene


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
    return once.epochs_for(scene, scene.rows)


def _alone(scene: Scene) -> int:
    return once.epochs_for(scene, scene.rows // len(scene.parties))


def _rounds(scene: Scene) -> int:
    return scene.rounds.rounds * scene.rounds.epochs


def _once(scene: Scene) -> int:
    return 1


def _tuned(scene: Scene) -> int:
    search = (
        by_rounds.search(scene).rounds
        * scene.rounds.epochs
        * (len(by_rounds.GRID_RATES) + len(by_rounds.GRID_PROXIMAL))
    )
    return _rounds(scene) + search * (by_rounds.HELD_OUT - 1) // by_rounds.HELD_OUT


METHODS: dict[str, Listed] = {
    "local": Listed(once.local_only, "each party alone", "", _alone),
    "public": Listed(once.public_alone, "the public rows alone", "", _once),
    "centralised": Listed(once.centralised, "all rows in one place", "", _epochs),
    "fedavg": Listed(by_rounds.fedavg, "FedAvg", "", _rounds, True),
    "fedprox": Listed(by_rounds.fedprox, "FedProx, the paper's setting", "", _rounds, True),
    "fedprox-tuned": Listed(by_rounds.fedprox_tuned, "FedProx, tuned", "", _tuned, True),
    "one-shot": Listed(once.one_shot, "one release of records", "tau", _epochs),
    "remixed": Listed(once.remixed, "re-mixed in every epoch", "tau", _epochs),
    "two-step": Listed(once.certified("two-step"), "two steps, mixed records", "mu", _once),
    "two-step-gaussian": Listed(once.certified("two-step-gaussian"), "two steps, plain records", "mu", _once),
    "sums": Listed(once.certified("sums"), "class sums at full μ", "mu", _once),
    "sums-twice": Listed(once.certified("sums-twice"), "class sums twice", "mu", _once),
    "moments": Listed(once.certified("moments"), "class sums and second moments", "mu", _once),
    "dp-sgd": Listed(by_rounds.dp_sgd, "DP-SGD in rounds", "mu", _rounds, True),
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
