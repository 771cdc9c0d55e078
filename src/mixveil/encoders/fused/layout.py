"""Which words of a keystream belong to which value of a row. It is part of what a seed means: never change it.

A row of d values is cut into tiles of 1,024. A tile takes 64 blocks of 16 words; word t of block b belongs to the
tile's value 64·t + b, so that neighbours in memory have neighbouring counters. Words t and t + 8 of a block make a pair
of normals: t gives the radius, t + 8 the angle; value t has the cosine and value t + 8 the sine.
"""

from __future__ import annotations

LANES, WORDS = 64, 16
PAIRS = WORDS // 2
TILE = LANES * WORDS


def blocks_in_row(d: int) -> int:
    """How many blocks a row of d values takes; the last tile may use a part of its words."""
    return -(-d // TILE) * LANES


def place(row: int, column: int, d: int) -> tuple[int, int, bool]:
    """The block of a value, the pair in the block, and whether the value is the second of its pair."""
    tile, inside = divmod(column, TILE)
    word, lane = divmod(inside, LANES)
    return row * blocks_in_row(d) + tile * LANES + lane, word % PAIRS, word >= PAIRS
