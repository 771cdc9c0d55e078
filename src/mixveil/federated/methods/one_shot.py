"""Trained once: on one release of records from every party, or on what such a method is measured against."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mixveil.federated.methods.base import Kind, Method

if TYPE_CHECKING:
    from mixveil.core.types import Progress
    from mixveil.federated.jobs.asking import Parties
    from mixveil.federated.jobs.job import Job
    from mixveil.federated.jobs.making import Making
    from mixveil.federated.simulation.setup import Outcome, Simulation
    from mixveil.learn.training import Trained


class TrainedOnce(Method):
    """Methods that train one model on as many rows as all parties have."""

    def passes(self, simulation: Simulation) -> int:
        return simulation.epochs_for(simulation.rows)


class OneShot(TrainedOnce):
    name, title = "one-shot", "one release of records"
    sends, targets, heads = ("records",), ("tau", "mu"), ("discriminant", "mlp")
    between_machines, projection, compared = True, "optional", True

    def simulate(self, simulation: Simulation, mu: float, progress: Progress) -> Outcome:
        from mixveil.federated.simulation import one_shot_methods

        return one_shot_methods.one_shot(simulation, progress)

    def make(self, making: Making, kind: Kind, projection: str | None) -> None:
        making.make_records(projection)

    def learn(self, job: Job, parties: Parties) -> Trained:
        from mixveil.federated.jobs.learning import from_records

        return from_records(job, parties, job.projection)


class Remixed(TrainedOnce):
    """As the paper's code trains: pairs, weights and noise are drawn again in every epoch."""

    name, title = "remixed", "re-mixed in every epoch"
    sends, targets = ("records",), ("tau",)

    def simulate(self, simulation: Simulation, mu: float, progress: Progress) -> Outcome:
        from mixveil.federated.simulation import one_shot_methods

        return one_shot_methods.remixed(simulation, progress)


class Local(Method):
    name, title, baseline = "local", "each party alone", True

    def simulate(self, simulation: Simulation, mu: float, progress: Progress) -> Outcome:
        from mixveil.federated.simulation import one_shot_methods

        return one_shot_methods.local_only(simulation, progress)

    def passes(self, simulation: Simulation) -> int:
        return simulation.epochs_for(simulation.rows // len(simulation.parties))


class PublicOnly(Method):
    name, title, baseline = "public", "the public rows alone", True

    def simulate(self, simulation: Simulation, mu: float, progress: Progress) -> Outcome:
        from mixveil.federated.simulation import one_shot_methods

        return one_shot_methods.public_alone(simulation, progress)


class Centralised(TrainedOnce):
    name, title, baseline = "centralised", "all rows in one place", True
    sends = ("originals",)

    def simulate(self, simulation: Simulation, mu: float, progress: Progress) -> Outcome:
        from mixveil.federated.simulation import one_shot_methods

        return one_shot_methods.centralised(simulation, progress)
