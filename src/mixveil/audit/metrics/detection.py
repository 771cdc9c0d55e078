"""How well scores tell members from others: ROC, AUC, TPR at a FPR, and exact intervals for a share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError


class Roc(NamedTuple):
    """False- and true-positive rates of every threshold, from none flagged (0, 0) to all flagged (1, 1)."""

    fpr: Tensor
    tpr: Tensor


def roc(members: Tensor, others: Tensor) -> Roc:
    """The rates of flagging every score above a threshold, for each threshold that makes a difference."""
    if len(members) == 0 or len(others) == 0:
        raise ArgumentError(f"a ROC needs members and others, got {len(members)} and {len(others)}")
    scores = torch.cat([members, others]).double()
    is_member = torch.cat([torch.ones(len(members)), torch.zeros(len(others))]).double()
    order = scores.argsort(descending=True)
    scores, is_member = scores[order], is_member[order]
    last = torch.cat([scores[1:] != scores[:-1], torch.tensor([True])])  # equal scores are flagged together
    zero = torch.zeros(1, dtype=torch.float64)
    tpr = torch.cat([zero, is_member.cumsum(0)[last] / len(members)])
    fpr = torch.cat([zero, (1 - is_member).cumsum(0)[last] / len(others)])
    return Roc(fpr, tpr)


def auc(members: Tensor, others: Tensor) -> float:
    """The chance that a member scores above another, ties counting half.

    >>> import torch
    >>> auc(torch.tensor([3.0, 1.0]), torch.tensor([2.0, 0.0]))
    0.75
    """
    curve = roc(members, others)
    return float(torch.trapezoid(curve.tpr, curve.fpr))


def tpr_at_fpr(members: Tensor, others: Tensor, fpr: float) -> float:
    """The largest share of members flagged by a threshold that flags at most that share of the others."""
    curve = roc(members, others)
    return float(curve.tpr[curve.fpr <= fpr].max())


def clopper_pearson(hits: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact interval for a share of which `hits` of `trials` were seen.

    >>> [round(bound, 4) for bound in clopper_pearson(0, 10)]
    [0.0, 0.3085]
    """
    checks.probability("confidence", confidence)
    if not 0 <= hits <= trials or trials == 0:
        raise ArgumentError(f"hits must be in 0…trials, got {hits} of {trials}")
    tail = (1 - confidence) / 2
    low = 0.0 if hits == 0 else _solve(lambda p: 1 - _binomial_cdf(hits - 1, trials, p), tail)
    high = 1.0 if hits == trials else 1 - _solve(lambda q: 1 - _binomial_cdf(trials - hits - 1, trials, q), tail)
    return low, high


def _solve(tail: Callable[[float], float], wanted: float) -> float:
    """Where a tail that grows from 0 to 1 on [0, 1] reaches a value, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle) < wanted else (low, middle)
    return (low + high) / 2


def _binomial_cdf(k: int, n: int, p: float) -> float:
    """P(Binomial(n, p) ≤ k), summed in logarithms."""
    if p <= 0 or p >= 1:
        return 1.0 if p <= 0 or k >= n else 0.0
    i = torch.arange(k + 1, dtype=torch.float64)
    whole = torch.tensor(float(n + 1), dtype=torch.float64).lgamma()
    logs = whole - (i + 1).lgamma() - (n - i + 1).lgamma() + i * math.log(p) + (n - i) * math.log1p(-p)
    return float(torch.logsumexp(logs, 0).exp())
