"""Theorem 1: how far from a record every estimator must stay, for any number of rows.

A release is X̃ = WX + E with W = D₁ + D₂P_π and noise w_ℓ₂ e_ℓ in row ℓ. In the worst case the squared error of an
attacker who knows X̃ and W is at least r² T_i, with T_i = Σ_ℓ (W⁻¹)²_iℓ w_ℓ₂². No n × n matrix is needed: W decomposes
into the cycles of π, and along a cycle T is a two-term recurrence.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError

_CHUNK = 1 << 20  # of a cycle, at a time: what is held beside it does not grow


def cycles(partner: Tensor) -> Iterator[Tensor]:
    """The cycles of π by length: (m, L) row numbers of the m cycles of length L. Column t + 1 is π of column t.

    Beside the answer, 17 bytes a row are held at most.
    """
    following = _permutation(partner).numpy()
    order = np.empty(len(following), np.int64)
    length = np.frombuffer(_walked(following.data, order.data), np.int64)
    start = length.cumsum() - length
    for size in np.unique(length):
        begins = start[length == size]
        if len(begins) == 1:
            yield torch.from_numpy(order[begins[0] : begins[0] + size])[None]
        else:
            yield torch.from_numpy(order[begins[:, None] + np.arange(size)])


def _walked(following: memoryview, order: memoryview) -> array[int]:
    """Write the rows cycle by cycle to `order`; the lengths of the cycles."""
    seen, lengths = bytearray(len(following)), array("q")
    place = 0
    start = seen.find(0)
    while start >= 0:
        row, begin = start, place
        while not seen[row]:
            seen[row] = 1
            order[place] = row
            place += 1
            row = following[row]
        lengths.append(place - begin)
        start = seen.find(0, start + 1)
    return lengths


def log_minimax_factors(partner: Tensor, weight: Tensor) -> Tensor:
    """(n,) log T_i; +∞ where W is singular. In logarithms, because T reaches 10³³² on a million rows. The squared error
    of any estimator of record i is at least r² T_i for some X.

    partner: (n,) a permutation; weight: (n, 2), own weight first, both positive.

    >>> log_minimax_factors(torch.tensor([1, 2, 0]), torch.full((3, 2), 0.5)).exp()
    tensor([0.7500, 0.7500, 0.7500], dtype=torch.float64)
    """
    own, other = weight.unbind(1)
    factors = torch.empty(len(partner), dtype=torch.float64)
    for rows in cycles(partner):
        for some in torch.split(rows, max(1, _CHUNK // rows.shape[1])):
            ratio = torch.empty(some.shape, dtype=torch.float64)
            for here in _chunks(some.shape[1]):
                ratio[:, here] = torch.log(other[some[:, here]].double() / own[some[:, here]].double())
            found = _cycle_factors(ratio)
            for here in _chunks(some.shape[1]):
                factors[some[:, here]] = found[:, here]
    return factors


def known_others_factors(weight: Tensor) -> Tensor:
    """(n,) the same for an attacker who knows all other records: 1/((w₁/w₂)² + 1)."""
    own, other = weight.double().unbind(1)
    return 1 / ((own / other).square() + 1)


def _cycle_factors(log_ratio: Tensor) -> Tensor:
    """log T on m cycles of one length, (m, L) each, from log(w₂/w₁), which is overwritten.

    Forwards, record = −(w₂/w₁)·(next record) + (w₂/w₁)·noise; backwards, next record = noise − (w₁/w₂)·record.
    In the direction in which the product P of the factors is at most one in size every term is positive
    and bounded; in the other the terms overflow and cancel.
    """
    log_p = log_ratio.sum(1, keepdim=True)
    forward = log_p[:, 0] <= 0
    if bool(forward.all()):
        return _turn(log_ratio, log_p, 2.0)
    if not bool(forward.any()):
        return _backward(log_ratio, log_p)
    factors = torch.empty_like(log_ratio)
    factors[forward] = _turn(log_ratio[forward], log_p[forward], 2.0)
    factors[~forward] = _backward(log_ratio[~forward], log_p[~forward])
    return factors


def _backward(log_ratio: Tensor, log_p: Tensor) -> Tensor:
    """Column t is reached from t − 1: the walk from t goes to t − 1, t − 2, … over those edges."""
    edge = log_ratio.roll(1, dims=1).flip(1).neg_()
    return _turn(edge, -log_p, 0.0).flip(1)


def _turn(log_a: Tensor, log_p: Tensor, power: float) -> Tensor:
    """log T_t for S_t = c_t(1 − P²) + a_t² S_(t+1) and T_t = S_t/(1 − P)², with P = Π(−a), |P| ≤ 1 and log c =
    power · log a. log_a is overwritten with it, a chunk at a time, from the end."""
    length = log_a.shape[1]
    # S_0, one whole turn: (1 − P²) cancels in S_0 = Σ_s c_s Π_(j<s) a_j²
    first, passed = torch.full_like(log_p, -torch.inf), torch.zeros_like(log_p)
    for here in _chunks(length):
        before, after = _products(log_a[:, here])
        first = torch.logaddexp(first, torch.logsumexp(before.add_(passed).add_(power * log_a[:, here]), 1, True))
        passed = passed + after
    # S_t Π_(j<t) a² = Σ_(s≥t) c_s(1 − P²) Π_(j<s) a² + S_e Π_(j<e) a², up to a chunk's end e: sums of positive terms.
    log_gap = _log1mexp(log_p) if length % 2 == 0 else torch.log1p(log_p.exp())
    missing, reached = _log1mexp(2 * log_p), first
    for here in reversed(list(_chunks(length))):
        before, after = _products(log_a[:, here])
        terms = torch.cat([before + (power * log_a[:, here] + missing), reached + after], 1)
        sums = terms.flip(1).logcumsumexp(1).flip(1)[:, :-1].sub_(before)
        reached = sums[:, :1].clone()
        log_a[:, here] = sums.sub_(2 * log_gap)
    return log_a


def _products(log_a: Tensor) -> tuple[Tensor, Tensor]:
    """log Π_(j<t) a_j² within a chunk, and over all of it."""
    whole = torch.cumsum(2 * log_a, 1)
    return torch.cat([torch.zeros_like(whole[:, :1]), whole[:, :-1]], 1), whole[:, -1:]


def _chunks(length: int) -> Iterator[slice]:
    return (slice(start, min(start + _CHUNK, length)) for start in range(0, length, _CHUNK))


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
