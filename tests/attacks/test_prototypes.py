"""The records of rows and how they were moved, from planted maps; every part against a slow loop."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from mixveil.attacks.shared.breaks.clusters import Clusters, in_order
from mixveil.attacks.shared.breaks.prototypes import Placed, _Places, alike_in_places, label_weights, placed
from mixveil.core.randomness import SeededStream
from mixveil.data.moves import all_moves, moved, moved_back

RECORDS, RELEASES, SIDE = 12, 8, 12
KINDS = torch.arange(RECORDS) % 4


class Planted(NamedTuple):
    """Rows (m, c, h, w) of two records each, in order; with their labels and the truth."""

    rows: Tensor
    y: Tensor
    sources: Tensor
    moves: Tensor


def planted(reach: int, noise: float, seed: int) -> Planted:
    """Maps of independent values, weighed and added: each record and another one, release after release."""
    stream, count = SeededStream(seed), RECORDS * RELEASES
    maps = stream.normal(RECORDS, 2, SIDE, SIDE).float()
    others = torch.cat([stream.derangement(RECORDS) for _ in range(RELEASES)])
    sources = torch.stack([torch.arange(RECORDS).repeat(RELEASES), others], dim=1)
    every = all_moves(reach)
    moves = every[(stream.uniform(count, 2) * len(every)).long()]
    weight = 0.4 + 0.2 * stream.uniform(count)
    weights = torch.stack([weight, 1 - weight], dim=1)
    rows = noise * stream.normal(count, 2, SIDE, SIDE).float()
    for column in range(2):
        rows += moved(maps[sources[:, column]], moves[:, column], 0.0) * weights[:, column].float().view(-1, 1, 1, 1)
    y = torch.zeros(count, 4, dtype=torch.float64).scatter_add_(1, KINDS[sources], weights)
    return Planted(rows, y, sources, moves)


def some_rows(sources: Tensor, each: int) -> Tensor:
    """(n, each) the first rows that hold each record."""
    return torch.stack([(sources == record).any(1).nonzero()[:each, 0] for record in range(RECORDS)])


def relative(moves: Tensor) -> list[list[int]]:
    """How rows (m, 3) of one record were moved beside the first: no move of the record itself changes that."""
    turn, down, right = 1 - 2 * moves[:, 0], moves[:, 1], moves[:, 2]
    both = turn * turn[0]
    return torch.stack([both, down - down[0], right - both * right[0]], dim=1).tolist()


def moves_are_found(truth: Planted, found: Placed) -> bool:
    for record in range(RECORDS):
        mine, told = truth.sources == record, found.sources == record
        if not torch.equal(mine.any(1), told.any(1)) or relative(truth.moves[mine]) != relative(found.moves[told]):
            return False
    return True


def by_hand(rows: Tensor, here: Placed, weights: Tensor, reach: int) -> tuple[Tensor, Tensor]:
    """(m, n) fit and (m, n) its lead before the next best place: prototypes are made without the row, one by one."""
    every, fit, lead = all_moves(2 * reach), torch.zeros(len(rows), RECORDS), torch.zeros(len(rows), RECORDS)
    for row in range(len(rows)):
        for record in range(RECORDS):
            total, weight = torch.zeros_like(rows[:1]), 0.0
            for other, column in (here.sources == record).nonzero().tolist():
                if other != row:
                    share = float(weights[other, column])
                    total += share * moved_back(rows[other : other + 1], here.moves[other, column : column + 1], 0.0)
                    weight += share
            scores = (rows[row] * moved(total.expand(len(every), -1, -1, -1), every, 0.0)).sum((1, 2, 3)) / weight
            best = scores.topk(min(2, len(every))).values
            fit[row, record], lead[row, record] = best[0], best[0] - best[-1]
    return fit, lead


def test_weights_are_the_shares_of_labels_in_equal_parts() -> None:
    stream = SeededStream(1)
    y = stream.uniform(50, 4)
    y /= y.sum(1, keepdim=True)
    sources = (stream.uniform(50, 3) * (RECORDS + 1)).long() - 1
    found = label_weights(sources, y, KINDS)
    for row, held in enumerate(sources.tolist()):
        kinds = [int(KINDS[record]) if record >= 0 else None for record in held]
        expected = [0.0 if kind is None else float(y[row, kind]) / kinds.count(kind) for kind in kinds]
        assert found[row].tolist() == pytest.approx(expected)
    assert bool((sources < 0).any()) and found.dtype == y.dtype


@pytest.mark.parametrize(("reach", "height", "width"), [(0, 4, 5), (1, 4, 5), (2, 5, 7)])
def test_rows_are_as_alike_as_in_their_best_place(reach: int, height: int, width: int) -> None:
    maps = SeededStream(reach).normal(9, 3, height, width).float()
    found = alike_in_places(maps, reach)
    every = all_moves(2 * reach)
    for first in range(9):
        for second in range(9):
            places = [float((maps[first] * moved(maps[second : second + 1], move[None], 0.0)).sum()) for move in every]
            assert float(found[first, second]) == pytest.approx(max(places), abs=1e-3)


def test_an_image_is_as_alike_to_itself_in_any_place_within_the_reach() -> None:
    inner = torch.zeros(1, 1, 9, 9)
    inner[:, :, 3:6, 3:6] = SeededStream(1).normal(1, 1, 3, 3).float()
    energy = inner.square().sum()
    every = moved(inner.expand(18, -1, -1, -1), all_moves(1), 0.0)
    assert torch.allclose(alike_in_places(every, 1), energy.expand(18, 18), rtol=1e-4)
    farther = moved(inner.expand(2, -1, -1, -1), torch.tensor([[0, 0, -1], [0, 0, 2]]), 0.0)
    assert float(alike_in_places(farther, 1)[0, 1]) < 0.98 * float(energy)


def test_blocks_of_pairs_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = SeededStream(2).normal(9, 2, 6, 6).float()
    whole = alike_in_places(maps, 1)
    monkeypatch.setattr("mixveil.attacks.shared.breaks.prototypes._WAVES", 1000)
    assert torch.allclose(alike_in_places(maps, 1), whole, atol=1e-4)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_records_of_rows_are_found_from_a_few_rows_of_each(seed: int, known: bool) -> None:
    truth = planted(reach=0, noise=1.0, seed=seed)
    own = truth.sources[:, 0] if known else None
    found = placed(truth.rows, truth.y, Clusters(some_rows(truth.sources, 4), KINDS), 2, own=own, reach=0)
    assert torch.equal(found.sources.sort(1).values, truth.sources.sort(1).values)
    assert own is None or torch.equal(found.sources[:, 0], own)
    assert found.moves.shape == (len(truth.rows), 2, 3) and not bool(found.moves.any())


def test_where_one_record_of_each_row_is_known_the_other_is_found() -> None:
    truth = planted(reach=0, noise=1.0, seed=3)
    own = truth.sources[:, 0]
    found = placed(truth.rows, truth.y, in_order(own, truth.y, RECORDS), 2, own=own, reach=0)
    assert torch.equal(found.sources, truth.sources)


@pytest.mark.parametrize("seed", range(2))
def test_records_and_their_moves_are_found_up_to_mirroring(seed: int) -> None:
    truth = planted(reach=1, noise=0.2, seed=seed)
    found = placed(truth.rows, truth.y, Clusters(some_rows(truth.sources, 4), KINDS), 2, own=None, reach=1)
    assert torch.equal(found.sources.sort(1).values, truth.sources.sort(1).values)
    assert moves_are_found(truth, found) and int(found.moves.abs().max()) == 1
    still = placed(truth.rows, truth.y, Clusters(some_rows(truth.sources, 4), KINDS), 2, own=None, reach=0)
    assert not torch.equal(still.sources.sort(1).values, truth.sources.sort(1).values)


def test_where_records_are_known_their_moves_are_found() -> None:
    truth = planted(reach=1, noise=0.2, seed=2)
    own = truth.sources[:, 0]
    start = in_order(own, truth.y, RECORDS)
    found = placed(truth.rows, truth.y, start, 2, own=own, reach=1, sources=truth.sources)
    assert torch.equal(found.sources, truth.sources) and moves_are_found(truth, found)
    fewer = truth.sources.clone()
    fewer[5, 1] = -1
    found = placed(truth.rows, truth.y, start, 2, own=own, reach=1, sources=fewer)
    assert torch.equal(found.sources, fewer)


@pytest.mark.parametrize("reach", [0, 1, 2])
def test_a_row_is_no_part_of_the_prototypes_that_it_is_compared_with(reach: int) -> None:
    truth = planted(reach, noise=0.5, seed=4)
    here = Placed(truth.sources[:24], truth.moves[:24])
    rows, weights = truth.rows[:24], label_weights(here.sources, truth.y[:24], KINDS)
    expected, lead = by_hand(rows, here, weights, reach)
    fit, moves = _Places(rows, reach).fit(here, weights, RECORDS)
    assert torch.allclose(fit, expected, atol=1e-3)
    assert bool((lead > 1e-3).any()) == bool(reach) and moves.shape == (24, RECORDS, 3)


def test_rows_are_compared_with_prototypes_of_other_records_in_every_place() -> None:
    truth = planted(1, noise=0.5, seed=4)
    here = Placed(truth.sources[:24], truth.moves[:24])
    rows, weights = truth.rows[:24], label_weights(here.sources, truth.y[:24], KINDS)
    places = _Places(rows, 1)
    fit, moves = places.fit(here, weights, RECORDS)
    expected, _ = by_hand(rows, here, weights, 1)
    other = (here.sources[:, :, None] != torch.arange(RECORDS)).all(1)
    assert torch.allclose(fit[other], expected[other], atol=1e-3)
    sums = places.sums(here, weights, RECORDS)
    for row, record in other.nonzero()[::7].tolist():
        there = moved(sums[record : record + 1], moves[row, record][None], 0.0)[0]
        weight = float(weights[here.sources == record].sum())
        assert float((rows[row] * there).sum()) / weight == pytest.approx(float(expected[row, record]), abs=1e-3)


def test_a_record_is_put_where_its_moves_are_within_the_reach() -> None:
    sources = torch.tensor([[0], [0], [0], [1], [-1]])
    moves = torch.tensor([[[0, 4, 3]], [[1, 2, -1]], [[0, 3, 1]], [[1, 0, 2]], [[0, 4, 4]]])
    found = _Places(torch.zeros(5, 1, 3, 3), 2).centred(Placed(sources, moves), 2).moves
    assert relative(found[:3, 0]) == relative(moves[:3, 0])
    assert found[:, 0].tolist() == [[0, 1, 1], [1, -1, 1], [0, 0, -1], [1, 0, 0], [0, 4, 4]]
