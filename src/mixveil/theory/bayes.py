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
from mixveil.theory.rings import Rings, directions


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
    ratio = (own / other)[:, None]
    risk = torch.zeros(len(partner), len(eigenvalues), dtype=torch.float64)
    rings, varies = Rings.of(partner, len(partner)), (eigenvalues > 0).nonzero()[:, 0]
    for part in directions(len(partner), len(varies), risk.device):
        some = varies[part]  # in a direction without variance there is nothing to guess
        diagonal = ratio.square() + 1 + sigma**2 / eigenvalues[some].double()
        risk[:, some] = sigma**2 * rings.variances(diagonal, ratio.expand_as(diagonal))
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
