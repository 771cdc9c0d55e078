"""Which rows the clients of a large federation have, and on which of them a round's cohort trains in every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError, TooFewRowsError
from mixveil.core.randomness import Stream
from mixveil.data.partition import dirichlet, partition

Sizes = Literal["drawn", "equal"]
"""Of clients: as the Dirichlet law gives them, or as alike as can be, for which rows move between clients."""

FEWEST = 4
"""Rows of a client: of fewer, a quarter is no row to test on."""

_TRIES = 1000


class Client(NamedTuple):
    """Rows of one client: those that it trains on, and those that it keeps for testing."""

    train: Tensor
    test: Tensor


class Schedule(NamedTuple):
    """What the clients of one round train on, the client with most rows first.

    Attributes:
        clients: Their numbers.
        rows: (steps, k, b) numbers of rows, 0 where a batch has no more.
        shares: (steps, k, b) of each row in the mean of its batch, 0 where there is none.
        active: Of each step, how many of the first clients still have rows.
        counts: (k,) rows of each client.
    """

    clients: list[int]
    rows: Tensor
    shares: Tensor
    active: list[int]
    counts: Tensor


def dealt(
    labels: Tensor, clients: int, *, beta: float | None, test_share: float, sizes: Sizes = "drawn", stream: Stream
) -> list[Client]:
    """The rows of each client. beta: every class is dealt in proportions from Dir(β·1), None: all rows alike; draws in
    which a client has fewer than `FEWEST` rows are made again. test_share: of a client's rows, one at least, drawn from
    them by chance."""
    if not 0 <= test_share < 1:
        raise ArgumentError(f"test_share must lie in [0, 1), got {test_share:g}")
    if beta is None or sizes == "equal":
        parts = partition(labels, clients, beta=beta, fewest=FEWEST, stream=stream.fork("partition"))
    else:
        parts = _drawn(labels, clients, beta, stream.fork("partition"))
    kept = stream.fork("kept for testing")
    found = []
    for part in parts:
        mixed = part[kept.permutation(len(part))]
        tested = max(1, round(test_share * len(part))) if test_share else 0
        found.append(Client(mixed[tested:].sort().values, mixed[:tested].sort().values))
    return found


def _drawn(labels: Tensor, clients: int, beta: float, stream: Stream) -> list[Tensor]:
    checks.at_least("clients", clients, 1)
    if len(labels) < clients * FEWEST:
        raise TooFewRowsError(f"{len(labels):,} rows are too few for {clients:,} clients of at least {FEWEST}")
    classes = int(labels.max()) + 1
    for _ in range(_TRIES):
        ends = dirichlet(stream, classes, clients, beta).cumsum(1)
        found: list[list[Tensor]] = [[] for _ in range(clients)]
        for number, until in enumerate(ends):
            rows = (labels == number).nonzero()[:, 0]
            rows = rows[stream.permutation(len(rows))]
            cuts = (until[:-1] * len(rows)).round().long()
            for place, part in enumerate(rows.tensor_split(cuts)):
                found[place].append(part)
        if min(sum(map(len, parts)) for parts in found) >= FEWEST:
            return [torch.cat(parts).sort().values for parts in found]
    raise ArgumentError(
        f"beta {beta:g} hardly ever gives each of {clients:,} clients {FEWEST} of {len(labels):,} rows: "
        f"choose a larger one"
    )


def schedule(clients: Sequence[Client], sampled: Sequence[int], epochs: int, batch: int, stream: Stream) -> Schedule:
    """Every client goes through its rows in an order of its own in each epoch; the last batch of an epoch is smaller
    where its rows do not fill it."""
    order = sorted(sampled, key=lambda number: (-len(clients[number].train), number))
    steps = [epochs * -(-len(clients[number].train) // batch) for number in order]
    rows = torch.zeros(steps[0], len(order), batch, dtype=torch.int64)
    shares = torch.zeros(steps[0], len(order), batch)
    for place, number in enumerate(order):
        own = clients[number].train
        per_epoch = steps[place] // epochs
        filled = torch.zeros(epochs, per_epoch * batch, dtype=torch.int64)
        draws = stream.fork(f"client {number}")
        for epoch in range(epochs):
            filled[epoch, : len(own)] = own[draws.permutation(len(own))]
        real = (torch.arange(per_epoch * batch) < len(own)).view(per_epoch, batch).float()
        rows[: steps[place], place] = filled.view(-1, batch)
        shares[: steps[place], place] = (real / real.sum(1, keepdim=True)).repeat(epochs, 1)
    active = [sum(step < of for of in steps) for step in range(steps[0])]
    return Schedule(order, rows, shares, active, torch.tensor([len(clients[number].train) for number in order]))
