"""What rows hold of images that the attacker has: the first step of Chen et al. 2020.

    x = |⟨w, p⟩ + u|,   N = E[x²(p pᵀ − I)] = 2 w wᵀ   for p normal, u the rest of the row

The leading direction of N, estimated over a row's values, is w. From there the likelihood of w is climbed by EM, as
each hidden sign is a coin whose odds w tells: E[sign] = tanh(x ⟨w, p⟩/Var u).
"""

from __future__ import annotations

import torch
from torch import Tensor

_POWERS = 12
_ROUNDS = 15


def coordinates(size: Tensor, known: Tensor) -> Tensor:
    """(m, p) the weights of known images (p, d) in rows whose signs are hidden; size: (m, d) absolute values. Weights
    sum to a number that is not negative: for each row as a whole, the sign cannot be told without it."""
    scale = known.square().mean().sqrt().clamp(min=1e-300)
    weight = leading_direction(size, known / scale) / scale
    return climbed(size, known, weight)


def leading_direction(size: Tensor, known: Tensor) -> Tensor:
    """(m, p) the direction of N̂ = mean over values of x²(p pᵀ − I), times the root of half its eigenvalue; found by
    powers of N̂, without writing it down. known: (p, d), with values of variance one. It starts at N̂'s diagonal, which
    is largest at the images of the row."""
    squares, values = size.square(), size.shape[1]
    mean = squares.mean(1, keepdim=True)
    found = (squares @ known.square().T / values - mean).clamp(min=0) + 1e-12
    length = torch.ones(len(size), 1, dtype=size.dtype)
    for _ in range(_POWERS):
        found = found / torch.linalg.vector_norm(found, dim=1, keepdim=True).clamp(min=1e-300)
        image = (squares * (found @ known)) @ known.T / values - mean * found
        length, found = (image * found).sum(1, keepdim=True), image
    found = found / torch.linalg.vector_norm(found, dim=1, keepdim=True).clamp(min=1e-300)
    found = found * (length.clamp(min=0) / 2).sqrt()
    return torch.where(found.sum(1, keepdim=True) < 0, -found, found)


def climbed(size: Tensor, known: Tensor, weight: Tensor) -> Tensor:
    """(m, p) weights of a likelihood that is no lower than that of the given ones, by EM. What of a row is not of known
    images is taken to be normal."""
    inverse = torch.linalg.pinv(known @ known.T)
    for _ in range(_ROUNDS):
        part = weight @ known
        signed = size * expected_signs(size, part, unknown_variance(size, part))
        weight = signed @ known.T @ inverse
    return weight


def unknown_variance(size: Tensor, part: Tensor) -> Tensor:
    """(m, 1) the variance of what a row holds beside its known part (m, d)."""
    total = size.square().mean(1, keepdim=True)
    return (total - part.square().mean(1, keepdim=True)).clamp(min=1e-9 * total.clamp(min=1e-300))


def expected_signs(size: Tensor, part: Tensor, variance: Tensor) -> Tensor:
    """(m, d) what each hidden sign is on average, given a row's known part."""
    return torch.tanh(size * part / variance)


def expected_rest(size: Tensor, part: Tensor, variance: Tensor) -> Tensor:
    """(m, d) what a row holds beside its known part, on average."""
    return size * expected_signs(size, part, variance) - part
