"""Settings of rounds of sums, as a projection carries them: found on public tasks (`learn.public_tasks`), by the noise
that a job has. They are public, and cost accuracy if they are bad; no guarantee depends on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from mixveil.core import checks, strict_json
from mixveil.core.errors import ArgumentError

MOST_ROUNDS = 256
TEN = 10
"""Classes for which levels of noise are stated."""


@dataclass(frozen=True)
class RoundPlan:
    """What a party agrees to once, for a whole job: how its μ is spent.

    Attributes:
        directions: How many of the projection's directions are used.
        rounds: Residual sums that are sent after the class sums.
        share: Of μ² that the class sums cost; the rounds share the rest alike.
        clip: The largest norm of a unit's residuals, over the clip norm of a record.
    """

    directions: int
    rounds: int
    share: float
    clip: float

    def __post_init__(self) -> None:
        checks.at_least("directions", self.directions, 1)
        checks.at_least("rounds", self.rounds, 1)
        if self.rounds > MOST_ROUNDS:
            raise ArgumentError(f"rounds must be at most {MOST_ROUNDS}, got {self.rounds}")
        if not 0 < self.share < 1:
            raise ArgumentError(f"share must be in (0, 1), got {self.share}")
        if not 1e-6 <= self.clip <= 1e3:
            raise ArgumentError(f"clip must be between 1e-6 and 1000, got {self.clip}")

    def mu(self, message: int, total: float) -> float:
        """What one message may cost of a total μ: the class sums are message 0, then come the rounds.

        >>> plan = RoundPlan(8, 4, 0.2, 0.1)
        >>> round(math.hypot(*(plan.mu(message, 2.0) for message in range(5))), 12)
        2.0
        """
        if not 0 <= message <= self.rounds:
            raise ArgumentError(f"message must be from 0 to {self.rounds}, got {message}")
        return total * math.sqrt(self.share if message == 0 else (1 - self.share) / self.rounds)

    def plain(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(RoundPlan)}

    @classmethod
    def read(cls, item: Any) -> RoundPlan:
        """From JSON that others wrote."""
        stated = strict_json.mapping("plan", item)
        strict_json.only("plan", stated, {field.name for field in fields(RoundPlan)})
        with strict_json.within("plan"):
            return RoundPlan(**_numbers(stated))


@dataclass(frozen=True)
class RoundSettings(RoundPlan):
    """A plan and how the server learns by it.

    Attributes:
        noise: Of a job, for which these were found, as `noise_of` has it.
        rate: Of learning: how far a step goes if all units agree.
        momentum: The share of a step that the next one goes on with.
        temperature: Of the first head, which the class means make.
        accuracy: On public tasks.
    """

    noise: float
    rate: float
    momentum: float
    temperature: float
    accuracy: float

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("noise", "rate", "temperature"):
            checks.finite_positive(name, getattr(self, name))
        if not 0 <= self.momentum < 1 or not 0 <= self.accuracy <= 1:
            raise ArgumentError(f"momentum and accuracy must be in [0, 1), got {self.momentum} and {self.accuracy}")

    @property
    def plan(self) -> RoundPlan:
        return RoundPlan(self.directions, self.rounds, self.share, self.clip)

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, item: Any) -> RoundSettings:
        stated = strict_json.mapping("rounds", item)
        strict_json.only("rounds", stated, {field.name for field in fields(RoundSettings)})
        with strict_json.within("rounds"):
            return RoundSettings(**_numbers(stated))


def noise_of(*, units: int, classes: int, mu: float, parties: int, honest: int = 1) -> float:
    """How noisy the sums of a job are, over its units: √(P/h) / (n μ) for ten classes. A class has n/C units, and the
    noise of its sums is the same whatever C is: the figure grows with C."""
    checks.at_least("units", units, 1)
    checks.at_least("classes", classes, 1)
    checks.at_least("parties", parties, 1)
    checks.at_least("honest", honest, 1)
    each = units * TEN / classes
    return math.sqrt(max(1.0, parties / honest)) / (each * checks.finite_positive("mu", mu))


def nearest(table: Sequence[RoundSettings], noise: float) -> RoundSettings:
    """The settings that were found for the noise next to this one."""
    if not table:
        raise ArgumentError(
            "the projection has no settings for rounds: fit it on labelled public data of several classes"
        )
    return min(table, key=lambda settings: abs(math.log(settings.noise / noise)))


def _numbers(stated: Any) -> dict[str, Any]:
    whole = {"directions", "rounds"}
    return {
        name: strict_json.count(name, value) if name in whole else strict_json.number(name, value)
        for name, value in stated.items()
    }
