"""Images from rows that hold one image each, and from rows under noise whose weights are known."""

from __future__ import annotations

import torch
from torch import Tensor

_EQUAL = 1e-9  # of the squared length: float32 leaves less
_ALIKE = 0.5  # of an image's variance: so much do two rows of it go together under noise, but for chance


def grouped(x: Tensor, noise: float) -> Tensor:
    """(m,) the image that each of the rows (m, d) holds, numbered in the order of their first rows: equal rows hold the
    same, or, under noise of this variance, rows that go together."""
    if noise > 0:
        centred = x - x.mean(1, keepdim=True)
        products = centred @ centred.T / x.shape[1]
        same = products > _ALIKE * (products.diagonal().mean() - noise).clamp(min=0)
    else:
        products = x @ x.T
        length = products.diagonal()
        same = length[:, None] + length - 2 * products <= _EQUAL * (length[:, None] + length)
    first = same.fill_diagonal_(True).double().argmax(1)
    first = first[first]
    return (first == torch.arange(len(x))).cumsum(0)[first] - 1


def least_squares(x: Tensor, weight: Tensor, noise: Tensor) -> Tensor:
    """(n, d) images from rows (m, d) with weights (m, n) that sum to one. noise: (m,) the variance of a row's noise, in
    units of that of the images, which are drawn towards their mean by it; where it is zero, they are not."""
    if not bool((noise > 0).all()):
        exact: Tensor = torch.linalg.pinv(weight) @ x
        return exact
    mean, trusted = x.mean(), weight / noise[:, None]
    normal = weight.T @ trusted
    normal.diagonal().add_(1)
    solved: Tensor = torch.linalg.solve(normal, trusted.T @ (x - mean))
    return solved + mean
