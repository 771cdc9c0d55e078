"""Rows of one record each, from planted similarities."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mixveil.attacks.shared.breaks.clusters import (
    _apart,
    _exchanged,
    _grown,
    _quotas,
    _unexplained,
    clusters,
    common_class,
    in_order,
)
from mixveil.core.randomness import SeededStream

RECORDS, RELEASES = 40, 24
COUNTS = [6, 5, 5, 4, 4, 4, 3, 3, 3, 3]
KINDS = torch.repeat_interleave(torch.arange(len(COUNTS)), torch.tensor(COUNTS))


def pairs(seed: int) -> Tensor:
    """(m, 2) the records of rows: each record and another one, release after release."""
    stream, own = SeededStream(seed), torch.arange(RECORDS)
    return torch.cat([torch.stack([own, stream.derangement(RECORDS)], dim=1) for _ in range(RELEASES)])


def labels(sources: Tensor, seed: int, kinds: Tensor = KINDS) -> Tensor:
    """(m, classes) of records in these rows, by random weights."""
    weight = 0.3 + 0.4 * SeededStream(seed).uniform(*sources.shape)
    y = torch.zeros(len(sources), int(kinds.max()) + 1, dtype=torch.float64)
    return y.scatter_add_(1, kinds[sources], weight / weight.sum(1, keepdim=True))


def planted(sources: Tensor, noise: float, seed: int) -> Tensor:
    """(m, m) how many records two rows share, and noise."""
    held = torch.zeros(len(sources), RECORDS).scatter_(1, sources, 1.0)
    errors = noise * SeededStream(seed).normal(len(sources), len(sources)).float().triu(1)
    return held @ held.T + errors + errors.T


@pytest.mark.parametrize("seed", range(3))
def test_every_record_has_a_part_of_rows_that_hold_it(seed: int) -> None:
    sources = pairs(seed)
    found = clusters(planted(sources, 0.4, seed), labels(sources, seed), RECORDS, 2)
    size = 2 * len(sources) // RECORDS // 4
    assert found.rows.shape == (RECORDS, size) and all(len(set(part)) == size for part in found.rows.tolist())
    shared = [set.intersection(*({*sources[row].tolist()} for row in part)) for part in found.rows.tolist()]
    assert all(len(records) == 1 for records in shared) and set.union(*shared) == set(range(RECORDS))
    assert [int(KINDS[record]) for (record,) in shared] == found.classes.tolist()


def test_records_that_the_first_parts_miss_are_found_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where parts begin with one row for each record."""
    sources, found = pairs(1), []
    monkeypatch.setattr("mixveil.attacks.shared.breaks.clusters._STARTS", 1)
    for again in (0, 2):
        monkeypatch.setattr("mixveil.attacks.shared.breaks.clusters._AGAIN", again)
        rows = clusters(planted(sources, 0.4, 1), labels(sources, 1), RECORDS, 2).rows
        shared = [set.intersection(*({*sources[row].tolist()} for row in part)) for part in rows.tolist()]
        found.append(len(set.union(*shared)))
    assert found[0] < RECORDS - 5 and found[1] == RECORDS


def test_what_was_given_is_not_changed() -> None:
    sources = pairs(1)
    alike, y = planted(sources, 0.2, 1), labels(sources, 1)
    before = alike.clone(), y.clone()
    clusters(alike, y, RECORDS, 2)
    assert torch.equal(alike, before[0]) and torch.equal(y, before[1])


def test_how_alike_a_row_is_to_itself_does_not_count() -> None:
    sources = pairs(1)
    alike, y = planted(sources, 0.2, 1), labels(sources, 1)
    found, again = (clusters(x, y, RECORDS, 2) for x in (alike, alike + 50 * torch.eye(len(alike))))
    assert torch.equal(found.rows, again.rows) and torch.equal(found.classes, again.classes)


def test_rows_that_are_as_alike_as_any_show_no_records() -> None:
    """Without anything shared, parts are as the noise is: few of them hold one record."""
    sources = pairs(1)
    noise = planted(sources, 0.2, 1) - planted(sources, 0.0, 1)
    found = clusters(noise, labels(sources, 1), RECORDS, 2)
    held = [[{*sources[row].tolist()} for row in part] for part in found.rows.tolist()]
    assert sum(bool(set.intersection(*part)) for part in held) <= 2


def test_a_part_changes_a_row_that_is_not_like_the_others() -> None:
    alike = torch.zeros(6, 6)
    alike[:3, :3] = 1.0
    alike[3:, 3:] = 0.5
    alike.fill_diagonal_(0)
    found = _exchanged(alike, torch.tensor([[0, 1, 4], [3, 4, 5]]))
    assert [sorted(part) for part in found.tolist()] == [[0, 1, 2], [3, 4, 5]]


def test_a_part_keeps_its_rows_where_others_are_less_like_each_of_them() -> None:
    """A row of the part is compared with one other row, a row from outside with two."""
    alike = torch.tensor([[0.0, 1.0, 0.6], [1.0, 0.0, 0.6], [0.6, 0.6, 0.0]])
    assert sorted(_exchanged(alike, torch.tensor([[0, 1]]))[0].tolist()) == [0, 1]


def test_a_part_grows_by_the_row_of_its_class_that_is_most_like_all_of_it() -> None:
    alike = torch.zeros(5, 5)
    for first, second, value in ((0, 1, 1.0), (0, 2, 0.9), (0, 3, 0.5), (1, 3, 0.8), (0, 4, 2.0), (1, 4, 2.0)):
        alike[first, second] = alike[second, first] = value
    y = torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.5, 0.5], [0.3, 0.7], [0.0, 1.0]])
    found = _grown(alike, y, torch.tensor([0, 0]), torch.tensor([0, 1]), 3)
    assert found.tolist() == [[0, 1, 3], [0, 4, 2]]  # for the second class not row 1, which does not show it


def test_rows_that_no_part_explains_are_begun_with_again() -> None:
    """Rows 0 to 3 hold a record that has a part, rows 4 and 5 one that has none; of these only large shares count. Of
    rows that are equally alike to a part, it explains those least that hold most."""
    alike = torch.zeros(6, 6)
    alike[:4, :4] = 1.0
    alike[4:, 4:] = 1.0
    share = torch.tensor([0.6, 0.7, 0.8, 0.9, 0.8, 0.4])
    y = torch.stack([share, 1 - share], dim=1)
    rows, classes = _unexplained(alike, y, torch.tensor([[0, 1]]), torch.tensor([0]), 1)
    begun = list(zip(rows.tolist(), classes.tolist(), strict=True))
    assert set(begun[:2]) == {(4, 0), (5, 1)} and begun[2:] == [(3, 0), (2, 0), (1, 0), (0, 0)]


@pytest.mark.parametrize("private", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_labels_say_exactly_how_many_records_a_class_has(private: int, seed: int) -> None:
    """However large the shares are: here those of some classes are far larger than those of others."""
    kinds = KINDS[SeededStream(seed).permutation(RECORDS)]
    y = labels(pairs(seed)[:, :private], seed, kinds) * torch.linspace(1, 3, len(COUNTS), dtype=torch.float64)
    assert _quotas(y / y.sum(1, keepdim=True), RECORDS, private) == COUNTS


def test_of_more_records_in_a_row_the_shares_say_how_many_are_of_a_class() -> None:
    sources = torch.cat([pairs(1), pairs(2)], dim=1)
    assert _quotas(labels(sources, 1), RECORDS, 4) == COUNTS
    y = torch.tensor([[0.5, 0.3, 0.2]])
    assert _quotas(y, 7, 3) == [4, 2, 1]  # of 3.5, 2.1 and 1.4 the largest rest is rounded up
    assert _quotas(y, 8, 3) == [4, 2, 2]


def test_in_order_every_record_has_its_own_rows() -> None:
    sources = pairs(2)
    order = SeededStream(3).permutation(len(sources))
    sources = sources[order]
    y = labels(sources, 2)
    found = in_order(sources[:, 0], y, RECORDS)
    for record, rows in enumerate(found.rows.tolist()):
        assert rows == [row for row, (own, _) in enumerate(sources.tolist()) if own == record]
    assert torch.equal(found.classes, KINDS)


def test_the_common_class_is_the_one_that_a_loop_finds() -> None:
    stream, tied = SeededStream(4), 0
    y = stream.uniform(30, 5) * (stream.uniform(30, 5) < 0.5)
    rows = (stream.uniform(200, 4) * 30).long()
    for part, found in zip(rows.tolist(), common_class(y, rows).tolist(), strict=True):
        shown = [sum(float(y[row, number]) > 0 for row in part) for number in range(5)]
        most = [number for number in range(5) if shown[number] == max(shown)]
        assert found == max(most, key=lambda number: sum(float(y[row, number]) for row in part))
        tied += len(most) > 1
    assert tied > 20


def test_a_class_in_all_labels_is_before_one_with_larger_shares() -> None:
    y = torch.tensor([[0.01, 0.99, 0.0], [0.01, 0.99, 0.0], [0.01, 0.0, 0.99]])
    assert common_class(y, torch.tensor([[0, 1, 2], [0, 1, 1]])).tolist() == [0, 1]


def test_a_part_of_rows_that_are_not_alike_comes_after_all_others() -> None:
    alike = torch.zeros(6, 6)
    for first, second, value in ((0, 1, 1.0), (2, 3, 0.8), (4, 5, -0.1)):
        alike[first, second] = alike[second, first] = value
    rows = torch.tensor([[4, 5], [0, 1], [2, 3]])
    assert _apart(alike, rows, torch.zeros(3, dtype=torch.int64), [3]).tolist() == [1, 2, 0]
