"""Which records are in which rows, against a search of all assignments."""

from __future__ import annotations

from itertools import chain, combinations

import pytest
import torch
from torch import Tensor

from mixveil.attacks.shared.breaks.assignment import assigned
from mixveil.core.randomness import SeededStream

Rank = tuple[int, int, float]


def drawn(rows: int, records: int, classes: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """How well records fit, random labels of one class at least, and the classes of the records."""
    stream = SeededStream(seed)
    kinds = torch.arange(records) % classes
    y = stream.uniform(rows, classes) * (stream.uniform(rows, classes) < 0.4)
    y[torch.arange(rows), kinds[(stream.uniform(rows) * records).long()]] += 0.1
    return stream.normal(rows, records).float(), y / y.sum(1, keepdim=True), kinds


def worth(fit: Tensor, may: list[list[int]], own: list[int] | None) -> list[list[float]]:
    """What it is worth that a row has a record: how well it fits, and at least one."""
    scaled = (fit / fit.std()).tolist()
    tried = [
        scaled[row][record]
        for row, records in enumerate(may)
        for record in records
        if own is None or own[row] != record
    ]
    least = min([0.0, *tried])
    return [[value - least + 1 for value in row] for row in scaled]


def ranked(fit: Tensor, y: Tensor, classes: Tensor, held: list[list[int]], own: Tensor | None) -> Rank:
    """How good an assignment is: own records that are kept, then classes of labels that are covered, then the worth."""
    may, kinds = allowed(y, classes, own), classes.tolist()
    value = worth(fit, may, None if own is None else own.tolist())
    kept = 0 if own is None else sum(int(own[row]) in records for row, records in enumerate(held))
    shown = [set(label.nonzero()[:, 0].tolist()) for label in y > 0]
    covered = sum(len(shown[row] & {kinds[record] for record in records}) for row, records in enumerate(held))
    return kept, covered, sum(value[row][record] for row, records in enumerate(held) for record in records)


def allowed(y: Tensor, classes: Tensor, own: Tensor | None) -> list[list[int]]:
    """The records of each row that its label may mean, and its own."""
    may = [{record for record, kind in enumerate(classes.tolist()) if label[kind] > 0} for label in y]
    if own is not None:
        may = [records | {int(mine)} for records, mine in zip(may, own, strict=True)]
    return [sorted(records) for records in may]


def best_of_all(fit: Tensor, y: Tensor, classes: Tensor, private: int, own: Tensor | None) -> Rank:
    """By trying all: every row with up to `private` records, every record in no more rows than are due to it."""
    rows, records = fit.shape
    each = -(-rows * private // records)
    may = allowed(y, classes, own)
    best: list[Rank] = []

    def go(held: list[list[int]], used: list[int]) -> None:
        if len(held) == rows:
            found = ranked(fit, y, classes, held, own)
            best[:] = [max([found, *best])]
            return
        choices = may[len(held)]
        for chosen in chain.from_iterable(combinations(choices, size) for size in range(private + 1)):
            if all(used[record] < each for record in chosen):
                go([*held, list(chosen)], [count + (record in chosen) for record, count in enumerate(used)])

    go([], [0] * records)
    return best[0]


def listed(found: Tensor) -> list[list[int]]:
    return [[record for record in row if record >= 0] for row in found.tolist()]


@pytest.mark.parametrize(
    ("rows", "records", "private", "classes"), [(3, 3, 2, 2), (4, 3, 2, 3), (3, 4, 2, 2), (2, 4, 3, 3), (5, 3, 1, 2)]
)
@pytest.mark.parametrize("known", [False, True])
def test_no_other_assignment_is_better(rows: int, records: int, private: int, classes: int, known: bool) -> None:
    for seed in range(12):
        fit, y, kinds = drawn(rows, records, classes, seed)
        own = torch.arange(rows) % records if known else None
        held = listed(assigned(fit, y, kinds, private, own))
        counts = [sum(record in row for row in held) for record in range(records)]
        assert max(counts) <= -(-rows * private // records)
        assert all(len(row) == len(set(row)) <= private for row in held)
        assert all(set(row) <= set(may) for row, may in zip(held, allowed(y, kinds, own), strict=True))
        found, best = ranked(fit, y, kinds, held, own), best_of_all(fit, y, kinds, private, own)
        assert found[:2] == best[:2] and found[2] == pytest.approx(best[2], abs=1e-4), (seed, held)


def test_records_that_fit_far_better_are_found_with_equally_many_rows_each() -> None:
    stream = SeededStream(3)
    truth = torch.cat([torch.stack([torch.arange(20), (torch.arange(20) + shift) % 20], dim=1) for shift in (3, 7, 9)])
    classes = torch.arange(20) % 5
    y = torch.zeros(60, 5).scatter_(1, classes[truth], 0.5)
    fit = stream.normal(60, 20).float().scatter_add_(1, truth, torch.full((60, 2), 4.0))
    found = assigned(fit, y, classes, 2, None)
    right = (found.sort(1).values == truth.sort(1).values).all(1).float().mean()
    alone = fit.topk(2, dim=1).indices.sort(1).values == truth.sort(1).values
    assert float(right) > 0.95 > float(alone.all(1).float().mean())
    assert int(found.flatten().bincount().max()) <= 6 and bool((found >= 0).all())


def test_a_rows_own_record_is_kept_and_comes_first_however_badly_it_fits() -> None:
    fit, y, kinds = drawn(8, 4, 2, 1)
    own = torch.arange(8) % 4
    fit[torch.arange(8), own] = -30.0
    found = assigned(fit, y, kinds, 2, own)
    assert torch.equal(found[:, 0], own) and bool((found[:, 1] != own).all())


def test_without_own_records_the_one_that_fits_best_comes_first() -> None:
    fit, y, kinds = drawn(8, 4, 2, 2)
    held = listed(assigned(fit, y, kinds, 2, None))
    assert max(len(row) for row in held) == 2
    assert all(float(fit[row, held[row][0]]) >= float(fit[row, held[row][-1]]) for row in range(8))


def test_one_record_a_row_that_is_known_is_that_record() -> None:
    fit, y, kinds = drawn(6, 3, 3, 1)
    own = torch.tensor([2, 2, 0, 1, 0, 1])
    found = assigned(fit, y, kinds, 1, own)
    assert torch.equal(found, own[:, None])
    found += 1
    assert own.tolist() == [2, 2, 0, 1, 0, 1]  # what was given is not changed


def test_a_class_is_covered_even_where_its_records_fit_badly() -> None:
    fit = torch.tensor([[5.0, 4.0, -3.0, -2.0], [4.0, 5.0, 0.0, 0.0]])
    y = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
    found = assigned(fit, y, torch.tensor([0, 0, 1, 1]), 2, None)
    assert found.tolist() == [[0, 3], [1, -1]]  # each record is in one row: the second has to do with one


@pytest.mark.parametrize("known", [False, True])
def test_a_label_that_no_records_agree_with_leaves_the_other_rows_as_they_are(known: bool) -> None:
    """A label shows four classes where rows hold two records, and one that no record has."""
    fit, _, _ = drawn(4, 4, 4, 4)
    classes, own = torch.tensor([0, 1, 2, 3]), torch.arange(4) if known else None
    fit[torch.arange(4), torch.arange(4)] += 9
    fit[torch.arange(4), (torch.arange(4) + 1) % 4] += 6
    y = torch.zeros(4, 5)
    y[torch.arange(4), torch.arange(4)] = y[torch.arange(4), (torch.arange(4) + 1) % 4] = 0.5
    expected = [[0, 1], [1, 2], [2, 3], [3, 0]]
    assert assigned(fit, y, classes, 2, own).tolist() == expected
    y[2] = torch.tensor([0.2, 0.2, 0.2, 0.2, 0.2])
    assert assigned(fit, y, classes, 2, own).tolist() == expected
    y[2] = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0])  # then the label means none of the records
    found = assigned(fit, y, classes, 2, own).tolist()
    assert found[2] == ([2, -1] if known else [-1, -1]) and found[:2] + found[3:] == expected[:2] + expected[3:]
