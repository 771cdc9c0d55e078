"""Weights in rounds: FedAvg, FedProx, and DP-SGD."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mixveil.federated.methods.base import Method

if TYPE_CHECKING:
    from mixveil.core.types import Progress
    from mixveil.federated.jobs.asking import Parties
    from mixveil.federated.jobs.job import Job
    from mixveil.federated.jobs.job_config import JobConfig
    from mixveil.federated.jobs.messages import Message
    from mixveil.federated.jobs.rounds import RowsInClear
    from mixveil.federated.simulation.setup import Outcome, Simulation
    from mixveil.learn.training import Trained


class Averaging(Method):
    """Methods that average the parties' weights in rounds."""

    sends, heads, in_rounds = ("updates",), ("linear", "mlp"), True

    def passes(self, simulation: Simulation) -> int:
        return simulation.rounds.rounds * simulation.rounds.epochs

    def proximal(self, config: JobConfig) -> float | None:
        """FedProx's μ; None: there is no such term."""
        return None

    def answer_round(self, rows: RowsInClear, message: Message) -> tuple[int, int, dict[str, bytes]]:
        from mixveil.federated.jobs.rounds import trained_round

        return trained_round(rows, message)

    def learn(self, job: Job, parties: Parties) -> Trained:
        from mixveil.federated.jobs.rounds import learn_in_rounds

        return learn_in_rounds(job, parties, self.proximal(job.config))


class FedAvg(Averaging):
    name, title = "fedavg", "FedAvg"
    between_machines, compared = True, True

    def simulate(self, simulation: Simulation, mu: float, progress: Progress) -> Outcome:
        from mixveil.federated.simulation import round_methods

        return round_methods.fedavg(simulation, progress)


class FedProx(Averaging):
    name, title = "fedprox", "FedProx, the paper's setting"
    between_machines = True

    def proximal(self, config: JobConfig) -> float | None:
        return config.proximal

    def simulate(self, simulation: Simulation, mu: float, progress: Progress) -> Outcome:
        from mixveil.federated.simulation import round_methods

        return round_methods.fedprox(simulation, progress)


class FedProxTuned(Averaging):
    name, title = "fedprox-tuned", "FedProx, tuned"
    compared = True

    def simulate(self, simulation: Simulation, mu: float, progress: Progress) -> Outcome:
        from mixveil.federated.simulation import round_methods

        return round_methods.fedprox_tuned(simulation, progress)

    def passes(self, simulation: Simulation) -> int:
        from mixveil.federated.simulation import round_methods

        return super().passes(simulation) + round_methods.search_passes(simulation)


class DpSgd(Averaging):
    name, title = "dp-sgd", "DP-SGD in rounds"
    targets = ("mu",)

    def simulate(self, simulation: Simulation, mu: float, progress: Progress) -> Outcome:
        from mixveil.federated.simulation import round_methods

        return round_methods.dp_sgd(simulation, mu, progress)
