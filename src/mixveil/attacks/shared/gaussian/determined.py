"""Which images follow from the rows that hold them: what fits all rows need not be the only thing that does.

Rows X = W Z stay the same if weights change by δW and images by δZ with δW Z + W δZ = 0. In a row of images a and b of
which the weights are not known, δW is any multiple of e_a − e_b. As images are linearly independent, there is such a
change if and only if (I − W W⁺) δW = 0, which is a null vector of one matrix of rows by rows. Images that such changes
move are open, and so are those that W alone does not tell apart.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mixveil.attacks.shared.gaussian.sparse_solve import Selection

_NONE, _MOVED = 1e-7, 1e-4
_HELD = 0.02  # a weight, or a difference of weights: by less a row tells no sign


def determined(selection: Selection, fixed: Tensor, images: int, masked: bool) -> Tensor:
    """(n,) which images follow from these rows. fixed: (m,) the rows whose weights are known from elsewhere; masked:
    whether signs are hidden."""
    weight = selection.dense(images)
    told = ~moved(weight, selection.source[~fixed], (~fixed).nonzero()[:, 0])
    return told & crossed(selection, images) if masked else told


def moved(weight: Tensor, source: Tensor, rows: Tensor) -> Tensor:
    """(n,) which images change, where the weights (m, n) of some rows may. source: (u, 2) the images of these rows."""
    inverse = torch.linalg.pinv(weight)
    apart = torch.zeros(len(rows), weight.shape[1], dtype=weight.dtype)
    apart.scatter_add_(1, source, torch.tensor([[1.0, -1.0]], dtype=weight.dtype).expand(len(rows), 2))
    unexplained = torch.eye(len(weight), dtype=weight.dtype) - weight @ inverse
    values, vectors = torch.linalg.eigh(unexplained[rows][:, rows] * (apart @ apart.T))
    change = [inverse[:, rows] @ (vector[:, None] * apart) for vector in vectors[:, values < _NONE].T]
    change.append(torch.eye(weight.shape[1], dtype=weight.dtype) - inverse @ weight)
    return torch.stack(change).abs().amax(2).amax(0) > _MOVED


def crossed(selection: Selection, images: int) -> Tensor:
    """(n,) which images are in two rows that say different things, of images of which that is true too: of one that
    hangs on a single row its signs stay open. Rows of one pair say the same where their weights are equal."""
    (a, b), order = selection.source.sort(1).values.T, selection.source.argsort(1)
    first = selection.weight.gather(1, order)[:, 0]
    real = (selection.weight > _HELD).all(1) & (a != b)
    shared = torch.zeros(images, images, dtype=torch.int64)
    for one, other, _ in set(
        zip(a[real].tolist(), b[real].tolist(), (first[real] / _HELD).round().tolist(), strict=True)
    ):
        shared[one, other] += 1
        shared[other, one] += 1
    left = torch.ones(images, dtype=torch.bool)
    while bool((alone := left & ((shared * left).sum(1) < 2)).any()):
        left &= ~alone
    return left
