"""Weights and images by turns: against least squares on the rows themselves."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from mixveil.attacks.shared.gaussian import sparse_solve
from mixveil.attacks.shared.gaussian.sparse_solve import Selection, solved
from mixveil.core.randomness import SeededStream

IMAGES, VALUES = 10, 2000


def made(covers: int, seed: int = 1) -> tuple[Selection, Tensor, Tensor, Tensor]:
    """What rows are made of, images, covers, and the rows. Row 0 holds an image twice."""
    stream = SeededStream(seed)
    images, public = stream.normal(IMAGES, VALUES), stream.normal(8, VALUES)[: 8 if covers else 0]
    source = torch.stack([torch.arange(IMAGES).repeat(5), torch.cat([stream.permutation(IMAGES) for _ in range(5)])], 1)
    source[0] = 3
    weight = stream.mixing_weights(len(source), 2 + covers).double()
    cover = torch.stack([stream.permutation(8)[:covers] for _ in source])
    selection = Selection(source, weight[:, :2], cover, weight[:, 2:])
    return selection, images, public, selection.dense(IMAGES) @ images + selection.part(public)


def products(rows: Tensor, public: Tensor) -> Tensor:
    both = torch.cat([rows, public])
    return both @ both.T


def rough(selection: Selection, by: float = 0.05) -> Selection:
    off = by * SeededStream(9).normal(len(selection.weight), 1)
    return replace(selection, weight=selection.weight + torch.cat([off, -off], dim=1), share=selection.share * 0.9)


def test_one_turn_is_least_squares_on_images_and_then_on_rows() -> None:
    for covers in (0, 2):
        selection, _, public, rows = made(covers)
        start = rough(selection)
        turned = sparse_solve._turn(products(rows, public), start, IMAGES)
        images = torch.linalg.lstsq(start.dense(IMAGES), rows - start.part(public)).solution
        for row in range(1, len(rows)):
            a, b = start.source[row].tolist()
            if a == b:
                continue
            half = float(start.weight[row].sum()) / 2
            columns = torch.stack([images[a] - images[b], *public[start.cover[row]]], dim=1)
            told = torch.linalg.lstsq(columns, (rows[row] - half * (images[a] + images[b]))[:, None]).solution[:, 0]
            expected = torch.tensor([half + float(told[0]), half - float(told[0])], dtype=torch.float64)
            assert torch.allclose(turned.weight[row], expected, atol=1e-6)
            assert torch.allclose(turned.share[row], told[1:], atol=1e-6)


def test_turns_end_at_the_weights_that_rows_come_from() -> None:
    for covers in (0, 2):
        selection, _, public, rows = made(covers)
        none = torch.zeros(len(rows), dtype=torch.bool)
        found = solved(products(rows, public), rough(selection), IMAGES, none)
        once = selection.source[:, 0] != selection.source[:, 1]
        assert float((found.weight - selection.weight)[once].abs().max()) < 1e-9
        assert float((found.share - selection.share).abs().sum()) < 1e-6
        assert torch.allclose(found.weight.sum(1), selection.weight.sum(1))


def test_fixed_weights_stay() -> None:
    selection, _, public, rows = made(0)
    fixed = torch.arange(len(rows)) % 3 == 0
    start = rough(selection)
    found = solved(products(rows, public), start, IMAGES, fixed)
    assert torch.equal(found.weight[fixed], start.weight[fixed])
    right = replace(start, weight=torch.where(fixed[:, None], selection.weight, start.weight))
    found = solved(products(rows, public), right, IMAGES, fixed)
    once = selection.source[:, 0] != selection.source[:, 1]
    assert float((found.weight - selection.weight)[once].abs().max()) < 1e-9


def test_a_selection_adds_what_comes_twice_and_can_be_cut() -> None:
    selection, _, public, _ = made(2)
    dense = selection.dense(IMAGES)
    assert float(dense[0, 3]) == float(selection.weight[0].sum()) and torch.equal(
        selection.of(dense[:, 0] > 0).dense(IMAGES), dense[dense[:, 0] > 0]
    )
    only = Selection.of_covers(selection.cover, selection.share)
    assert torch.equal(only.part(public), selection.part(public)) and not only.dense(IMAGES).any()
