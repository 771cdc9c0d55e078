"""How much of an update's classes was found, where rows are in no order: how many there are of each."""

from __future__ import annotations

from torch import Tensor


def found(truth: Tensor, guess: Tensor) -> float:
    """How many rows have their class among those guessed, from (classes,) rows of each: Σ min.

    >>> import torch
    >>> found(torch.tensor([2, 1, 0]), torch.tensor([1, 0, 2]))
    1.0
    """
    return float(truth.double().minimum(guess.double().clamp(min=0).cpu()).sum())


def of_guessing(truth: Tensor) -> float:
    """The same of a guess that does not look: as many rows of each class. Which class is most frequent is not known.

    >>> import torch
    >>> of_guessing(torch.tensor([3, 1])), of_guessing(torch.tensor([1, 1, 1, 1]))
    (3.0, 4.0)
    """
    whole = truth.double()
    return float(whole.clamp(max=float(whole.mean())).sum())
