"""What methods are measured against: every party alone, public rows alone, all rows in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mixveil.federated.methods.base import Method

if TYPE_CHECKING:
    from mixveil.core.types import Progress
    from mixveil.federated.simulation.setup import Outcome, Simulation


class Local(Method):
    name, title = "local", "each party alone"

    def simulate(self, simulation: Simulation, mu: float, progress: Progress) -> Outcome:
        from mixveil.federated.simulation import one_shot_methods

        return one_shot_methods.local_only(simulation, progress)

    def passes(self, simulation: Simulation) -> int:
        from mixveil.federated.simulation import one_shot_methods

        return one_shot_methods.epochs_for(simulation, simulation.rows // len(simulation.parties))


class PublicOnly(Method):
    name, title = "public", "the public rows alone"

    def simulate(self, simulation: Simulation, mu: float, progress: Progress) -> Outcome:
        from mixveil.federated.simulation import one_shot_methods

        return one_shot_methods.public_alone(simulation, progress)


class Centralised(Method):
    name, title = "centralised", "all rows in one place"
    sends = ("originals",)

    def simulate(self, simulation: Simulation, mu: float, progress: Progress) -> Outcome:
        from mixveil.federated.simulation import one_shot_methods

        return one_shot_methods.centralised(simulation, progress)

    def passes(self, simulation: Simulation) -> int:
        from mixveil.federated.simulation import one_shot_methods

        return one_shot_methods.epochs_for(simulation, simulation.rows)
