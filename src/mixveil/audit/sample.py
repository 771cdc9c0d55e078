"""A part of large releases that can be attacked in memory: rows that hang together by their pairs.

An attacker who sees all rows gets at least as much. Along one pairing nearly nothing is lost, for what a row says of
another fades with every pair between them; of several releases a part says less than the whole.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.core.randomness import Stream
from mixveil.core.types import Dataset, View
from mixveil.data.row_views import Subset


class Sample(NamedTuple):
    """view: of n rows; records: the n that own them, then those that only were partners; numbers: (n,) of the
    rows in the whole."""

    view: View
    records: Dataset
    numbers: Tensor


def sample(view: View, truth: Dataset, most: int, stream: Stream) -> Sample:
    """The whole, if it has at most that many rows; else that many, found by walking from pair to pair. The first
    records own the rows; where rows were dropped, there are others."""
    rows = len(view.releases[0].payload)
    if rows <= most:  # of many covers, those that no row holds are left out of the truth
        return Sample(view, truth, torch.arange(rows)) if view.covers is None else _part(view, truth, [*range(rows)])
    order = stream.permutation(rows).tolist()
    partners = torch.cat([t.partner for t in view.traces or ()], dim=1).tolist() if view.traces else None
    return _part(view, truth, _walk(order, partners, most))


def unit_sample(view: View, truth: Dataset, whose: Tensor, most: int, stream: Stream) -> tuple[Sample, Tensor]:
    """The same for whole units: some of them, with every row that holds a record of theirs. whose: (n,) the unit of
    each row. Also returns (m,) the unit of each row of the part, −1 where it is not whole there."""
    rows = len(view.releases[0].payload)
    if rows <= most:
        return Sample(view, truth, torch.arange(rows)), whose
    holders: list[set[int]] = [{row} for row in range(rows)]
    for trace in view.traces or ():
        for row, partners in enumerate(trace.partner.tolist()):
            for partner in (partner for partner in partners if partner < rows):  # others have no row, or are covers
                holders[partner].add(row)
    own = [(whose == unit).nonzero()[:, 0].tolist() for unit in range(int(whose.max()) + 1)]
    chosen: dict[int, None] = {}
    taken: list[int] = []
    for unit in stream.permutation(len(own)).tolist():
        more = dict.fromkeys([*own[unit], *(row for record in own[unit] for row in sorted(holders[record]))])
        if len(chosen | more) <= most:
            chosen |= more
            taken.append(unit)
    part = _part(view, truth, list(chosen))
    here = whose[part.numbers]
    return part, torch.where(torch.isin(here, torch.tensor(taken, dtype=torch.int64)), here, -1)


def _part(view: View, truth: Dataset, chosen: list[int]) -> Sample:
    """The rows that were chosen, with all that they are made of."""
    numbers = torch.tensor(chosen, dtype=torch.int64)
    place = {number: i for i, number in enumerate(chosen)}
    traces = None
    if view.traces is not None:
        for trace in view.traces:
            for partner in trace.partner[numbers].flatten().tolist():
                place.setdefault(partner, len(place))
        renumbered = torch.full((len(truth),), -1)
        renumbered[torch.tensor(list(place))] = torch.arange(len(place))
        traces = tuple(trace.part(numbers, renumbered) for trace in view.traces)
    releases = tuple(replace(release, payload=Subset(release.payload, numbers)) for release in view.releases)
    return Sample(replace(view, releases=releases, traces=traces), Subset(truth, torch.tensor(list(place))), numbers)


def _walk(order: list[int], partners: list[list[int]] | None, most: int) -> list[int]:
    """The first rows of a walk that goes to partners before it goes anywhere else."""
    seen: dict[int, None] = {}
    for start in order:
        waiting = deque([start])
        while waiting and len(seen) < most:
            row = waiting.popleft()
            if row not in seen:
                seen[row] = None
                waiting.extend(p for p in (partners[row] if partners is not None else ()) if p < len(order))
        if len(seen) == most:
            break
    return list(seen)
