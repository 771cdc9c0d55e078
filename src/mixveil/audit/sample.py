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

from mixveil.keys import Stream
from mixveil.parts import Part
from mixveil.types import Dataset, Trace, View


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
    if rows <= most:
        return Sample(view, truth, torch.arange(rows))
    order = stream.permutation(rows).tolist()
    partners = torch.cat([t.partner for t in view.traces or ()], dim=1).tolist() if view.traces else None
    chosen = _walk(order, partners, most)
    numbers = torch.tensor(chosen)
    place = {number: i for i, number in enumerate(chosen)}
    traces = None
    if view.traces is not None:
        for trace in view.traces:
            for partner in trace.partner[numbers].flatten().tolist():
                place.setdefault(partner, len(place))
        traces = tuple(
            Trace(torch.tensor([[place[p] for p in row] for row in t.partner[numbers].tolist()]), t.weight[numbers])
            for t in view.traces
        )
    releases = tuple(replace(release, payload=Part(release.payload, numbers)) for release in view.releases)
    return Sample(replace(view, releases=releases, traces=traces), Part(truth, torch.tensor(list(place))), numbers)


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
