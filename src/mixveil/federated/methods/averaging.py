"""Weights in rounds: FedAvg, FedProx, both with Fed-AugMix, and DP-SGD."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from mixveil.federated.methods.base import Method

if TYPE_CHECKING:
    from mixveil.core.local_training import AugMix
    from mixveil.core.types import Progress
    from mixveil.federated.jobs.asking import Parties
    from mixveil.federated.jobs.job import Job
    from mixveil.federated.jobs.job_config import JobConfig
    from mixveil.federated.jobs.last_update import Update
    from mixveil.federated.jobs.messages import Message
    from mixveil.federated.jobs.rounds import RowsInClear
    from mixveil.federated.simulation.setup import Outcome, Simulation
    from mixveil.learn.training import Trained


class Averaging(Method):
    """Methods that average the parties' weights in rounds.

    Attributes:
        augmented: Whether parties compare views of their images, as Fed-AugMix has it.
    """

    sends, heads, in_rounds = ("updates",), ("linear", "mlp", "lenet5", "convnet"), True
    augmented: ClassVar[bool] = False

    def passes(self, simulation: Simulation) -> int:
        return simulation.rounds.rounds * simulation.rounds.epochs

    def proximal(self, config: JobConfig) -> float | None:
        """FedProx's μ; None: there is no such term."""
        return None

    def augmix(self, severity: float) -> AugMix | None:
        """Fed-AugMix's settings; None: the loss is the cross-entropy alone."""
        from mixveil.core.local_training import AugMix

        return AugMix(severity) if self.augmented else None

    def answer_round(self, rows: RowsInClear, message: Message) -> tuple[int, int, dict[str, bytes]]:
        from mixveil.federated.jobs.round_order import RoundOrder

        order = RoundOrder.read(message.about, augmented=self.augmented)
        return order.epochs.stop, order.recipe.epochs, {"weights": order.trained(rows, message.files["weights"])}

    def sent_update(self, rows: RowsInClear, message: Message, files: dict[str, bytes]) -> Update:
        from mixveil.federated.jobs.last_update import update_of
        from mixveil.federated.jobs.round_order import RoundOrder

        order = RoundOrder.read(message.about, augmented=self.augmented)
        return update_of(rows, order, message.files["weights"], files["weights"])

    def learn(self, job: Job, parties: Parties) -> Trained:
        from mixveil.federated.jobs.rounds import learn_in_rounds

        return learn_in_rounds(job, parties, self.proximal(job.config), self.augmix(job.config.severity))


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


class FedAugMix(FedAvg):
    name, title = "fed-augmix", "FedAvg with Fed-AugMix"
    augmented, needs_images, compared = True, True, False

    def simulate(self, simulation: Simulation, mu: float, progress: Progress) -> Outcome:
        from mixveil.federated.simulation import round_methods

        return round_methods.fedavg(simulation, progress, self.augmix(simulation.severity))


class FedProxAugMix(FedProx):
    name, title = "fedprox-augmix", "FedProx with Fed-AugMix"
    augmented, needs_images = True, True

    def simulate(self, simulation: Simulation, mu: float, progress: Progress) -> Outcome:
        from mixveil.federated.simulation import round_methods

        return round_methods.fedprox(simulation, progress, self.augmix(simulation.severity))


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
