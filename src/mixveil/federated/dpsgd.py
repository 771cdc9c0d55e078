"""DP-SGD between parties: FedAvg whose steps add noise to clipped gradients, so that weights can be sent.

Formal guarantees
- Every record is drawn into a step with probability q, its gradient is clipped to norm C, and a step's sum gets noise
  N(0, (zC)² I). By Opacus's accountant all steps of all rounds together are (ε, δ)-DP for one record added or removed,
  its label with it, against whoever sees all weights that the party ever sends.
- A record replaced by another is one removed and one added: (2ε, (1 + e^ε) δ)-DP at most.

The head is linear. A record's gradient is then an outer product, and its norm the product of two: it is clipped without
being formed. The noise comes from a stream of ours, which Opacus's own optimiser would not take; a test holds the step
to that optimiser.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from mixveil import checks
from mixveil.errors import ArgumentError, MissingDependencyError
from mixveil.federated.algorithms import Rounds, Weights, average
from mixveil.keys import Stream
from mixveil.types import Progress

DELTA = 1e-5


@dataclass(frozen=True)
class Private:
    """epsilon, delta: of all rounds together; clip: of a record's gradient; rate: of learning, falling to zero; batch:
    records of a step, on average."""

    epsilon: float
    delta: float = DELTA
    clip: float = 1.0
    rate: float = 32.0
    batch: int = 256

    def __post_init__(self) -> None:
        checks.positive("epsilon", self.epsilon)
        checks.probability("delta", self.delta)
        checks.positive("clip", self.clip)
        checks.positive("rate", self.rate)
        checks.at_least("batch", self.batch, 1)


@dataclass(frozen=True)
class Party:
    """x: (n, d) rows; labels: (n,)."""

    x: Tensor
    labels: Tensor


def federated_dpsgd(
    parties: Sequence[Party],
    classes: int,
    settings: Private,
    rounds: Rounds,
    *,
    stream: Stream,
    progress: Progress = lambda _: None,
) -> Iterator[Weights]:
    """The server's weights after each round, from zero: weight (d, classes), bias (classes,)."""
    inputs = parties[0].x.shape[1]
    weights: Weights = {"weight": torch.zeros(inputs, classes), "bias": torch.zeros(classes)}
    drawn = [(stream.fork(f"rows {place}"), stream.fork(f"noise {place}")) for place in range(len(parties))]
    plans = [planned(len(party.x), settings, rounds) for party in parties]
    for number in range(rounds.rounds):
        sent = []
        rate = settings.rate * (1 + math.cos(math.pi * number / rounds.rounds)) / 2
        for party, streams, (share, steps, noise) in zip(parties, drawn, plans, strict=True):
            weight, bias = weights["weight"].clone(), weights["bias"].clone()
            for _ in range(steps):
                chosen = (streams[0].uniform(len(party.x)) < share).nonzero()[:, 0]
                slope, tilt = clipped_gradient(weight, bias, party.x[chosen], party.labels[chosen], settings.clip)
                for value, sum_ in ((weight, slope), (bias, tilt)):
                    sum_ += streams[1].normal(*sum_.shape).mul_(noise * settings.clip).float()
                    value -= rate / (share * len(party.x)) * sum_
            sent.append(({"weight": weight, "bias": bias}, len(party.x)))
            progress(rounds.epochs * len(party.x))
        weights = average(sent)
        yield weights


def planned(rows: int, settings: Private, rounds: Rounds) -> tuple[float, int, float]:
    """The share of records that a step draws, the steps of a round, and the noise over the clip norm."""
    share = min(1.0, settings.batch / rows)
    steps = max(1, round(rounds.epochs / share))
    return share, steps, noise_multiplier(settings.epsilon, settings.delta, share, steps * rounds.rounds)


def clipped_gradient(weight: Tensor, bias: Tensor, x: Tensor, labels: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """The sum over records of the cross-entropy's gradient, each clipped to norm `clip`. A record's is x ⊗ (p − y), and
    p − y for the bias: its norm is ‖p − y‖ √(‖x‖² + 1)."""
    x = x.float()
    wrong = torch.softmax(torch.addmm(bias, x, weight), dim=1)
    wrong[torch.arange(len(x)), labels] -= 1
    norm = torch.linalg.vector_norm(wrong, dim=1) * (x.square().sum(1) + 1).sqrt()
    wrong *= (clip / norm.clamp(min=1e-30)).clamp(max=1)[:, None]
    return x.T @ wrong, wrong.sum(0)


@lru_cache(maxsize=1024)
def noise_multiplier(epsilon: float, delta: float, share: float, steps: int) -> float:
    """The least noise over the clip norm that keeps so many steps at (ε, δ), by Opacus's accountant of privacy-loss
    variables."""
    try:
        from opacus.accountants.utils import get_noise_multiplier
    except ImportError:
        raise MissingDependencyError("DP-SGD is counted by Opacus: pip install 'mixveil[dp]'") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for a first guess where its cruder bounds are coarse
        try:
            found = get_noise_multiplier(
                target_epsilon=epsilon,
                target_delta=delta,
                sample_rate=share,
                steps=steps,
                accountant="prv",
            )
        except (ValueError, RuntimeError, MemoryError) as error:
            raise ArgumentError(f"ε = {epsilon:g} over {steps:,} steps cannot be counted: {error}") from None
    return float(found)
