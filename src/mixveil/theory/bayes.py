"""The Bayes risk of the best linear attacker, who knows the second moments of the records.

The attacker of Theorem 1 knows nothing of what images look like, so its numbers grow without bound. Here the attacker
knows the mean and covariance of the records, the weights and the pairing. In the eigenbasis of the covariance the
directions decouple; with prior variance λ in one of them, and ρ = w₁/w₂, the records of a cycle have posterior
covariance σ²A⁻¹, where A is the cyclic tridiagonal matrix

    A_tt = ρ_t² + 1 + σ²/λ,   A_t,t+1 = ρ_t.

For Gaussian records this is the least squared error of any attacker, linear or not.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.theory.minimax import cycles


def single_row_risk(eigenvalues: Tensor, weight: Tensor, sigma: float) -> Tensor:
    """(n, k) squared error in each direction for an attacker who uses only the row of the record itself.

    x̂ = w₁λ/((w₁² + w₂²)λ + w₂²σ²) · x̃, so what is left is λ minus w₁λ times that gain.
    """
    own, other = weight.double().square().T[:, :, None]
    signal = eigenvalues.double()[None]
    observed = (own + other) * signal + other * sigma**2
    return signal - torch.where(observed > 0, own * signal**2 / observed, signal)


def whole_release_risk(eigenvalues: Tensor, partner: Tensor, weight: Tensor, sigma: float) -> Tensor:
    """(n, k) squared error in each direction for an attacker who uses all rows and knows the pairing.

    O(n) in each direction: the diagonals of the inverses of cyclic tridiagonal matrices.
    """
    own, other = weight.double().unbind(1)
    ratio = own / other
    risk = torch.zeros(len(partner), len(eigenvalues), dtype=torch.float64)
    varies = eigenvalues > 0  # in a direction without variance there is nothing to guess
    ridge = sigma**2 / eigenvalues[varies].double()
    for rows in cycles(partner):
        inverse = _cyclic_inverse_diagonal(ratio[rows].T[:, :, None], ridge)
        directions = torch.zeros(*inverse.shape[:2], len(eigenvalues), dtype=torch.float64)
        directions[:, :, varies] = sigma**2 * inverse
        risk[rows.T] = directions
    return risk


def precisions(partner: Tensor, weight: Tensor, sigma: float) -> Tensor:
    """(n,) how precisely a release shows each record, in every direction, to an attacker who knows all other records.

    The record's own row adds (w₁/w₂σ)², the row in which it is the partner 1/σ². A record that is its own partner is in
    one row only: 1/(w₂σ)². The precisions of several releases add up.
    """
    own, other = weight.double().unbind(1)
    ratio = torch.where(partner == torch.arange(len(partner)), (1 / other).square(), (own / other).square() + 1)
    return ratio / sigma**2


def known_risk(eigenvalues: Tensor, precision: Tensor) -> Tensor:
    """(n, k) squared error in each direction of records that are shown with these precisions (n,): 1/(1/λ + precision).

    With `precisions` it is the error of an attacker who knows every other record, the least of any linear attacker.
    """
    signal = eigenvalues.double()[None]
    return signal / (1 + signal * precision.double()[:, None])


def certified_risk(eigenvalues: Tensor, mu: float, clip: float) -> Tensor:
    """(1, k) λ/(1 + λ(μ/2C)²): the least squared error of a linear attacker in each direction, who knows all else.

    With Gaussian noise, replacing a record of precision p by one at a distance of 2C moves the rows by 2C√p in units of
    their noise. The release is μ-GDP, so 2C√p ≤ μ, and `known_risk` falls as p grows. μ may be that of several releases
    with the same clip norm. eigenvalues: of the clipped records; nothing else depends on them.
    """
    precision = (checks.finite_positive("mu", mu) / (2 * checks.finite_positive("clip", clip))) ** 2
    return known_risk(eigenvalues, torch.tensor([precision], dtype=torch.float64))


def _cyclic_inverse_diagonal(ratio: Tensor, ridge: Tensor) -> Tensor:
    """(L, m, k) diagonal of A⁻¹ on m cycles of length L in k directions; ratio: (L, m, 1), ridge: (k,).

    Column 0 is removed, the remaining open chain is solved by elimination from both ends, and column 0 is put back by
    its Schur complement.
    """
    length = len(ratio)
    diagonal = ratio.square() + 1 + ridge
    if length == 1:
        return 1 / ((ratio + 1).square() + ridge)
    link = torch.zeros_like(diagonal)  # the couplings of column 0 to the chain
    link[1] += ratio[0]
    link[-1] += ratio[-1]
    left, right, solved = diagonal.clone(), diagonal.clone(), link.clone()
    for t in range(2, length):
        gain = ratio[t - 1] / left[t - 1]
        left[t] -= gain * ratio[t - 1]
        solved[t] -= gain * solved[t - 1]
    solved[-1] /= left[-1]
    for t in range(length - 2, 0, -1):
        right[t] -= ratio[t].square() / right[t + 1]
        solved[t] = (solved[t] - ratio[t] * solved[t + 1]) / left[t]
    schur = diagonal[0] - (link[1:] * solved[1:]).sum(0)
    inverse = 1 / (left + right - diagonal) + solved.square() / schur
    inverse[0] = 1 / schur
    return inverse
