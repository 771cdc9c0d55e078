"""What a job in rounds of sums spends at a party, agreed to once for all its messages; server and party compute alike.

Message 0 has class sums, later ones have residual sums, or class sums again where a secure sum of them failed. What a
message costs follows from its number alone: μ² of all numbers together is that of the job, whatever is asked for.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mixveil.core import checks, strict_json
from mixveil.core.errors import ArgumentError
from mixveil.features.round_settings import RoundPlan
from mixveil.theory import clipping, gdp, shared_noise


@dataclass(frozen=True)
class SumsPlan:
    """A plan with its μ.

    Attributes:
        plan: How μ is spent.
        mu: What all messages cost a unit together.
        honest: How many honest parties share the noise; 1: the party adds all of it.
    """

    plan: RoundPlan
    mu: float
    honest: int = 1

    def __post_init__(self) -> None:
        checks.finite_positive("mu", self.mu)
        checks.at_least("honest", self.honest, 1)
        if self.honest > 1:
            for number in range(2):  # all rounds cost the same, and σ over the step depends on nothing else
                shared_noise.check_rounding(2 / self.share(number), self.honest, self.step(number, 1.0))

    def share(self, number: int) -> float:
        """The μ of one message."""
        return self.plan.mu(number, self.mu)

    def left(self, begun: Iterable[int]) -> float:
        """The μ of all messages that may still be made: those after the last that was begun."""
        first = max(begun, default=-1) + 1
        return math.hypot(*(self.share(number) for number in range(first, self.plan.rounds + 1)))

    def clip(self, record: float, *, residuals: bool) -> float:
        """The clip norm of what is summed. record: that of a record in the plan's directions."""
        return self.plan.clip * record if residuals else record

    def sigma(self, number: int, clip: float) -> float:
        """Of the noise that a party adds."""
        return gdp.sigma_of(2 * clip, self.share(number) * math.sqrt(self.honest))

    def step(self, number: int, clip: float) -> float:
        """Of the grid of a message: the same for all parties of a secure sum."""
        return math.ldexp(clip, -clipping.grid_bits(clip, self.sigma(number, clip)))

    def terms(self, number: int, clip: float, head: str | None, projection: str, classes: Sequence[str]) -> bytes:
        """SHA-256 of all that the parties of a secure sum must agree on, beside what its context names. head,
        projection: digests of their files."""
        whole = {
            "plan": self.plain(),
            "clip": clip,
            "sigma": self.sigma(number, clip),
            "step": self.step(number, clip),
            "shape": [len(classes), self.plan.directions + 1],
            "head": head,
            "projection": projection,
            "classes": list(classes),
        }
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).digest()

    def plain(self) -> dict[str, Any]:
        return {**self.plan.plain(), "mu": self.mu, "honest": self.honest}

    @classmethod
    def read(cls, item: Any, own_mu: float | None = None) -> SumsPlan:
        """From JSON that others wrote. own_mu: where it leaves μ to the party."""
        whole: Mapping[str, Any] = strict_json.mapping("plan", item)
        mu = own_mu if whole.get("mu") is None else strict_json.number("mu", whole["mu"])
        if mu is None:
            raise ArgumentError("mu is missing")
        rest = {name: value for name, value in whole.items() if name not in ("mu", "honest")}
        return cls(RoundPlan.read(rest), mu, strict_json.count("honest", whole.get("honest")))


def name_of(number: int) -> str:
    """Of the folder of a message, at the party and at the server.

    >>> name_of(7)
    'sums-07'
    """
    return f"sums-{number:02d}"
