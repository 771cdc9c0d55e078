"""Rounds of sums: noisy class sums, then noisy residual sums of a head that every round improves. Sums alone leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mixveil.federated.methods.two_step import Certified

if TYPE_CHECKING:
    from mixveil.federated.jobs.asking import Parties
    from mixveil.federated.jobs.job import Job
    from mixveil.learn.training import Trained


class RoundsOfSums(Certified):
    name, title, protocol = "rounds", "rounds of sums", "rounds"
    sends, heads = ("sums",), ("linear",)
    between_machines, projection, needs_settings, compared = True, "required", True, True

    def learn(self, job: Job, parties: Parties) -> Trained:
        from mixveil.federated.jobs.sums_server import learn_from_sums

        return learn_from_sums(job, parties)


class RoundsOfSecureSums(Certified):
    """The server sees the sum over the parties alone, and the parties share the noise."""

    name, title, protocol = "rounds-secure", "rounds of secure sums", "rounds-secure"
    sends, heads = ("sums",), ("linear",)
    between_machines, projection, needs_settings, compared, secure = True, "required", True, True, True

    def learn(self, job: Job, parties: Parties) -> Trained:
        from mixveil.federated.jobs.secure_server import learn_from_secure_sums

        return learn_from_secure_sums(job, parties)
