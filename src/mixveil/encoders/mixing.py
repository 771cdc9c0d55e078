"""Who is mixed with whom, and by which weights, where rows are made of k images."""

from __future__ import annotations

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream

PRIVATE = 2
"""Private images in a row, where the others are public."""


def partners(n: int, k: int, covers: int, stream: Stream) -> Tensor:
    """(n, k − 1): records by random permutations; with covers, one record and then covers, numbered after records."""
    own = PRIVATE if covers else k
    found = [stream.permutation(n) for _ in range(own - 1)]
    found += [n + (stream.uniform(n) * covers).long() for _ in range(k - own)]
    return torch.stack(found, dim=1) if found else torch.empty(n, 0, dtype=torch.int64)


def check_weights(k: int, c1: float, c2: float) -> None:
    """Refuse weights that cannot be, or hardly ever come up. c1: the largest; c2: the least sum of two."""
    checks.at_least("k", k, 1)
    checks.probability("c2", c2) if c2 else None
    if not 0 < c1 <= 1 or (k > 1 and c1 * k < 1.25):
        raise ArgumentError(f"c1 must be in [1.25/k, 1] = [{1.25 / k:g}, 1], got {c1:g}")
    if k > PRIVATE and c2 > 0.9 * min(1, PRIVATE * c1):
        raise ArgumentError(f"c2 must be at most {0.9 * min(1, PRIVATE * c1):g} with c1 = {c1:g}, got {c2:g}")
