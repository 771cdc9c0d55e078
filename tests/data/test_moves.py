"""Moves of images, against a slow twin."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from mixveil.data.moves import all_moves, moved, moved_back


@given(st.integers(0, 1), st.integers(-6, 6), st.integers(-6, 6))
def test_a_move_and_its_way_back(mirror: int, down: int, right: int) -> None:
    x = torch.arange(2 * 5 * 4, dtype=torch.float32).view(1, 2, 5, 4) + 1
    move = torch.tensor([[mirror, down, right]])
    first = x.flip(3) if mirror else x
    expected = torch.full_like(x, -1)
    for row in range(5):
        for column in range(4):
            if 0 <= row - down < 5 and 0 <= column - right < 4:
                expected[0, :, row, column] = first[0, :, row - down, column - right]
    there = moved(x, move, -1.0)
    assert torch.equal(there, expected)
    back, stayed = moved_back(there, move, -1.0), moved_back(moved(torch.ones_like(x), move, 0.0), move, 0.0) == 1
    assert torch.equal(back[stayed], x[stayed]) and bool((back[~stayed] == -1).all())


def test_every_move_is_there_once() -> None:
    moves = [tuple(move) for move in all_moves(2).tolist()]
    assert len(moves) == len(set(moves)) == 2 * 5 * 5
    assert all_moves(0).tolist() == [[0, 0, 0]]
