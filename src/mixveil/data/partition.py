"""Dealing labelled rows to parties, alike or as unlike as asked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError

if TYPE_CHECKING:
    from mixveil.core.randomness import Stream

FEWEST = 2
"""Rows of a party: a single row has no partner."""


def sizes(rows: int, parties: int, *, rho: float = 1.0, fewest: int = FEWEST) -> list[int]:
    """How many rows each party gets. All parties but the last get the same number, or one more; the last gets ρ times
    as many, at least `fewest`."""
    checks.at_least("parties", parties, 1)
    checks.at_least("fewest", fewest, 1)
    if not 0 < rho <= 1:
        raise ArgumentError(f"rho must be in (0, 1], got {rho:g}")
    if rows < parties * fewest:
        raise ArgumentError(f"{rows:,} rows are too few for {parties:,} parties of at least {fewest}")
    if parties == 1 or rho == 1:
        return _even(rows, parties)
    poor = max(fewest, round(rho * rows / (parties - 1 + rho)))
    return [*_even(rows - poor, parties - 1), poor]


def partition(
    labels: Tensor,
    parties: int,
    *,
    beta: float | None = None,
    rho: float = 1.0,
    fewest: int = FEWEST,
    stream: Stream,
) -> list[Tensor]:
    """The rows of each party, each row once, in increasing order; parties have exactly their `sizes`.

    beta: each class is dealt in proportions from Dir(β·1), times the parties' sizes; the smaller β, the more unlike the
    parties. None deals all rows alike. Rows beyond a party's size move, at random, to the parties that lack rows, so
    that equal sizes soften a small β.
    """
    wanted = torch.tensor(sizes(len(labels), parties, rho=rho, fewest=fewest))
    if beta is None:
        order = stream.permutation(len(labels))
        return [part.sort().values for part in torch.split(order, wanted.tolist())]
    dealt = _dealt(labels, wanted, dirichlet(stream, int(labels.max()) + 1, parties, beta), stream)
    spare = [part[int(size) :] for part, size in zip(dealt, wanted, strict=True)]
    moving = torch.cat(spare)
    moving = moving[stream.permutation(len(moving))]
    lacking = (wanted - torch.tensor([len(part) for part in dealt])).clamp(min=0)
    moved = torch.split(moving, lacking.tolist())
    kept = (part[: int(size)] for part, size in zip(dealt, wanted, strict=True))
    return [torch.cat(both).sort().values for both in zip(kept, moved, strict=True)]


def dirichlet(stream: Stream, n: int, k: int, beta: float) -> Tensor:
    """(n, k) float64 rows from Dir(β·1): normalised Gamma draws, kept in logarithms."""
    return torch.softmax(_log_gamma(stream, n * k, checks.finite_positive("beta", beta)).view(n, k), dim=1)


def _log_gamma(stream: Stream, n: int, shape: float) -> Tensor:
    """Logarithms of Gamma(shape, 1) draws by Marsaglia and Tsang's rejection; below shape 1 a draw of Gamma(shape + 1)
    times U^(1/shape)."""
    if shape < 1:
        boost = torch.log(1 - stream.uniform(n)) / shape
        return _log_gamma(stream, n, shape + 1) + boost
    d = shape - 1 / 3
    c = 1 / math.sqrt(9 * d)
    draws = torch.empty(n, dtype=torch.float64)
    left = torch.arange(n)
    while len(left):
        x, u = stream.normal(len(left)), 1 - stream.uniform(len(left))
        v = (1 + c * x) ** 3
        log_v = torch.where(v > 0, v, 1).log()
        good = (v > 0) & (u.log() < 0.5 * x * x + d - d * v + d * log_v)
        draws[left[good]] = math.log(d) + log_v[good]
        left = left[~good]
    return draws


def set_aside(labels: Tensor, share: int, *, stream: Stream) -> tuple[Tensor, Tensor]:
    """The rows that stay, and one of `share` rows that are set aside: at random, the same share of every class."""
    if len(labels) < 2 * share:
        raise ArgumentError(f"{len(labels)} rows are too few to set one of {share} aside")
    order = stream.permutation(len(labels))
    order = order[labels[order].argsort(stable=True)]
    aside = torch.zeros(len(labels), dtype=torch.bool)
    aside[order[::share]] = True
    return (~aside).nonzero()[:, 0], aside.nonzero()[:, 0]


def _dealt(labels: Tensor, wanted: Tensor, shares: Tensor, stream: Stream) -> list[Tensor]:
    """The rows of each party, in random order: each class is cut in proportion to its shares times the party sizes."""
    dealt: list[list[Tensor]] = [[] for _ in wanted]
    for number, share in enumerate(shares * wanted):
        rows = (labels == number).nonzero()[:, 0]
        rows = rows[stream.permutation(len(rows))]
        total = float(share.sum())
        ends = (share.cumsum(0) / total * len(rows)).round().long() if total > 0 else torch.zeros_like(wanted)
        ends[-1] = len(rows)
        for place, part in enumerate(rows.tensor_split(ends[:-1])):
            dealt[place].append(part)
    rows_of = [torch.cat(parts) for parts in dealt]
    return [rows[stream.permutation(len(rows))] for rows in rows_of]


def _even(rows: int, parties: int) -> list[int]:
    return [rows // parties + (place < rows % parties) for place in range(parties)]
