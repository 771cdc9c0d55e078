"""One pairing ties records into rings, each to two neighbours: what all rows say of them is solved directly.

Along a ring the posterior precision is tridiagonal with two corners. Every second record of every ring is eliminated at
once (cyclic reduction), which leaves rings of half the length with the same form, until each has one record; then they
are put back. That is O(n) a direction, for all rings and any number of directions in a few large operations, on a GPU
too. The matrices are positive definite, and elimination without pivots is stable in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.theory.minimax import cycles

_BLOCK_VALUES, _BLOCK_ON_GPU = 1 << 22, 1 << 26


def directions(records: int, count: int, device: torch.device) -> Iterator[slice]:
    """So many directions in blocks: what is solved of so many records at a time is small beside the rows."""
    most = _BLOCK_VALUES if device.type == "cpu" else _BLOCK_ON_GPU
    size = max(1, most // max(1, records))
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


@dataclass(frozen=True)
class Rings:
    """Records in the order of their pairing. An open chain is closed by links that tie nothing.

    Attributes:
        order: (records,) the records, ring after ring.
        link: (records,) the row that ties each of them to the next one; −1: none does.
        levels: What is eliminated, step by step.
    """

    order: Tensor
    link: Tensor
    levels: tuple[_Level, ...]

    @classmethod
    def of(cls, partner: Tensor, records: int) -> Rings:
        """partner: (n,), the partner of each of the first n records, −1 for none; the others have no row of their own.
        No record may be a partner twice."""
        device = partner.device
        ahead = torch.full((records,), -1)
        ahead[: len(partner)] = partner.cpu()
        ends = ahead < 0
        begins = torch.ones(records, dtype=torch.bool)
        begins[ahead[~ends]] = False
        ahead[ends] = begins.nonzero()[:, 0]
        groups = list(cycles(ahead))
        order = torch.cat([group.flatten() for group in groups]) if groups else ahead
        length = torch.cat([torch.full((len(g),), g.shape[1]) for g in groups]) if groups else ahead
        link = torch.where(ends[order], -1, order)
        return cls(order.to(device), link.to(device), tuple(level.to(device) for level in _levels(length)))

    def solve(self, diagonal: Tensor, coupling: Tensor, target: Tensor) -> Tensor:
        """z with diagonal · z plus its neighbours' share = target, all (records, k). coupling: (n, k), of each row
        between its own record and its partner."""
        state, kept = self._reduced(diagonal, coupling, target)
        solved = state.target / (state.diagonal + 2 * state.ties)  # a ring of one is tied to itself, from both sides
        for level in reversed(self.levels):
            solved = _put_back(level, kept.pop(), solved)
        return self._unordered(solved)

    def variances(self, diagonal: Tensor, coupling: Tensor) -> Tensor:
        """(records, k) the diagonal of the inverse of the same matrices."""
        state, kept = self._reduced(diagonal, coupling, torch.zeros_like(diagonal))
        found = 1 / (state.diagonal + 2 * state.ties)
        beside = found  # the covariance with the next one of the ring, which is itself there
        for level in reversed(self.levels):
            found, beside = _spread_back(level, kept.pop(), found, beside)
        return self._unordered(found)

    def _reduced(self, diagonal: Tensor, coupling: Tensor, target: Tensor) -> tuple[_State, list[_Gone]]:
        """What is left when each ring has one record, and what is needed to go back."""
        ties, tied = torch.zeros_like(target), self.link >= 0
        ties[tied] = coupling[self.link[tied]]
        state, kept = _State(diagonal[self.order], ties, target[self.order]), []
        for level in self.levels:
            state, gone = _halved(level, state)
            kept.append(gone)
        return state, kept

    def _unordered(self, values: Tensor) -> Tensor:
        found = torch.empty_like(values)
        found[self.order] = values
        return found


class _Level(NamedTuple):
    """One step: places that stay and go, (m,) among those before it; and among those that stay, each place's neighbours
    before and after it."""

    stay: Tensor
    go: Tensor
    before: Tensor
    after: Tensor

    def to(self, device: torch.device) -> _Level:
        return _Level(*(places.to(device) for places in self))


class _State(NamedTuple):
    """diagonal, ties to the next one of the ring, and target, (m, k) each."""

    diagonal: Tensor
    ties: Tensor
    target: Tensor


class _Gone(NamedTuple):
    """variance, alone: (m, k) of those that went, if their neighbours are known to be zero; shares: (2, m, k) by which
    the neighbours before and after enter them, with a minus."""

    variance: Tensor
    alone: Tensor
    shares: Tensor


def _levels(length: Tensor) -> Iterator[_Level]:
    """Of rings of these lengths, which lie one after another."""
    while len(length) and int(length.max()) > 1:
        starts = length.cumsum(0) - length
        start = starts.repeat_interleave(length)
        place = torch.arange(len(start))
        odd = (place - start) % 2 == 1
        number = (~odd).cumsum(0) - 1  # among those that stay
        go = odd.nonzero()[:, 0]
        last = go + 1 == (starts + length).repeat_interleave(length)[go]
        yield _Level((~odd).nonzero()[:, 0], go, number[go - 1], number[torch.where(last, start[go], go + 1)])
        length = (length + 1) // 2


def _halved(level: _Level, state: _State) -> tuple[_State, _Gone]:
    """The rings without every second record, and what is needed to put those back."""
    scale = 1 / state.diagonal[level.go]
    diagonal, ties, target = (values[level.stay] for values in state)
    left, right = ties[level.before], state.ties[level.go]
    shares = torch.stack([left, right]).mul_(scale)
    alone = state.target[level.go] * scale
    for neighbour, tie, share in ((level.before, left, shares[0]), (level.after, right, shares[1])):
        diagonal[neighbour] -= tie * share  # no two that go have the same neighbour on one side
        target[neighbour] -= tie * alone
    ties[level.before] = -left * shares[1]
    return _State(diagonal, ties, target), _Gone(scale, alone, shares)


def _put_back(level: _Level, gone: _Gone, solved: Tensor) -> Tensor:
    whole = solved.new_empty(len(level.stay) + len(level.go), solved.shape[1])
    whole[level.stay] = solved
    whole[level.go] = gone.alone - gone.shares[0] * solved[level.before] - gone.shares[1] * solved[level.after]
    return whole


def _spread_back(level: _Level, gone: _Gone, variance: Tensor, beside: Tensor) -> tuple[Tensor, Tensor]:
    """The variances of all, and their covariances with the next ones, from those of the ones that stay."""
    left, right = gone.shares
    before, after, between = variance[level.before], variance[level.after], beside[level.before]
    with_before, with_after = -left * before - right * between, -left * between - right * after
    whole = variance.new_empty(len(level.stay) + len(level.go), variance.shape[1])
    covariance = torch.empty_like(whole)
    whole[level.stay], covariance[level.stay] = variance, beside
    whole[level.go] = gone.variance - left * with_before - right * with_after
    covariance[level.stay[level.before]], covariance[level.go] = with_before, with_after
    return whole, covariance
