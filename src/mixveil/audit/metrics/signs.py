"""How many of the signs that a mask hides were found."""

from __future__ import annotations

import torch
from torch import Tensor


def found(truth: Tensor, guess: Tensor) -> Tensor:
    """(n,) the share of values with the right sign, from (n, d) of −1, 0 and 1; values that are zero do not count.

    >>> import torch
    >>> found(torch.tensor([[1, -1, 0, 1]]), torch.tensor([[1, 1, 1, 1]])).tolist()
    [0.6666666666666666]
    """
    counted = (truth != 0).sum(1).clamp(min=1)
    return ((truth == guess) & (truth != 0)).sum(1).double() / counted


def by_one_sign(truth: Tensor) -> Tensor:
    """(n,) what the better of two guesses finds that use no row: all values positive, or all negative."""
    ones = torch.ones_like(truth)
    return max(found(truth, ones), found(truth, -ones), key=lambda shares: float(shares.mean()))


def of_one_sign(truth: Tensor) -> float:
    """The same on average."""
    return float(by_one_sign(truth).mean())
