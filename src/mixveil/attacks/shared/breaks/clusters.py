"""Rows of one record each, from how alike rows are: the dense parts of the graph of similar rows (Carlini et al. 2021).

A row of several records lies in several such parts. Each part is grown from one row: the row that is most alike to all
of it joins, so that from the third row on only what all of them share counts. The class that all their labels show is
that of the record. Of very many parts, those are kept that are least like one another.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_STARTS = 8  # for each record
_LARGEST, _SMALLEST = 12, 2  # rows of a part
_SHARE = 4  # of a record's rows one in so many is in its part
_ROUNDS = 5  # of exchanging rows of a part for better ones
_AGAIN = 2  # times that more parts are grown, from rows that no part explains
_LOOSE = 0.1  # of the median density: parts below it are no parts
_TWO = 2
_BLOCK = 500  # parts at a time
_DENSE = 1e-3  # how much density counts beside being unlike the others


class Clusters(NamedTuple):
    """Some rows of every record: rows (n, s) their numbers; classes (n,) of the records."""

    rows: Tensor
    classes: Tensor


def clusters(alike: Tensor, y: Tensor, records: int, private: int) -> Clusters:
    """From how alike rows are (m, m), their labels (m, classes), and how many records there are, of which `private` are
    in a row."""
    alike = alike.clone().fill_diagonal_(0)
    y = y.to(alike)
    size = max(_SMALLEST, min(_LARGEST, len(y) * private // records // _SHARE))
    quotas = _quotas(y, records, private)
    start = _heaviest(y, quotas)
    every = torch.empty(0, size, dtype=torch.int64, device=alike.device)
    for _ in range(1 + _AGAIN):
        every = torch.cat([every, _exchanged(alike, _grown(alike, y, *start, size))])
        near = _beside(alike, every).topk(min(2 * size, len(y)), dim=1).indices
        classes = common_class(y, near)  # more rows are surer of it
        chosen = _apart(alike, every, classes, quotas)
        start = _unexplained(alike, y, every[chosen], classes[chosen], records)
    due = torch.repeat_interleave(torch.arange(len(quotas)), torch.tensor(quotas))
    return Clusters(every[chosen].cpu(), due)


def in_order(own: Tensor, y: Tensor, records: int) -> Clusters:
    """The same where the record of every row is known, (m,): all its rows, and the class that most of them share."""
    rows = own.argsort(stable=True).view(records, -1)
    return Clusters(rows, common_class(y, rows))


def common_class(y: Tensor, rows: Tensor) -> Tensor:
    """(n,) the class that most of some rows (n, s) show; of several, the one that they show most of."""
    return ((y[rows] > 0).to(y).sum(1) + y[rows].mean(1)).argmax(1)


def _heaviest(y: Tensor, quotas: list[int]) -> tuple[Tensor, Tensor]:
    """Rows and classes to begin with: of every class the rows that hold most of it."""
    rows, classes = [], []
    for number, quota in enumerate(quotas):
        held = int((y[:, number] > 0).sum())
        best = y[:, number].topk(min(held, _STARTS * (quota + 1))).indices
        rows.append(best)
        classes.append(torch.full_like(best, number))
    return torch.cat(rows), torch.cat(classes)


def _quotas(y: Tensor, records: int, private: int) -> list[int]:
    """How many records each class has. Every record is in equally many rows, so classes have as many records as rows
    hold shares of them: where two records are in a row, a label of one class counts twice, which is exact; where more
    are, by the sum of the shares."""
    shown = (y > 0).double()
    counts = shown * (private / shown.sum(1, keepdim=True).clamp(min=1)) if private <= _TWO else y.double()
    share = records * counts.sum(0) / counts.sum()
    quotas = share.floor()
    left = records - int(quotas.sum())
    quotas[(share - quotas).topk(left).indices] += 1
    return [int(quota) for quota in quotas.tolist()]


def _unexplained(alike: Tensor, y: Tensor, rows: Tensor, classes: Tensor, records: int) -> tuple[Tensor, Tensor]:
    """Rows and classes to begin with again: those that are least like any part of their class, for the share of the
    class that they hold."""
    near = alike[:, rows.flatten()].view(len(alike), *rows.shape).mean(2)
    best = torch.zeros_like(y)
    for number in set(classes.tolist()):
        best[:, number] = near[:, classes == number].amax(1)
    heavy = y > y[y > 0].median()
    told = torch.where(heavy, best / y.clamp(min=1e-30), torch.inf).flatten()
    chosen = told.topk(min(int(heavy.sum()), _STARTS * records), largest=False).indices
    return chosen // y.shape[1], chosen % y.shape[1]


def _grown(alike: Tensor, y: Tensor, start: Tensor, classes: Tensor, size: int) -> Tensor:
    """(s, size) rows: each start, and one after another the row of its class that is most alike to all so far."""
    total = alike[start].masked_fill(y.T[classes] <= 0, -torch.inf)
    total.scatter_(1, start[:, None], -torch.inf)
    rows = [start]
    for _ in range(size - 1):
        rows.append(total.argmax(1))
        total += alike[rows[-1]]
        total.scatter_(1, rows[-1][:, None], -torch.inf)
    return torch.stack(rows, dim=1)


def _beside(alike: Tensor, rows: Tensor) -> Tensor:
    """(p, m) how alike all rows are to the rows of each part (p, s), in sum."""
    return torch.cat([alike[part].sum(1) for part in torch.split(rows, _BLOCK)])


def _exchanged(alike: Tensor, rows: Tensor) -> Tensor:
    """The same parts, each of the rows that are most alike to it, whatever their labels; again and again."""
    size = rows.shape[1]
    for _ in range(_ROUNDS):
        total = _beside(alike, rows)
        inside = torch.zeros_like(total, dtype=torch.bool).scatter_(1, rows, True)
        better = torch.where(inside, total / max(1, size - 1), total / size).topk(size, dim=1).indices
        if torch.equal(better.sort(1).values, rows.sort(1).values):
            break
        rows = better
    return rows


def _apart(alike: Tensor, rows: Tensor, classes: Tensor, quotas: list[int]) -> Tensor:
    """(n,) which parts (p, s) to keep, so many of every class: the densest first, then always the one that is least
    like those that are kept."""
    size = rows.shape[1]
    density = alike[rows[:, :, None], rows[:, None, :]].sum((1, 2)) / (size * (size - 1))
    member = torch.zeros(len(rows), len(alike), device=alike.device).scatter_(1, rows, 1 / size)
    spread = density.clamp(min=0).sqrt()
    near = member @ (alike @ member.T) / (spread[:, None] * spread).clamp(min=1e-30)
    worse = density <= _LOOSE * density.median()  # those only if there are not enough others
    rank = worse.float() * 2 - _DENSE * density / density.max().clamp(min=1e-30)
    chosen = []
    for number, quota in enumerate(quotas):
        likest = torch.where(classes == number, 0.0, 4.0)  # of another class, where there are not enough of this one
        for _ in range(quota):
            best = int((likest + rank).argmin())
            chosen.append(best)
            likest = torch.maximum(likest, near[best].clamp(max=1.0))
            likest[best] = torch.inf
    return torch.tensor(chosen, device=alike.device)
