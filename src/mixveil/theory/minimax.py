"""Theorem 1: how far from a record every estimator must stay, for any number of rows.

A release is X̃ = WX + E with W = D₁ + D₂P_π and noise w_ℓ₂ e_ℓ in row ℓ. In the worst case the squared error of an
attacker who knows X̃ and W is at least r² T_i, with T_i = Σ_ℓ (W⁻¹)²_iℓ w_ℓ₂². No n × n matrix is needed: W decomposes
into the cycles of π, and along a cycle T is a two-term recurrence.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator

import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError


def cycles(partner: Tensor) -> Iterator[Tensor]:
    """The cycles of π by length: (m, L) row numbers of the m cycles of length L. Column t + 1 is π of column t."""
    following = _permutation(partner).numpy().data
    seen = bytearray(len(following))
    by_length: dict[int, array[int]] = {}
    for start in range(len(following)):
        if seen[start]:
            continue
        cycle = array("q")
        row = start
        while not seen[row]:
            seen[row] = 1
            cycle.append(row)
            row = following[row]
        by_length.setdefault(len(cycle), array("q")).extend(cycle)
    for length in sorted(by_length):
        yield torch.frombuffer(by_length.pop(length), dtype=torch.int64).view(-1, length)


def log_minimax_factors(partner: Tensor, weight: Tensor) -> Tensor:
    """(n,) log T_i; +∞ where W is singular. In logarithms, because T reaches 10³³² on a million rows. The squared error
    of any estimator of record i is at least r² T_i for some X.

    partner: (n,) a permutation; weight: (n, 2), own weight first, both positive.

    >>> log_minimax_factors(torch.tensor([1, 2, 0]), torch.full((3, 2), 0.5)).exp()
    tensor([0.7500, 0.7500, 0.7500], dtype=torch.float64)
    """
    own, other = weight.double().unbind(1)
    log_ratio = torch.log(other / own)
    factors = torch.empty(len(partner), dtype=torch.float64)
    for rows in cycles(partner):
        factors[rows] = _cycle_factors(log_ratio[rows])
    return factors


def known_others_factors(weight: Tensor) -> Tensor:
    """(n,) the same for an attacker who knows all other records: 1/((w₁/w₂)² + 1)."""
    own, other = weight.double().unbind(1)
    return 1 / ((own / other).square() + 1)


def _cycle_factors(log_ratio: Tensor) -> Tensor:
    """log T on m cycles of one length, (m, L) each, from log(w₂/w₁).

    Forwards, record = −(w₂/w₁)·(next record) + (w₂/w₁)·noise; backwards, next record = noise − (w₁/w₂)·record.
    In the direction in which the product P of the factors is at most one in size every term is positive
    and bounded; in the other the terms overflow and cancel.
    """
    forward = log_ratio.sum(1) <= 0
    factors = torch.empty_like(log_ratio)
    ratio = log_ratio[forward]
    factors[forward] = _turn(ratio, 2 * ratio)
    # Backwards, column t is reached from t − 1: the walk from t goes to t − 1, t − 2, … over those edges.
    edge = -log_ratio[~forward].roll(1, dims=1).flip(1)
    factors[~forward] = _turn(edge, torch.zeros_like(edge)).flip(1)
    return factors


def _turn(log_a: Tensor, log_c: Tensor) -> Tensor:
    """log T_t for S_t = c_t(1 − P²) + a_t² S_(t+1) and T_t = S_t/(1 − P)², with P = Π(−a) and |P| ≤ 1."""
    length = log_a.shape[1]
    before = torch.cumsum(2 * log_a, 1)
    log_p = before[:, -1:] / 2
    before = torch.cat([torch.zeros_like(log_p), before[:, :-1]], 1)  # log Π_(j<t) a_j²
    terms = log_c + before
    first = torch.logsumexp(terms, 1, keepdim=True)  # S_0: one whole turn from column 0
    # S_t Π_(j<t) a² = Σ_(s≥t) c_s(1 − P²) Π_(j<s) a² + S_0 P²: sums of positive terms, from the end.
    terms += _log1mexp(2 * log_p)
    sums = torch.cat([terms, first + 2 * log_p], 1).flip(1).logcumsumexp(1).flip(1)[:, :length]
    sign = 1 if length % 2 == 0 else -1
    log_gap = _log1mexp(log_p) if sign > 0 else torch.log1p(log_p.exp())
    return sums - before - 2 * log_gap


def _log1mexp(x: Tensor) -> Tensor:
    """log(1 − eˣ) for x ≤ 0."""
    return torch.where(x > -math.log(2), torch.log(-torch.expm1(x)), torch.log1p(-torch.exp(x)))


def _permutation(partner: Tensor) -> Tensor:
    reached = torch.zeros(len(partner), dtype=torch.bool)
    if partner.dim() == 1 and bool(((partner >= 0) & (partner < len(partner))).all()):
        reached[partner] = True
    if not bool(reached.all()):
        raise ArgumentError("partner must be a permutation of the row numbers")
    return partner.contiguous()
