"""Randomised response: a label is reported as it is with probability e^ε/(e^ε + k − 1), else as another of k classes.

The true label is ε-differentially private, however the reported label is used: no class explains it more than e^ε times
as well as another. How often labels move is known exactly, so that a trained head can take it into account.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError

SMALLEST_EPSILON, LARGEST_EPSILON = 1e-3, 30.0
"""Below the range labels teach nothing; beyond it not one of 10¹² would move."""


def keep_probability(epsilon: float, classes: int) -> float:
    """How often a label is reported as it is.

    >>> round(keep_probability(1.0, 10), 4)
    0.232
    """
    checks.at_least("classes", classes, 2)
    if not SMALLEST_EPSILON <= checks.finite_positive("label_epsilon", epsilon) <= LARGEST_EPSILON:
        raise ArgumentError(
            f"label_epsilon must be between {SMALLEST_EPSILON:g} and {LARGEST_EPSILON:g}, got {epsilon:g}; leave it "
            f"out to show the labels"
        )
    return math.exp(epsilon) / (math.exp(epsilon) + classes - 1)


def channel(epsilon: float, classes: int) -> Tensor:
    """(classes, classes) float64: how often class b (column) is reported as class c (row)."""
    keep = keep_probability(epsilon, classes)
    found = torch.full((classes, classes), (1 - keep) / (classes - 1), dtype=torch.float64)
    return found.fill_diagonal_(keep)


def true_shares(reported: Tensor, epsilon: float) -> Tensor:
    """(classes,) the shares of the true classes. reported: (classes,) how many records are reported as each class.

    The reported shares are unmixed, then drawn towards equal shares by as much of their differences as the randomising
    explains (James and Stein). No class gets the share zero.
    """
    n, classes = float(reported.sum()), len(reported)
    shares: Tensor = torch.linalg.solve(channel(epsilon, classes), reported.double() / n)
    keep = keep_probability(epsilon, classes)
    other = (1 - keep) / (classes - 1)
    chance = (keep * (1 - keep) + (classes - 1) * other * (1 - other)) / n / (keep - other) ** 2
    differences = shares - 1 / classes
    shares = 1 / classes + differences * max(0.0, 1 - chance / max(float(differences.square().sum()), 1e-300))
    shares = shares.clamp(min=0.5 * min(1 / classes, math.sqrt(chance / classes)))
    return shares / shares.sum()


def posterior(reported: Tensor, epsilon: float) -> Tensor:
    """(classes, classes) float64: of the records reported as class c (row), the share that is of class b (column).

    reported: (classes,) how many records are reported as each class. A class without reports stands for itself.
    """
    joint = channel(epsilon, len(reported)) * true_shares(reported, epsilon)
    total = joint.sum(1, keepdim=True)
    found: Tensor = torch.where(
        total > 0, joint / total.clamp(min=1e-300), torch.eye(len(reported), dtype=torch.float64)
    )
    return found
