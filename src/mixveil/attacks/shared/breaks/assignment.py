"""Which records are in which rows: the cheapest assignment that all labels agree with (Carlini et al. 2021).

Rows have so many records each, records so many rows, and every class that a label shows is that of one record at least.
That is a flow: the linear program has a solution in whole numbers, which scipy's solver (HiGHS) finds.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, hstack, vstack
from torch import Tensor

_CANDIDATES = 12  # records of a class that are tried for a row: those that fit best
_DEAR = 100.0  # what it costs not to agree with a label, in the spread of the scores


def assigned(
    fit: Tensor, y: Tensor, classes: Tensor, private: int, own: Tensor | None, most: Tensor | None = None
) -> Tensor:
    """(m, s) the records of each row, numbered as the columns of `fit`, −1 for none; its own first, where it is known.

    fit: (m, n) how well each record fits each row; y: (m, classes) labels; classes: (n,) of the records; private: how
    many records are in a row; own: (m,) the one that is known, or None; most: (m,) how many records each row may have,
    where some have fewer. That a row holds one record twice cannot be said here (`refining` says it)."""
    if private == 1 and own is not None:
        return own[:, None].clone()
    row, record = _tried(fit, y, classes, own)
    cost = -(fit / fit.std().clamp(min=1e-30))[row, record].double().numpy()
    if own is not None:
        cost[(record == own[row]).numpy()] -= _DEAR * private
    limit = np.full(len(y), private) if most is None else most.numpy()
    chosen = _solved(cost, row.numpy(), record.numpy(), (y > 0).numpy(), classes.numpy(), fit.shape[1], private, limit)
    return _listed(row[chosen], record[chosen], fit, private, own)


def _tried(fit: Tensor, y: Tensor, classes: Tensor, own: Tensor | None) -> tuple[Tensor, Tensor]:
    """Rows and records that may belong together, (e,) each."""
    found = [] if own is None else [torch.stack([torch.arange(len(own)), own])]
    for number in range(y.shape[1]):
        rows, records = (y[:, number] > 0).nonzero()[:, 0], (classes == number).nonzero()[:, 0]
        if len(rows) and len(records):
            best = fit[rows][:, records].topk(min(_CANDIDATES, len(records)), dim=1).indices
            found.append(torch.stack([rows.repeat_interleave(best.shape[1]), records[best.flatten()]]))
    both = torch.cat(found, dim=1)
    each = torch.from_numpy(np.unique((both[0] * fit.shape[1] + both[1]).numpy()))
    return each // fit.shape[1], each % fit.shape[1]


def _solved(
    cost: np.ndarray,
    row: np.ndarray,
    record: np.ndarray,
    shown: np.ndarray,
    classes: np.ndarray,
    records: int,
    private: int,
    limit: np.ndarray,
) -> Tensor:
    """(e,) whether each pair of row and record is in the cheapest assignment. shown: (m, classes) what labels show;
    limit: (m,) records of each row, at most."""
    rows, count = len(shown), len(cost)
    pair, one = np.arange(count), np.ones(count)
    label, place = np.unique(row * shown.shape[1] + classes[record], return_inverse=True)
    of_row = csr_array((one, (row, pair)), (rows, count))
    of_label = csr_array((-one, (place, pair)), (len(label), count))
    of_record = csr_array((one, (record, pair)), (records, count))
    each = -(-rows * private // records)
    none_of = csr_array((rows, len(label)))
    limits = vstack(
        [
            hstack([of_row, none_of]),
            hstack([of_label, -eye_array(len(label))]),  # dear, where not every class of a label can be had
            hstack([of_record, csr_array((records, len(label)))]),
        ]
    ).tocsr()
    most = np.concatenate([limit, np.full(len(label), -1), np.full(records, each)])
    gain = cost - max(float(cost.max()), 0.0) - 1  # a record more is worth it, where there is room
    price = np.concatenate([gain, np.full(len(label), _DEAR)])
    found = linprog(price, A_ub=limits, b_ub=most, bounds=(0, 1), method="highs")
    return torch.from_numpy(found.x[:count] > 0.5)


def _listed(row: Tensor, record: Tensor, fit: Tensor, private: int, own: Tensor | None) -> Tensor:
    """(m, s) of pairs (e,): a row's own record first, or else the one that fits best."""
    score = fit[row, record].double()
    if own is not None:
        score = torch.where(record == own[row], torch.inf, score)
    order = torch.from_numpy(np.lexsort((-score.numpy(), row.numpy())))
    row, record = row[order], record[order]
    first = torch.searchsorted(row.contiguous(), torch.arange(len(fit)))
    listed = torch.full((len(fit), private), -1)
    listed[row, torch.arange(len(row)) - first[row]] = record
    return listed
