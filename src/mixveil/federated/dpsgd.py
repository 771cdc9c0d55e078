"""DP-SGD between parties: FedAvg whose steps add noise to clipped gradients, so that weights can be sent.

Formal guarantees
- Every record is drawn into a step with probability q, its gradient is clipped to norm C, and a step's sum gets noise
  N(0, (zC)² I) and is rounded to a public grid. By Opacus's accountant all steps of all rounds together are (ε, δ)-DP
  for one record taken out, its label with it, against an attacker who sees all weights that the party ever sends.
  How many rows a party has is public: q, the steps and the mean over parties follow from it.
- Gradients are clipped in exact arithmetic, and added up in whole steps of the grid (`theory/clipping.py`). A step
  draws each record with exactly the probability q, given uniform bits.
- A record replaced by another is one taken out and one put in: (2ε, (1 + e^ε) δ)-DP at most.

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
from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError, MissingDependencyError
from mixveil.core.randomness import Stream
from mixveil.core.types import Progress
from mixveil.federated.algorithms import Rounds, Weights, average
from mixveil.theory import clipping, gdp

DELTA = 1e-5
_JITTER = 0.15  # how far noise may move a weight in a round
_FASTEST = 64.0
_MEANT = 100.0  # ε beyond which nothing is promised any more


@dataclass(frozen=True)
class Private:
    """epsilon, delta: of all rounds together; clip: of a record's gradient; rate: of learning, falling to zero (None:
    `rate_for` says it); batch: records of a step, on average."""

    epsilon: float
    delta: float = DELTA
    clip: float = 1.0
    rate: float | None = None
    batch: int = 256

    def __post_init__(self) -> None:
        checks.finite_positive("epsilon", self.epsilon)
        checks.probability("delta", self.delta)
        checks.finite_positive("clip", self.clip)
        if self.rate is not None:
            checks.finite_positive("rate", self.rate)
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
    parties = [Party(_finite(party.x), party.labels) for party in parties]
    largest = settings.rate or rate_for([len(party.x) for party in parties], settings, rounds)
    for number in range(rounds.rounds):
        sent = []
        rate = largest * (1 + math.cos(math.pi * number / rounds.rounds)) / 2
        for party, streams, plan in zip(parties, drawn, plans, strict=True):
            weight, bias = weights["weight"].clone(), weights["bias"].clone()
            for _ in range(plan.steps):
                chosen = (streams[0].uniform(len(party.x)) < plan.share).nonzero()[:, 0]
                exact = clipped_gradient(weight, bias, party.x[chosen], party.labels[chosen], settings.clip, plan.bits)
                step = _noisy(exact, settings.clip, plan, streams[1]).mul_(rate / (plan.share * len(party.x)))
                weight -= step[:-1]
                bias -= step[-1]
            sent.append(({"weight": weight, "bias": bias}, len(party.x)))
            progress(rounds.epochs * len(party.x))
        weights = average(sent)
        yield weights


def _finite(x: Tensor) -> Tensor:
    """Rows that hold what is no number count as rows of zeros: they must not show."""
    return torch.where(x.isfinite().all(1, keepdim=True), x, 0.0)


def _noisy(exact: Tensor, clip: float, plan: Plan, stream: Stream) -> Tensor:
    """With noise on the grid, as float32 values."""
    noise = stream.rounded_normals(*exact.shape, scale=math.ldexp(plan.noise, plan.bits))
    return exact.add(noise).double().mul_(math.ldexp(clip, -plan.bits)).float()


class Plan(NamedTuple):
    """share: of records that a step draws; steps: of a round; noise: over the clip norm, which is 2ᵇⁱᵗˢ steps."""

    share: float
    steps: int
    noise: float

    @property
    def bits(self) -> int:
        return clipping.grid_bits(1.0, self.noise)


def planned(rows: int, settings: Private, rounds: Rounds) -> Plan:
    """Of a party of so many rows."""
    clipping.check_units(rows)
    share = math.floor(min(1.0, settings.batch / rows) * 2**53) / 2**53  # a uniform has 53 bits
    steps = max(1, round(rounds.epochs / share))
    noise = noise_multiplier(settings.epsilon, settings.delta, share, steps * rounds.rounds)
    return Plan(share, steps, noise * (1 + gdp.MARGIN))


def rate_for(rows: Sequence[int], settings: Private, rounds: Rounds) -> float:
    """The rate at which a round's noise, averaged over parties, moves a weight by a small step, for features of norm
    about one: from sizes and the guarantee alone, which are public."""
    total, variance = sum(rows), 0.0
    for count in rows:
        share, steps, noise = planned(count, settings, rounds)
        variance += steps * (noise * settings.clip / (share * count) * count / total) ** 2
    return min(_FASTEST, _JITTER / math.sqrt(variance))


def clipped_gradient(weight: Tensor, bias: Tensor, x: Tensor, labels: Tensor, clip: float, bits: int) -> Tensor:
    """(d + 1, classes) int64, in steps of clip·2⁻ᵇⁱᵗˢ: the sum over records of the cross-entropy's gradient, each
    clipped to norm `clip`. A record's is x ⊗ (p − y), and p − y for the bias, in the last row."""
    x = x.double()
    wrong = torch.softmax(clipping.scores(x, weight.double()).add_(bias), dim=1)
    wrong[torch.arange(len(x)), labels] -= 1
    x = torch.cat([x, torch.ones(len(x), 1, dtype=torch.float64)], dim=1)
    lengths, directions = clipping.gradients(wrong, x, clip, bits)
    return clipping.exact_product(directions, lengths, bits)


@lru_cache(maxsize=1024)
def noise_multiplier(epsilon: float, delta: float, share: float, steps: int) -> float:
    """The least noise over the clip norm that keeps so many steps at (ε, δ), by Opacus's accountant of privacy-loss
    variables."""
    check_opacus()
    from opacus.accountants.utils import get_noise_multiplier

    if epsilon > _MEANT:
        raise ArgumentError(f"ε = {epsilon:g} promises nothing: DP-SGD is counted up to ε = {_MEANT:g}")
    if share == 1:  # Gaussian noise on everything: what it costs is known exactly
        return math.sqrt(steps) / _mu_of(epsilon, delta)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for a first guess where its cruder bounds are coarse
        try:
            found = get_noise_multiplier(
                target_epsilon=epsilon,
                target_delta=delta,
                sample_rate=share,
                steps=steps,
                accountant="prv",
                epsilon_tolerance=0.01 * epsilon,
            )
        except (ValueError, RuntimeError, MemoryError) as error:
            raise ArgumentError(f"ε = {epsilon:g} over {steps:,} steps cannot be counted: {error}") from None
    return float(found)


def _mu_of(epsilon: float, delta: float) -> float:
    """The largest μ that is (ε, δ)-DP, by bisection."""
    low, high = 0.0, 2 * math.sqrt(epsilon) + epsilon + 10
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if gdp.delta(middle, epsilon) <= delta else (low, middle)
    return low


def check_opacus() -> None:
    try:
        import opacus.accountants.utils  # noqa: F401
    except ImportError:
        raise MissingDependencyError("DP-SGD is counted by Opacus: pip install 'mixveil[dp]'") from None
