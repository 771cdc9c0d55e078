"""The closed form for a network that is one dense layer of scores on rows: records from the gradient of one step.

    G = Σ_c (n_c / n) (p_c − e_c) m_cᵀ,   p_c = softmax(W m_c + b)

over the classes c that records have: n_c of them, with the mean m_c. G is (classes, values), so where there are fewer
classes than the network has, it is solved for all means at once; p_c follows from those, and so on until both stay. It
is exact where no two records share a class. Where they do it takes one p for all of them, which is about right at
weights that were not trained; only a mean of them is looked for. After several steps it takes the mean p of both ends.

Larger records that the network knows better have the same G as smaller ones that it knows less: the bias tells which.
Without a bias it finds the smaller ones, which at trained weights may be the wrong ones.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_ROUNDS = 1000
_STILL = 1e-12  # the change of a prediction
_LEAST = 1e-3  # that is found for a value of 1
_TINY = 1e-300
_RANK = 1e-9  # singular values below this part of the largest are rounding


class Head(NamedTuple):
    """A dense layer of scores: weight (classes, values) and bias (classes,) at both ends of an update, float64."""

    weights: tuple[Tensor, Tensor]
    biases: tuple[Tensor, Tensor]

    def says(self, rows: Tensor) -> Tensor:
        """(m, classes) the mean of the predictions for (m, values) rows at both ends. Of one step the first alone
        counts: then both are given the same."""
        ends = zip(self.weights, self.biases, strict=True)
        return torch.stack([(rows @ weight.T + bias).softmax(1) for weight, bias in ends]).mean(0)


def class_means(head: Head, slope: Tensor, by_bias: Tensor | None, counts: Tensor, low: float, high: float) -> Tensor:
    """(k, values) of the k classes that records have, in their order: the means of each class's records.

    slope: (classes, values) the gradient by the weight; by_bias: (classes,) by the bias, where there is one; counts:
    (classes,) records of each class; low, high: the range of a value.
    """
    there = counts.nonzero()[:, 0]
    shares = counts[there].double()[:, None] / counts.sum()
    own = torch.nn.functional.one_hot(there, len(counts)).double()
    said = torch.full_like(own, 1 / len(counts))
    for number in range(_ROUNDS):
        again = head.says(_means(shares * (said - own), slope, by_bias, low).clamp(low, high))
        still = float((again - said).abs().max())
        said = again if number < _ROUNDS // 10 else (said + again) / 2  # what swings to and fro comes to rest
        if still < _STILL:
            break
    return _means(shares * (said - own), slope, by_bias, low)


def _means(errors: Tensor, slope: Tensor, by_bias: Tensor | None, low: float) -> Tensor:
    """(k, values) means m with errorsᵀ m = slope, errors (k, classes). The bias is a value that is 1 in every record:
    what is found of it shows how far the errors are too large, and records with them too small.

    With all classes there one combination u of records is not seen, as errors sum to 0 over classes: then the lowest
    value of all classes is taken for the range's lowest, which is right for images with a dark border."""
    left, sizes, right = torch.linalg.svd(errors, full_matrices=False)
    kept = sizes > _RANK * sizes[0].clamp(min=_TINY)
    solved = left[:, kept] / sizes[kept] @ right[kept]
    found: Tensor = solved @ slope
    unseen = left[:, ~kept]
    ones = torch.ones_like(found[:, :1]) if by_bias is None else (solved @ by_bias)[:, None]
    if unseen.shape[1] == 1:
        unseen = unseen * unseen.sum().sign()
        ones = ones + unseen * (unseen * (1 - ones)).sum()
    found, ones = found / ones.clamp(min=_LEAST), ones.clamp(min=_LEAST)
    if unseen.shape[1] == 1 and bool((unseen > 0).all()):
        found = found + unseen / ones * ((low - found) * ones / unseen).amax(0)
    return found
