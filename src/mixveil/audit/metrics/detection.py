"""How well scores tell members from others: ROC, AUC, TPR at a FPR, and exact intervals for a share."""

from __future__ import annotations

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


def auc_interval(auc: float, trials: int) -> tuple[float, float]:
    """95 % for an AUC, however the scores are distributed: it varies no more than a share of so many trials, as many as
    there are members or others, whichever are fewer (Birnbaum and Klose 1957).

    >>> [round(bound, 2) for bound in auc_interval(0.6, 100)]
    [0.5, 0.7]
    """
    return clopper_pearson(round(auc * trials), trials)


def tpr_at_fpr(members: Tensor, others: Tensor, fpr: float) -> float:
    """The largest share of members flagged by a threshold that flags at most that share of the others."""
    curve = roc(members, others)
    return float(curve.tpr[curve.fpr <= fpr].max())


def clopper_pearson(hits: float, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact interval for a share, from `hits` in `trials`. Hits that are expected need not be whole.

    >>> [round(bound, 4) for bound in clopper_pearson(0, 10)]
    [0.0, 0.3085]
    """
    checks.probability("confidence", confidence)
    if not 0 <= hits <= trials or trials == 0:
        raise ArgumentError(f"hits must be in 0…trials, got {hits} of {trials}")
    from scipy.stats import beta

    tail = (1 - confidence) / 2
    low = 0.0 if hits == 0 else float(beta.ppf(tail, hits, trials - hits + 1))
    high = 1.0 if hits == trials else float(beta.ppf(1 - tail, hits + 1, trials - hits))
    return low, high
