from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.theory.dropped_rows import BrokenCycles, broken_cycles
from tests.made import mixing_matrix


def walked(partner: Tensor) -> list[list[int]]:
    """The cycles, one step at a time."""
    left, found = set(range(len(partner))), []
    while left:
        cycle = [min(left)]
        while int(partner[cycle[-1]]) != cycle[0]:
            cycle.append(int(partner[cycle[-1]]))
        found.append(cycle)
        left -= set(cycle)
    return found


def determined(matrix: Tensor) -> list[bool]:
    """Of each record, whether rows without noise determine it: whether picking it out is a combination of rows."""
    if not len(matrix):
        return [False] * matrix.shape[1]
    within = torch.linalg.pinv(matrix, rtol=1e-9) @ matrix  # onto what the rows span
    return [bool(abs(float(within[i, i]) - 1) < 1e-6) for i in range(len(within))]


@pytest.mark.parametrize("seed", range(25))
def test_it_counts_what_a_slow_walk_counts_and_opened_cycles_determine_nothing(seed: int) -> None:
    stream = SeededStream(seed)
    n = 2 + int(stream.uniform(1) * 30)
    partner, weight = stream.permutation(n), stream.capped_weights(n, 0.7)
    kept = stream.uniform(n) < 0.8
    matrix = mixing_matrix(partner, weight)
    broken = 0
    for cycle in walked(partner):
        rows = [row for row in cycle if kept[row]]
        part = matrix[rows][:, cycle]
        whole = len(rows) == len(cycle)
        broken += not whole
        assert determined(part) == [whole] * len(cycle)
        assert int(torch.linalg.matrix_rank(part)) == len(rows) if rows else True
    times = [sum(int(bool(kept[r])) * ((r == i) + (int(partner[r]) == i)) for r in range(n)) for i in range(n)]
    found = broken_cycles(partner, kept)
    assert found == BrokenCycles(len(walked(partner)), broken, times.count(2), times.count(1), times.count(0))


def test_what_is_no_pairing_is_refused() -> None:
    with pytest.raises(ArgumentError, match="permutation"):
        broken_cycles(torch.tensor([0, 0]), torch.tensor([True, True]))
    with pytest.raises(ArgumentError, match="kept must be 2 flags"):
        broken_cycles(torch.tensor([1, 0]), torch.tensor([True]))
    with pytest.raises(ArgumentError, match="kept must be 2 flags"):
        broken_cycles(torch.tensor([1, 0]), torch.tensor([1, 1]))
