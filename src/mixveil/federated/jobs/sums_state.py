"""How far a server is in a job in rounds of sums, kept after every message: a server that was killed goes on from it.
All of it is post-processing of what parties released."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, tensor

from mixveil.core import files
from mixveil.features.round_settings import RoundSettings
from mixveil.federated.jobs.sums_plan import SumsPlan
from mixveil.learn.rounds import State
from mixveil.releases.contributions import Head

FILE = "rounds-of-sums.safetensors"


class Stated(NamedTuple):
    """What a party says of itself before a plan is made. honest, smallest: of secure sums."""

    units: int
    classes: tuple[str, ...]
    mu: float
    honest: int | None
    smallest: int | None


@dataclass(frozen=True)
class SumsState:
    """Where a job is.

    Attributes:
        settings: By which it learns; they hold the plan.
        mu: Of secure sums: the same for all parties; None: each party has its own.
        honest: How many share the noise.
        stated: What the parties that are still in it said.
        number: Of the next message.
        attempt: Of the next attempt at a secure sum.
        learnt: The head so far; None before the class sums.
    """

    settings: RoundSettings
    mu: float | None
    honest: int
    stated: Mapping[str, Stated]
    number: int = 0
    attempt: int = 0
    learnt: State | None = None

    @property
    def names(self) -> list[str]:
        return sorted(self.stated)

    @property
    def done(self) -> bool:
        return self.number > self.settings.rounds

    @property
    def plan(self) -> SumsPlan:
        """Of a secure sum."""
        return SumsPlan(self.settings.plan, self.mu or 1.0, self.honest)

    def asked(self) -> dict[str, object]:
        """The plan as parties get it."""
        return {**self.settings.plan.plain(), "mu": self.mu, "honest": self.honest}

    def save(self, folder: Path) -> None:
        whole = {
            "settings": self.settings.plain(),
            "mu": self.mu,
            "honest": self.honest,
            "stated": {name: list(said) for name, said in self.stated.items()},
            "number": self.number,
            "attempt": self.attempt,
            "done": None if self.learnt is None else self.learnt.done,
            "noise": None if self.learnt is None else list(self.learnt.noise),
        }
        tensors: dict[str, Tensor] = {"number": tensor(self.number)}
        if self.learnt is not None:
            tensors |= {**self.learnt.learnt.tensors(), "velocity": self.learnt.velocity}
        data = save({name: value.contiguous() for name, value in tensors.items()}, {"state": json.dumps(whole)})
        files.write_whole(folder / FILE, data, 0o600)


def load(folder: Path) -> SumsState | None:
    """What was kept; None where nothing was."""
    if not (folder / FILE).exists():
        return None
    with safe_open(folder / FILE, framework="pt") as kept:
        whole = json.loads((kept.metadata() or {})["state"])
        found = {name: kept.get_tensor(name) for name in kept.keys()}  # noqa: SIM118, it is no mapping
    found.pop("number")
    learnt = None
    if whole["done"] is not None:
        velocity = found.pop("velocity")
        of_weight, shared, of_velocity = whole["noise"]
        learnt = State(Head(**found), velocity, (of_weight, shared, of_velocity), whole["done"])
    stated = {
        name: Stated(units, tuple(classes), mu, honest, smallest)
        for name, (units, classes, mu, honest, smallest) in whole["stated"].items()
    }
    places = whole["number"], whole["attempt"], learnt
    return SumsState(RoundSettings.read(whole["settings"]), whole["mu"], whole["honest"], stated, *places)
