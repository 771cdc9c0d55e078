"""A method of learning together from outside: every party sends its class means, and rows go to the nearest one."""

from __future__ import annotations

import time

import torch

from mixveil.core.types import Progress
from mixveil.core.wording import sentences
from mixveil.core.wording.notes import note
from mixveil.federated.methods.base import Method
from mixveil.federated.simulation.setup import Outcome, Simulation, share_right

sentences.add({"means-in-the-clear": "no guarantee: class means leave without noise"})


class NearestMean(Method):
    name, title = "nearest-mean", "class means, averaged"
    sends = ("statistics",)

    def simulate(self, simulation: Simulation, mu: float, progress: Progress) -> Outcome:
        started = time.perf_counter()
        sums = torch.zeros(simulation.classes, simulation.test.shape[0])
        counts = torch.zeros(simulation.classes)
        for part, x in zip(simulation.parties, simulation.x, strict=True):
            sums.index_add_(0, part.labels, x.float())
            counts += part.labels.bincount(minlength=simulation.classes)
            progress(len(part))
        means = sums / counts[:, None]
        accuracy = share_right(lambda x: -torch.cdist(x, means), simulation.test_x, simulation.test.labels)
        sent = len(simulation.parties) * (sums.nbytes + counts.nbytes)
        seconds, messages = time.perf_counter() - started, 2 * len(simulation.parties)
        return Outcome(accuracy, sent, sent, messages, seconds, note("means-in-the-clear"))
