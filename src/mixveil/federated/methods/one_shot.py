"""One release of records from every party; and, in simulations, one in every epoch."""

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


class OneShot(Method):
    name, title = "one-shot", "one release of records"
    sends, targets, heads = ("records",), ("tau", "mu"), ("discriminant", "mlp")
    between_machines, projection, compared = True, "optional", True

    def simulate(self, simulation: Simulation, mu: float, progress: Progress) -> Outcome:
        from mixveil.federated.simulation import one_shot_methods

        return one_shot_methods.one_shot(simulation, progress)

    def passes(self, simulation: Simulation) -> int:
        from mixveil.federated.simulation import one_shot_methods

        return one_shot_methods.epochs_for(simulation, simulation.rows)

    def make(self, making: Making, kind: Kind, projection: str | None) -> None:
        making.make_records(projection)

    def learn(self, job: Job, parties: Parties) -> Trained:
        from mixveil.federated.jobs.learning import from_records

        return from_records(job, parties, job.projection)


class Remixed(Method):
    """As the paper's code trains: pairs, weights and noise are drawn again in every epoch."""

    name, title = "remixed", "re-mixed in every epoch"
    sends, targets = ("records",), ("tau",)

    def simulate(self, simulation: Simulation, mu: float, progress: Progress) -> Outcome:
        from mixveil.federated.simulation import one_shot_methods

        return one_shot_methods.remixed(simulation, progress)

    def passes(self, simulation: Simulation) -> int:
        from mixveil.federated.simulation import one_shot_methods

        return one_shot_methods.epochs_for(simulation, simulation.rows)
