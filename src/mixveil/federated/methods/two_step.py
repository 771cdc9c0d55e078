"""Certified methods: noisy class sums, and records or sums again in the directions that they show."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from mixveil.core.wording.notes import Note, note
from mixveil.federated.methods.base import Kind, Method

if TYPE_CHECKING:
    from mixveil.core.types import Progress
    from mixveil.federated.jobs.asking import Parties
    from mixveil.federated.jobs.job import Job
    from mixveil.federated.jobs.making import Making
    from mixveil.federated.simulation.setup import Outcome, Simulation
    from mixveil.learn.protocol import Protocol
    from mixveil.learn.training import Trained


class Certified(Method):
    """Methods of `learn.protocol`. A simulation runs the protocol of that name."""

    protocol: ClassVar[Protocol]
    targets = ("mu",)

    def promise(self, mu: float, parties: int) -> Note:
        """What a simulation says that it promises. Where noise is shared, all parties share it."""
        from mixveil.theory import gdp

        figures = {"mu": mu, "epsilon": gdp.epsilon(mu)}
        if self.secure:
            return note("mu-labels-covered-shared", **figures, parties=parties, alone=mu * math.sqrt(parties))
        return note("mu-labels-covered" if self.covers_labels else "mu-labels-by-row", **figures)

    def simulate(self, simulation: Simulation, mu: float, progress: Progress) -> Outcome:
        from mixveil.federated.simulation import one_shot_methods

        promised = self.promise(mu, len(simulation.parties))
        return one_shot_methods.certified(simulation, self.protocol, mu, progress, promised)


class TwoStep(Certified):
    name, title, protocol = "two-step", "two steps, mixed records", "two-step"
    sends, heads = ("statistics", "records"), ("discriminant", "mlp")
    between_machines, projection, compared = True, "required", True

    def make(self, making: Making, kind: Kind, projection: str | None) -> None:
        if kind == "statistics":
            making.make_statistics(projection)
        else:
            making.check_own_statistics(projection)
            making.make_records(projection)

    def learn(self, job: Job, parties: Parties) -> Trained:
        from mixveil.federated.jobs.learning import find_directions, from_records

        return from_records(job, parties, find_directions(job, parties))


class TwoStepGaussian(Certified):
    name, title, protocol = "two-step-gaussian", "two steps, plain records", "two-step-gaussian"
    sends = ("statistics", "records")


class Sums(Certified):
    name, title, protocol = "sums", "class sums at full μ", "sums"
    sends, compared = ("statistics",), True


class SumsTwice(Certified):
    name, title, protocol = "sums-twice", "class sums twice", "sums-twice"
    sends = ("statistics", "statistics")


class Moments(Certified):
    name, title, protocol = "moments", "class sums and second moments", "moments"
    sends = ("statistics",)
