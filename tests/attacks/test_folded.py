"""Records from rows with hidden signs: against dense formulas, and exact where nothing else is mixed in."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mixveil.attacks.shared.breaks.folded import FoldedRows, System, solved
from mixveil.attacks.shared.breaks.sign_field import MOST_VALUES, PixelPrior
from mixveil.core.randomness import SeededStream

VALUES = 16


def alike(n: int, seed: int, mean: float = 1.0) -> Tensor:
    """(n, d) Gaussian records whose values depend on those beside them."""
    place = torch.arange(VALUES).double()
    covariance = torch.exp(-(place[:, None] - place).square() / 18) + 0.01 * torch.eye(VALUES)
    root: Tensor = torch.linalg.cholesky(covariance)
    return mean + SeededStream(seed).normal(n, VALUES) @ root.T


def density(x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Of a Gaussian."""
    return torch.exp(-(x - mean.double()).square() / (2 * variance)) / (2 * math.pi * variance).sqrt()


def mixed(x: Tensor, times: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Two records a row: sources, weights, rows."""
    stream = SeededStream(seed)
    partner = torch.cat([stream.derangement(len(x)) for _ in range(times)])
    sources = torch.stack([torch.arange(len(x)).repeat(times), partner], dim=1)
    weights = stream.mixing_weights(len(sources), 2).double()
    return sources, weights, (weights[:, :, None] * x[sources]).sum(1)


def said(rows: Tensor, seed: int) -> Tensor:
    """Logits of a network that is right about most signs."""
    return rows.sign() + SeededStream(seed).normal(*rows.shape)


def folded(rows: Tensor, logits: Tensor, sources: Tensor, weights: Tensor, seed: int, mean: float = 1.0) -> FoldedRows:
    nothing = torch.zeros(len(rows)), torch.zeros(VALUES)
    return FoldedRows(rows.abs(), logits, sources, weights, *nothing, PixelPrior.of(alike(400, seed, mean)))


def shown(seed: int = 1) -> tuple[FoldedRows, Tensor]:
    """Rows without a mask, with noise and other images in them, and the dense mixing matrix."""
    stream = SeededStream(seed)
    sources, weights, _ = mixed(alike(10, seed), 5, seed)
    weights = 0.7 * weights
    sources[3, 1], weights[3, 1] = -1, 0.2  # a weight that belongs to no record
    sources[7, 1] = sources[7, 0]  # a record that is in its row twice
    dense = torch.zeros(len(sources), 10, dtype=torch.float64)
    for row, column in (sources >= 0).nonzero().tolist():
        dense[row, sources[row, column]] += weights[row, column]
    x = dense @ alike(10, seed) + 0.3 * alike(len(sources), seed + 1, mean=0.5)
    noise, prior = 0.1 * stream.uniform(len(x)), PixelPrior.of(alike(100, seed + 2))
    return FoldedRows(x, None, sources, weights, noise, torch.full((VALUES,), 0.5), prior), dense


def test_without_hidden_signs_it_is_ridge_regression() -> None:
    """The twin begins elsewhere, and repeats the dense formula until nothing changes."""
    rows, dense = shown()
    variance, mean, held = float(rows.prior.variance.mean()), rows.prior.mean, dense.sum(1)
    spread = rows.noise + variance * ((1 - held) ** 2 + 0.01 * ((1 - held) ** 2).mean() + 1e-4)
    beyond = rows.size - held[:, None] * mean - (1 - held)[:, None] * rows.rest
    expected = torch.empty(10, VALUES, dtype=torch.float64)
    for value in range(VALUES):
        factor = 1.0
        for _ in range(200):
            normal = dense.T @ torch.diag(1 / spread) @ dense + factor / variance * torch.eye(10, dtype=torch.float64)
            expected[:, value] = torch.linalg.solve(normal, dense.T @ (beyond[:, value] / spread))
            factor = float(((beyond[:, value] - dense @ expected[:, value]).square() / spread).mean())
    found = solved(rows, 10, SeededStream(0))
    torch.testing.assert_close(found, expected + mean, rtol=0, atol=1e-4)
    assert found.dtype == torch.float64


def test_a_row_is_as_likely_as_the_sum_over_both_signs_says() -> None:
    rows, _ = shown()
    logits = 2 * SeededStream(5).normal(*rows.size.shape)
    system = System(replace(rows, size=rows.size.abs(), logits=logits), 10)
    number, factor = torch.tensor([0, 7, 3]), 0.5 + SeededStream(6).uniform(VALUES).float()
    mixtures = SeededStream(7).normal(3, 4, VALUES).float()
    values, word = rows.size[number][:, None], logits[number][:, None]
    variance = (factor * system.spread[number, None])[:, None].double()
    one, other = (density(sign * values.abs(), mixtures, variance) for sign in (1, -1))
    direct = (one * torch.sigmoid(word) + other * torch.sigmoid(-word)).log().sum(2)
    told = system.likely(mixtures, number, factor).double()
    torch.testing.assert_close(told.diff(dim=1), direct.diff(dim=1), rtol=1e-4, atol=1e-3)
    direct = density(values, mixtures, variance).log().sum(2)  # where no signs are hidden
    told = System(rows, 10).likely(mixtures, number, factor).double()
    torch.testing.assert_close(told.diff(dim=1), direct.diff(dim=1), rtol=1e-4, atol=1e-3)


def test_no_value_is_taken_for_free_of_errors() -> None:
    rows, _ = shown()
    system, mixtures = System(rows, 10), SeededStream(7).normal(3, 4, VALUES).float()
    one, other = (system.likely(mixtures, torch.arange(3), torch.full((VALUES,), tiny)) for tiny in (1e-9, 1e-15))
    assert torch.equal(one, other) and bool(one.isfinite().all())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_few_records_are_exact_without_a_word_on_any_sign(seed: int) -> None:
    x = alike(5, seed, mean=2)
    sources, weights, rows = mixed(x, 60, seed + 50)
    found = solved(folded(rows, torch.zeros_like(rows), sources, weights, seed + 100, mean=2), 5, SeededStream(0))
    torch.testing.assert_close(found, x, rtol=0, atol=1e-3)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_records_are_exact_where_a_network_has_all_signs_of_a_value_wrong(seed: int) -> None:
    x, wrong = alike(30, seed), SeededStream(seed).signs(VALUES)
    sources, weights, rows = mixed(x, 8, seed + 50)
    assert 0 < int((wrong < 0).sum()) < VALUES
    found = solved(folded(rows, wrong * said(rows, seed), sources, weights, seed + 100), 30, SeededStream(0))
    torch.testing.assert_close(found, x, rtol=0, atol=1e-3)


def test_where_much_else_is_mixed_in_a_network_helps() -> None:
    x, errors = alike(30, 1, mean=0), {}
    sources, weights, rows = mixed(x, 12, 2)
    rows = 0.5 * rows + 0.5 * alike(len(rows), 3, mean=0)
    told = folded(rows, 2 * said(rows, 4), sources, 0.5 * weights, 5, mean=0)
    none = replace(told, logits=torch.zeros_like(rows))
    for name, given in (("told", told), ("none", none), ("open", replace(told, size=rows, logits=None))):
        found = solved(given, 30, SeededStream(0))
        errors[name] = float((found - x).square().mean() / x.square().mean())
    assert errors["open"] < errors["told"] < 0.3 < 0.9 < errors["none"], errors


def test_other_solutions_are_taken_only_where_rows_hold_what_they_are_said_to() -> None:
    x = alike(30, 1)
    sources, weights, rows = mixed(x, 8, 2)
    flipped = SeededStream(3).signs(VALUES) * said(rows, 4)
    for order, right in ((torch.arange(len(rows)), True), (SeededStream(5).permutation(len(rows)), False)):
        system = System(folded(rows, flipped, sources[order], weights, 6), 30)
        first = system.settled(system.begun(), system.first, system.logits)
        found = system.found(SeededStream(0))
        assert system.nearly_exact(found[1]) is right
        assert torch.equal(found[0], first[0]) is not right


def test_nothing_else_is_tried_for_images_of_too_many_values() -> None:
    stream, wide = SeededStream(1), MOST_VALUES + 1
    x, public = stream.normal(3, wide), stream.normal(4, wide)
    sources, weights, rows = mixed(x, 2, 2)
    prior, nothing = PixelPrior.of(public), (torch.zeros(len(rows)), torch.zeros(wide))
    system = System(FoldedRows(rows.abs(), -said(rows, 3), sources, weights, *nothing, prior), 3)
    assert system.nearly_exact(torch.ones(wide))
    assert torch.equal(system.found(stream)[0], system.settled(system.begun(), system.first, system.logits)[0])


def test_draws_follow_from_the_stream() -> None:
    sources, weights, rows = mixed(alike(30, 1), 6, 2)  # too few rows to tell which solution is right
    given = folded(rows, torch.zeros_like(rows), sources, weights, 3)
    one, again, other = (solved(given, 30, SeededStream(seed)) for seed in (0, 0, 1))
    assert torch.equal(one, again) and not torch.equal(one, other)
