"""Randomised response: a label is said as it is with probability e^ε/(e^ε + k − 1), else any other of the k classes.

Whatever is done with the said label, it is ε-differentially private: no class explains what is seen e^ε times as well
as another. What labels cost in learning is known exactly, so that a head can count it in.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError

SMALLEST_EPSILON, LARGEST_EPSILON = 1e-3, 30.0
"""Below, labels say nothing that could be learned; beyond, not one of 10¹² would move."""


def keep_probability(epsilon: float, classes: int) -> float:
    """How often a label is said as it is.

    >>> round(keep_probability(1.0, 10), 4)
    0.232
    """
    checks.at_least("classes", classes, 2)
    if not SMALLEST_EPSILON <= checks.finite_positive("label epsilon", epsilon) <= LARGEST_EPSILON:
        raise ArgumentError(
            f"label epsilon must be between {SMALLEST_EPSILON:g} and {LARGEST_EPSILON:g}, got {epsilon:g}; leave it "
            f"out to show the labels"
        )
    return math.exp(epsilon) / (math.exp(epsilon) + classes - 1)


def channel(epsilon: float, classes: int) -> Tensor:
    """(classes, classes) float64: how often class b (column) is said to be class c (row)."""
    keep = keep_probability(epsilon, classes)
    found = torch.full((classes, classes), (1 - keep) / (classes - 1), dtype=torch.float64)
    return found.fill_diagonal_(keep)


def true_shares(said: Tensor, epsilon: float) -> Tensor:
    """(classes,) the shares of the true classes, from how many records are said to be of each: unmixed, then drawn
    towards equal shares by as much of their differences as the randomising explains (James and Stein). By that much no
    class is taken for missing either."""
    n, classes = float(said.sum()), len(said)
    found: Tensor = torch.linalg.solve(channel(epsilon, classes), said.double() / n)
    keep = keep_probability(epsilon, classes)
    other = (1 - keep) / (classes - 1)
    chance = (keep * (1 - keep) + (classes - 1) * other * (1 - other)) / n / (keep - other) ** 2
    apart = found - 1 / classes
    found = 1 / classes + apart * max(0.0, 1 - chance / max(float(apart.square().sum()), 1e-300))
    found = found.clamp(min=0.5 * min(1 / classes, math.sqrt(chance / classes)))
    return found / found.sum()


def posterior(said: Tensor, epsilon: float) -> Tensor:
    """(classes, classes) float64: of the records said to be of class c (row), the share that is of class b (column).
    said: (classes,) how many are said to be of each class. A class that nobody says has its own column only."""
    joint = channel(epsilon, len(said)) * true_shares(said, epsilon)
    total = joint.sum(1, keepdim=True)
    found: Tensor = torch.where(total > 0, joint / total.clamp(min=1e-300), torch.eye(len(said), dtype=torch.float64))
    return found
