"""How far representations lie apart, and the losses that adjust it: MixCon and UniCon (Li et al., 2020).

MixCon (Eq. 1) pulls the i-th samples of different classes together, but not onto one another:

    1/p · 1/(|C|(|C| − 1)) · Σ_{i ≤ p} Σ_{c₁ ≠ c₂} (dist + β/dist),   dist = ‖h(x_{i,c₁}) − h(x_{i,c₂})‖²

where x_{i,c} is the i-th sample of class c in the batch, C the classes that the batch has, and p the size of the
smallest of them. The printed sum also runs over c₁ = c₂, where dist = 0: those terms are left out. UniCon (App. D.1)
pulls the samples of one class together:

    1/|C| · Σ_c 1/(n_c(n_c − 1)) · Σ_{i, j ∈ c} ‖h(x_i) − h(x_j)‖²

All distances of a batch come from one product of matrices, and no shape depends on the labels: a step with these losses
can be recorded as a CUDA graph.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from mixveil.core.errors import ArgumentError

EPSILON = 1e-6
"""Distances in MixCon are clamped to [ε, 1/ε]."""

_BLOCK = 1024


def mixcon(h: Tensor, labels: Tensor, beta: float, *, normalised: bool = True, epsilon: float = EPSILON) -> Tensor:
    """MixCon's loss of representations h (m, …) with class numbers labels (m,): a scalar, 0 for fewer than two classes.

    normalised: representations are scaled to norm 1 first, as the paper does in practice.
    """
    same = labels[:, None] == labels
    rank = same.tril(-1).sum(1)  # (m,) the place of each sample within its class
    p, classes = same.sum(1).amin(), (rank == 0).sum()
    met = (rank[:, None] == rank) & ~same & (rank < p)
    distance = squared_distances(_scaled(h) if normalised else h).clamp(epsilon, 1 / epsilon)
    terms = distance if beta == 0 else distance + beta / distance
    return (terms * met).sum() / (p * classes * (classes - 1)).clamp(min=1)


def unicon(h: Tensor, labels: Tensor, *, normalised: bool = True) -> Tensor:
    """UniCon's loss of representations h (m, …) with class numbers labels (m,): a scalar. A class with one sample has
    no pairs, and adds nothing."""
    same = labels[:, None] == labels
    counts, classes = same.sum(1), (same.tril(-1).sum(1) == 0).sum()
    within = squared_distances(_scaled(h) if normalised else h) * same
    return (within / (counts * (counts - 1)).clamp(min=1)).sum() / classes


def squared_distances(h: Tensor) -> Tensor:
    """(m, m) ‖h_i − h_j‖² of (m, …). Their mean is subtracted first, so that representations which all lie close
    together, far from 0, do not lose their distances to rounding."""
    flat = h.flatten(1)
    flat = flat - flat.detach().mean(0)
    squares = flat.square().sum(1)
    return (squares[:, None] + squares - 2 * (flat @ flat.T)).clamp(min=0)


class Separability(NamedTuple):
    """How far representations lie apart (Definition 3.1), by Euclidean distance.

    Attributes:
        least: δ_h, the smallest distance of any two.
        most: Δ_H, the largest distance of two that are meant to be close: of different classes for MixCon, which pulls
            those together.
        mean: Of all pairs.
    """

    least: float
    most: float
    mean: float


def separability(h: Tensor, labels: Tensor, *, normalised: bool = True) -> Separability:
    """Of representations h (m, …) of m samples, at least two, with class numbers labels (m,). In float64; blocks of
    rows at a time, so that memory grows with m alone."""
    if len(h) < 2 or len(labels) != len(h):
        raise ArgumentError(f"separability needs two samples or more and their labels, got {len(h)} and {len(labels)}")
    flat = (_scaled(h.double()) if normalised else h.double()).flatten(1)
    flat = flat - flat.mean(0)
    least, most, total = torch.inf, 0.0, 0.0
    for start in range(0, len(flat), _BLOCK):
        rows = torch.arange(start, min(start + _BLOCK, len(flat)), device=flat.device)
        distance = torch.cdist(flat[rows], flat, compute_mode="donot_use_mm_for_euclid_dist")
        total += float(distance.sum())
        most = max(most, float((distance * (labels[rows][:, None] != labels)).max()))
        distance[torch.arange(len(rows)), rows] = torch.inf
        least = min(least, float(distance.min()))
    return Separability(least, most, total / (len(flat) * (len(flat) - 1)))


def _scaled(h: Tensor) -> Tensor:
    return normalize(h.flatten(1), dim=1)
