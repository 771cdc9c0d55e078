"""Guesses in no order: each record gets the guess that is its own in the best assignment of all."""

from __future__ import annotations

import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError

MOST = 4096
"""Records that guesses are assigned to: an assignment takes time with their cube."""


def in_order(truth: Tensor, guess: Tensor, blank: float) -> Tensor:
    """(n, …) guesses in the order of the truth, (n, …), from (m, …) in any order: one-to-one, with the least squared
    error in sum. Records that are left without a guess get one of `blank` everywhere. Of more records than `MOST`,
    as many guesses keep their order: it is that of the labels.

    >>> one, other = torch.zeros(1, 2), torch.ones(1, 2)
    >>> in_order(torch.cat([one, other]), torch.cat([other, one + 0.2]), 0.5)
    tensor([[0.2000, 0.2000],
            [1.0000, 1.0000]])
    """
    from scipy.optimize import linear_sum_assignment

    if guess.shape[1:] != truth.shape[1:]:
        raise ArgumentError(f"guesses must have the shape {tuple(truth.shape[1:])}, got {tuple(guess.shape[1:])}")
    if max(len(truth), len(guess)) > MOST:
        if len(truth) != len(guess):
            raise ArgumentError(f"{len(guess)} guesses at {len(truth)} records are too many to assign: at most {MOST}")
        return guess.cpu()
    found = torch.full(truth.shape, blank, dtype=guess.dtype)
    one, other = (x.flatten(1).double().cpu() for x in (truth, guess))
    errors = one.square().sum(1)[:, None] - 2 * one @ other.T + other.square().sum(1)
    if not bool(errors.isfinite().all()):
        raise ArgumentError("guesses must be finite to be assigned to records")
    records, taken = linear_sum_assignment(errors.numpy())
    found[torch.from_numpy(records)] = guess.cpu()[torch.from_numpy(taken)]
    return found
