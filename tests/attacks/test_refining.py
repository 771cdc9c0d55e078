"""What rows hold, once records are recovered: planted errors, shares, and records that are in a row twice."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from mixveil.attacks.shared.breaks.folded import FoldedRows
from mixveil.attacks.shared.breaks.prototypes import label_weights
from mixveil.attacks.shared.breaks.refining import refined
from mixveil.attacks.shared.breaks.sign_field import PixelPrior
from mixveil.core.randomness import SeededStream

RECORDS, CLASSES, TIMES, VALUES = 24, 4, 8, 64
CLASS = torch.arange(RECORDS) % CLASSES


class Mixed(NamedTuple):
    """Rows, of which it is known what they hold: labels, sources, weights."""

    rows: Tensor
    y: Tensor
    sources: Tensor
    weights: Tensor


def alike(n: int, seed: int, mean: float) -> Tensor:
    """(n, d) Gaussian records whose values depend on those beside them."""
    near = torch.arange(VALUES)[:, None] - torch.arange(VALUES)
    root: Tensor = torch.linalg.cholesky(torch.exp(-near.double().square() / 2) + 0.01 * torch.eye(VALUES))
    return mean + SeededStream(seed).normal(n, VALUES) @ root.T


def partners(private: int, seed: int) -> Tensor:
    """(m, s) records of s different classes; every record is in as many rows."""
    stream, own, drawn = SeededStream(seed), torch.arange(RECORDS), []
    for _ in range(TIMES):
        group = [stream.permutation(RECORDS // CLASSES) for _ in range(private - 1)]
        others = [CLASSES * order[own // CLASSES] + (own + j) % CLASSES for j, order in enumerate(group, start=1)]
        drawn.append(torch.stack([own, *others], dim=1))
    return torch.cat(drawn)


def mixed(sources: Tensor, seed: int, mean: float = 1.0, rest: float = 0.0, least: float = 0.2) -> Mixed:
    """rest: the share of other images in every row."""
    private = sources.shape[1]
    weights = SeededStream(seed).bounded_weights(len(sources), private, 1 - least, 1, least).double() * (1 - rest)
    records = alike(RECORDS, seed + 1, mean)
    rows = (weights[:, :, None] * records[sources]).sum(1) + rest * alike(len(sources), seed + 2, mean)
    y = torch.zeros(len(sources), CLASSES, dtype=torch.float64)
    return Mixed(rows, y.scatter_add(1, CLASS[sources], weights), sources, weights)


def known(made: Mixed, sources: Tensor, masked: bool, seed: int, mean: float = 1.0) -> FoldedRows:
    """What is known of rows that are said to hold these records; by the labels alone."""
    logits = 2 * (made.rows.sign() + SeededStream(seed).normal(*made.rows.shape)) if masked else None
    size, weights = made.rows.abs() if masked else made.rows, label_weights(sources, made.y, CLASS)
    prior, rest = PixelPrior.of(alike(400, seed + 3, mean)), torch.full((VALUES,), mean)
    return FoldedRows(size, logits, sources, weights, torch.zeros(len(size)), rest, prior)


def held(sources: Tensor, weights: Tensor) -> Tensor:
    """(m, n) the weight of every record in every row."""
    whole = torch.zeros(len(sources), RECORDS + 1, dtype=torch.float64)
    return whole.scatter_add(1, sources.masked_fill(sources < 0, RECORDS), weights.double())[:, :RECORDS]


def swapped(sources: Tensor, column: int, rows: Tensor) -> Tensor:
    """In some rows, another record of the same class in the place of the right one."""
    wrong = sources.clone()
    wrong[rows, column] = (wrong[rows, column] + CLASSES) % RECORDS
    return wrong


def far(found: FoldedRows, made: Mixed) -> float:
    """How far the worst weight is from the truth."""
    return float((held(found.sources, found.weights) - held(made.sources, made.weights)).abs().max())


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
def test_wrong_records_are_set_right(masked: bool, ordered: bool) -> None:
    made = mixed(partners(2, 1), 2)
    wrong = swapped(made.sources, 1, SeededStream(3).permutation(len(made.rows))[:20])
    start = known(made, wrong, masked, 4)
    assert far(start, made) > 0.1
    found = refined(start, made.y, CLASS, made.sources[:, 0] if ordered else None, SeededStream(0))
    assert far(found, made) < 1e-9
    assert not ordered or torch.equal(found.sources[:, 0], made.sources[:, 0])
    assert torch.equal(found.size, start.size) and found.prior is start.prior


@pytest.mark.parametrize("masked", [False, True])
def test_shares_of_two_records_of_one_class_are_found(masked: bool) -> None:
    """Labels show one class, and so begin with two halves; shares are tried in steps of a twentieth."""
    pairs = torch.arange(RECORDS // 2)
    of_one = torch.stack([pairs + CLASSES * (pairs // CLASSES), pairs + CLASSES * (pairs // CLASSES + 1)], dim=1)
    assert torch.equal(CLASS[of_one[:, 0]], CLASS[of_one[:, 1]])
    assert sorted(of_one.flatten().tolist()) == list(range(RECORDS))
    made = mixed(torch.cat([partners(2, 1), of_one]), 5, least=0.3)
    start = known(made, made.sources, masked, 4)
    assert far(start, made) > 0.15
    found = refined(start, made.y, CLASS, made.sources[:, 0], SeededStream(0))
    assert far(found, made) < 0.05
    torch.testing.assert_close(found.weights.sum(1), made.weights.sum(1))
    assert torch.equal(found.weights[: -len(of_one)], start.weights[: -len(of_one)])  # of two classes


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
def test_a_record_that_is_in_a_row_twice_is_found(masked: bool, ordered: bool) -> None:
    twice = torch.arange(CLASSES)
    made = mixed(torch.cat([partners(2, 1), torch.stack([twice, twice], dim=1)]), 2)
    last = torch.arange(len(made.rows) - CLASSES, len(made.rows))
    start = known(made, swapped(made.sources, 1, last), masked, 4)
    found = refined(start, made.y, CLASS, made.sources[:, 0] if ordered else None, SeededStream(0))
    assert far(found, made) < 1e-6
    assert found.sources[last].tolist() == [[record, -1] for record in range(CLASSES)]
    torch.testing.assert_close(found.weights[last], torch.tensor([[1.0, 0.0]] * CLASSES).double())


@pytest.mark.parametrize("mean", [0, 1])
@pytest.mark.parametrize("masked", [False, True])
def test_where_much_else_is_mixed_in_rows_stay_as_they_are(masked: bool, mean: int) -> None:
    made = mixed(partners(2, 1), 2, mean=mean, rest=0.5)
    start = known(made, swapped(made.sources, 1, torch.arange(20)), masked, 4, mean=mean)
    found = refined(start, made.y, CLASS, made.sources[:, 0], SeededStream(0))
    assert torch.equal(found.sources, start.sources) and torch.equal(found.weights, start.weights)


def test_a_little_of_other_images_does_not_stop_it() -> None:
    made = mixed(partners(2, 1), 2, mean=0, rest=0.1)
    start = known(made, swapped(made.sources, 1, torch.arange(20)), False, 4, mean=0)
    assert far(refined(start, made.y, CLASS, made.sources[:, 0], SeededStream(0)), made) < 1e-9 < far(start, made)
