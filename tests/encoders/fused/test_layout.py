"""Every value of a release has a place in the keystream, and no two have the same."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mixveil.encoders.fused import layout


@given(st.integers(1, 2500), st.integers(0, 1 << 33))
@settings(max_examples=60, deadline=None)
def test_no_two_values_share_a_normal_and_rows_share_no_block(d: int, row: int) -> None:
    blocks = layout.blocks_in_row(d)
    for number in (row, row + 1):
        places = [layout.place(number, column, d) for column in range(d)]
        assert len(set(places)) == d
        assert all(number * blocks <= block < (number + 1) * blocks for block, _, _ in places)
        assert {pair for _, pair, _ in places} <= set(range(layout.PAIRS))


def test_both_values_of_a_pair_lie_half_a_tile_apart() -> None:
    d = 3 * layout.TILE
    for column in range(d - layout.TILE // 2):
        if column % layout.TILE < layout.TILE // 2:
            (block, pair, second), other = (layout.place(5, c, d) for c in (column, column + layout.TILE // 2))
            assert not second and other == (block, pair, True)


def test_a_whole_tile_uses_all_words_of_its_blocks() -> None:
    assert {layout.place(0, column, layout.TILE) for column in range(layout.TILE)} == {
        (lane, pair, second) for lane in range(layout.LANES) for pair in range(layout.PAIRS) for second in (False, True)
    }
    assert layout.blocks_in_row(layout.TILE) == layout.LANES
    assert layout.blocks_in_row(layout.TILE + 1) == 2 * layout.LANES
