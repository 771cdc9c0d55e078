"""How much rows share, from the values that hidden signs leave: the Gram matrix of Chen et al. 2020.

For normal u and v with mean zero, variance one and correlation ρ,

    E|u v| = (2/π)(√(1 − ρ²) + ρ arcsin ρ),   Corr(u², v²) = ρ².

Both grow with ρ² alone. Squares are the better measure of small correlations and sizes of large ones: at ρ² above 0.1
squares scatter more (measured). Weights of images are not negative, so that ρ ≥ 0.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_FROM_SIZES = 0.1  # ρ² from which sizes alone are used; below, less and less
_STEPS = 8  # of Newton's method: float64 is reached in six


def folded_correlation(rho: Tensor) -> Tensor:
    """Corr(|u|, |v|) of normal u and v with mean zero and this correlation."""
    rho = rho.clamp(-1, 1)
    return ((1 - rho * rho).sqrt() + rho * rho.asin() - 1) / (math.pi / 2 - 1)


def unfolded(correlation: Tensor) -> Tensor:
    """ρ ≥ 0, the inverse of `folded_correlation`; 0 where a sample's correlation is negative."""
    wanted = correlation.clamp(0, 1)
    rho = wanted.sqrt()
    for _ in range(_STEPS):
        slope = rho.asin() / (math.pi / 2 - 1)
        step = (folded_correlation(rho) - wanted) / slope.clamp(min=1e-300)
        rho = torch.where(wanted > 0, (rho - step).clamp(0, 1), 0.0)
    return rho


def correlations(x: Tensor) -> Tensor:
    """(m, m) of rows (m, d), each without its mean."""
    centred = x - x.mean(1, keepdim=True)
    centred /= torch.linalg.vector_norm(centred, dim=1, keepdim=True).clamp(min=1e-300)
    return (centred @ centred.T).clamp(-1, 1)


def squared_correlations(size: Tensor) -> Tensor:
    """(m, m) estimates of ρ² between rows whose signs are hidden. size: (m, d) absolute values. With d values the
    deviation of an estimate is about 1/√d where ρ is small, and nowhere above 1.25/√d; it may come out negative."""
    squares = correlations(size.square())
    share = (squares / _FROM_SIZES).clamp(0, 1)
    return share * unfolded(correlations(size)).square() + (1 - share) * squares
