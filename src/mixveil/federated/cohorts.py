"""Federated averaging of many clients on images, of which a share trains in each round: FedAvg, FedProx, Fed-AugMix.

The clients of a round train side by side, each with weights of its own (`features/stacked`): what they compute is what
each of them would compute alone, at the speed of one. Draws follow from the seed and the number of the round, so that a
run that goes on from the weights of a round ends as if it had never stopped, up to rounding on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mixveil.core import checks
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError, TrainingError
from mixveil.core.local_training import AugMix
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Progress
from mixveil.features.stacked.network import Stacked
from mixveil.federated.cohort_rows import Schedule, Sizes, dealt, schedule
from mixveil.federated.cohort_steps import Clock, CohortSteps, Local, Pixels

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class CohortConfig:
    """A federation and how it trains.

    Attributes:
        epochs: That a client trains in a round, in batches of `batch` rows, by SGD at `rate`.
        proximal: μ of FedProx; None: FedAvg.
        augmix: Of Fed-AugMix; None: clients have no augmented views.
        compared: Whether views are compared with the images; else each step has a view in place of each image.
        clients, share: How many there are, and of them in a round.
        beta: Of the Dirichlet law by which classes are dealt; None: all clients alike. sizes: as `cohort_rows` has it.
        test_share: Of a client's rows, which it does not train on.
        centre, spread: The network sees images less this, divided by that: one of all channels, or one of each.
        every: Accuracy is measured after so many rounds, and after the last.
    """

    rounds: int
    epochs: int = 1
    batch: int = 32
    rate: float = 0.05
    momentum: float = 0.0
    proximal: float | None = None
    augmix: AugMix | None = None
    compared: bool = True
    clients: int = 100
    share: float = 0.1
    beta: float | None = 0.1
    sizes: Sizes = "drawn"
    test_share: float = 0.25
    centre: tuple[float, ...] = (0.0,)
    spread: tuple[float, ...] = (1.0,)
    every: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("rounds", "epochs", "batch", "clients", "every"):
            checks.at_least(name, getattr(self, name), 1)
        for value in (self.rate, *self.spread):
            checks.finite_positive("rate and spread", value)
        if not 0 <= self.momentum < 1:
            raise ArgumentError(f"momentum must lie in [0, 1), got {self.momentum:g}")
        if not 0 <= (self.proximal or 0.0) < float("inf"):
            raise ArgumentError(f"proximal must not be negative, got {self.proximal:g}")
        if not 0 < self.share <= 1:
            raise ArgumentError(f"share must lie in (0, 1], got {self.share:g}")
        if self.sizes not in ("drawn", "equal"):
            raise ArgumentError(f"sizes must be drawn or equal, got {self.sizes!r:.40}")
        SeededStream(self.seed)

    @property
    def cohort(self) -> int:
        """Clients of a round."""
        return max(1, round(self.share * self.clients))

    def stream(self, name: str) -> SeededStream:
        return SeededStream(self.seed).fork(name)


class Labelled(NamedTuple):
    """Images (n, c, h, w), uint8 or floats in [0, 1], and (n,) class numbers."""

    x: Tensor
    labels: Tensor


@dataclass(frozen=True)
class CohortResult:
    """What a run gives.

    Attributes:
        weights: Of the global model.
        curve: After rounds: accuracy of the global model on all clients' test rows together (`clients`), its mean over
            clients (`by client`), and on a test set beside them (`test`), where one is given.
        seconds: By part: `views` (AugMix), `steps`, `measuring`.
    """

    weights: Weights
    curve: tuple[Mapping[str, float], ...]
    seconds: Mapping[str, float]


class Cohorts:
    """A federation over the rows of x (n, c, h, w), on the device of x. net: with its first weights. test: rows beside
    those of the clients. graph: on a GPU, whether steps are recorded once and replayed."""

    def __init__(
        self,
        net: nn.Sequential,
        x: Tensor,
        labels: Tensor,
        classes: int,
        config: CohortConfig,
        *,
        test: Labelled | None = None,
        graph: bool = True,
    ) -> None:
        if len(x) != len(labels):
            raise ArgumentError(f"{len(x):,} images have {len(labels):,} labels")
        self.config, self.net = config, net.to(x.device)
        self.first = {name: value.detach().clone() for name, value in self.net.named_parameters()}
        self.clients = dealt(
            labels.cpu(),
            config.clients,
            beta=config.beta,
            test_share=config.test_share,
            sizes=config.sizes,
            stream=config.stream("clients"),
        )
        self.clock = Clock(x.device)
        scaled = classes, config.centre, config.spread
        self._pixels = Pixels(x, labels, *scaled)
        self._test = None if test is None else Pixels(test.x.to(x.device), test.labels, *scaled)
        on_gpu = x.device.type == "cuda"
        self._stream = torch.cuda.Stream(x.device) if on_gpu else None  # type: ignore[no-untyped-call]
        local = Local(config.rate, config.momentum, config.proximal, config.augmix, config.compared)
        longest = config.epochs * max(-(-len(client.train) // config.batch) for client in self.clients)
        with self._own():
            shapes, batch = Stacked(net), config.batch
            self._steps = CohortSteps(
                shapes, self._pixels, local, config.cohort, batch, longest, recorded=on_gpu and graph
            )

    def run(
        self,
        *,
        after: int = 0,
        weights: Weights | None = None,
        progress: Progress = lambda _: None,
        on_round: Callable[[int, Weights, Mapping[str, float]], None] = lambda *_: None,
    ) -> CohortResult:
        """All rounds. after, weights: go on behind that round, from its weights. progress: called after each round with
        the rows that were trained on. on_round: called with the number of the round, the weights, and what was
        measured, which may be nothing."""
        now, curve = (self.first if weights is None else weights), []
        if self._stream is not None:
            torch.cuda.synchronize(self._stream.device)  # what was made on another stream is there
        for number in range(after + 1, self.config.rounds + 1):
            plan = self.plan(number)
            now = self.round(number, now, plan)
            figures: dict[str, float] = {}
            if number % self.config.every == 0 or number == self.config.rounds:
                figures = self.measured(now)
                curve.append({"round": float(number), **figures})
            progress(self.config.epochs * int(plan.counts.sum()))
            on_round(number, now, figures)
        return CohortResult(now, tuple(curve), dict(self.clock.seconds))

    def plan(self, number: int) -> Schedule:
        """Who trains in a round, and on which rows in which order."""
        stream = self.config.stream(f"round {number}")
        sampled: list[int] = stream.permutation(self.config.clients)[: self.config.cohort].tolist()
        return schedule(self.clients, sampled, self.config.epochs, self.config.batch, stream.fork("order"))

    def round(self, number: int, weights: Weights, plan: Schedule) -> Weights:
        """The mean of what the clients of a schedule train, weighed by their rows."""
        trained = self._trained(number, weights, plan)
        with self._own():
            shares = (plan.counts.double() / plan.counts.sum()).to(self._pixels.device)
            return {name: torch.tensordot(shares, of.double(), 1).float() for name, of in trained.items()}

    def measured(self, weights: Weights) -> dict[str, float]:
        """The accuracy of a global model."""
        with self.clock("measuring"), self._own():
            if not all(bool(value.isfinite().all()) for value in weights.values()):
                raise TrainingError("the weights are no longer finite: try a smaller rate")
            tested = [client.test for client in self.clients]
            right = self._pixels.right(self.net, weights, torch.cat(tested))
            found = _accuracies([*torch.split(right, [len(rows) for rows in tested])])
            if self._test is not None:
                found["test"] = float(self._test.right(self.net, weights, torch.arange(len(self._test.x))).mean())
        return found

    def personal(self, weights: Weights) -> dict[str, float]:
        """Accuracy on each client's own test rows after it has trained the global model once more on its own rows: all
        rows together, and the mean over clients. It is what a client has who keeps its own copy."""
        right: list[Tensor] = []
        for first in range(0, self.config.clients, self.config.cohort):
            sampled = [*range(first, min(first + self.config.cohort, self.config.clients))]
            stream = self.config.stream(f"personal {first}").fork("order")
            plan = schedule(self.clients, sampled, self.config.epochs, self.config.batch, stream)
            trained = self._trained(self.config.rounds + 1 + first, weights, plan)
            for place, client in enumerate(plan.clients):
                own = {name: value[place] for name, value in trained.items()}
                with self._own():
                    right.append(self._pixels.right(self.net, own, self.clients[client].test))
        return _accuracies(right)

    def _trained(self, number: int, weights: Weights, plan: Schedule) -> Weights:
        draws = DeviceStream(self.config.stream("views"))
        draws.restart(number)
        with self._own():
            return self._steps.train(weights, plan, draws, self.clock)

    def _own(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)


def cohorts(
    net: nn.Sequential,
    x: Tensor,
    labels: Tensor,
    classes: int,
    config: CohortConfig,
    *,
    test: Labelled | None = None,
    graph: bool = True,
    progress: Progress = lambda _: None,
    on_round: Callable[[int, Weights, Mapping[str, float]], None] = lambda *_: None,
) -> CohortResult:
    """Train a federation over the rows of x: see `Cohorts`."""
    return Cohorts(net, x, labels, classes, config, test=test, graph=graph).run(progress=progress, on_round=on_round)


def _accuracies(right: list[Tensor]) -> dict[str, float]:
    """Of all clients' test rows together, and the mean over clients that have some."""
    some = [own for own in right if len(own)]
    if not some:
        return {}
    return {"clients": float(torch.cat(some).mean()), "by client": float(torch.stack([o.mean() for o in some]).mean())}
