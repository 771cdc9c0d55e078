"""Images from sizes alone: against all sign patterns one value at a time, and against grids of values."""

from __future__ import annotations

from itertools import combinations, product

import pytest
import torch
from torch import Tensor

from mixveil.attacks.shared.gaussian import sign_patterns
from mixveil.attacks.shared.gaussian.sign_patterns import (
    agreed,
    best_patterns,
    recovered,
    spreading_order,
    strongest_floral,
)
from mixveil.core.randomness import SeededStream

SIX = list(combinations(range(4), 2))


def weights(pairs: list[tuple[int, int]], images: int, even: bool, seed: int = 1) -> Tensor:
    share = torch.full((len(pairs),), 0.5).double() if even else 0.35 + 0.3 * SeededStream(seed).uniform(len(pairs))
    weight = torch.zeros(len(pairs), images, dtype=torch.float64)
    for row, (a, b), part in zip(weight, pairs, share.tolist(), strict=True):
        row[a] += part
        row[b] += 1 - part
    return weight


def pairs_of(images: int, releases: int, seed: int) -> list[tuple[int, int]]:
    stream = SeededStream(seed)
    partners = [stream.permutation(images).tolist() for _ in range(releases)]
    return [(own, p[own]) for p in partners for own in range(images) if p[own] != own]


def up_to_sign(found: Tensor, truth: Tensor) -> float:
    """The largest error, where the values at one place may have one common sign."""
    sign = (found * truth).sum(0).sign()
    return float((found * sign - truth).abs().max())


@pytest.mark.parametrize("beside", [0.0, 1.0])
def test_the_best_pattern_is_that_of_a_loop_over_all(beside: float) -> None:
    truth, weight = SeededStream(1).normal(4, 20), weights(SIX, 4, even=False)
    part = beside * SeededStream(2).normal(6, 20)
    size = (part + weight @ truth).abs()
    found = best_patterns(size, part, weight + 0.01)  # weights that are not quite right
    for place in range(20):
        fits = []
        for signs in product((1.0, -1.0), repeat=6):
            target = torch.tensor(signs, dtype=torch.float64) * size[:, place] - part[:, place]
            z = torch.linalg.lstsq(weight + 0.01, target[:, None]).solution
            fits.append((float(((weight + 0.01) @ z - target[:, None]).norm()), z[:, 0]))
        fits.sort(key=lambda fit: fit[0])
        z, values = fits[0][1], found[0][:, place]
        assert torch.allclose(values, z, atol=1e-9) or (beside == 0 and torch.allclose(values, -z, atol=1e-9))
    exact = best_patterns(size, part, weight)[0]
    assert (up_to_sign(exact, truth) if beside == 0 else float((exact - truth).abs().max())) < 1e-9


def test_the_strongest_four_are_those_of_a_loop() -> None:
    for seed in range(5):
        pairs = pairs_of(9, 5, seed)
        weight = weights(pairs, 9, even=False, seed=seed)
        strength: dict[tuple[int, int], float] = {}
        for row in weight:
            a, b = row.nonzero()[:, 0].tolist()
            strength[a, b] = max(strength.get((a, b), 0.0), float(row[[a, b]].min()))
        every = [min(strength.get(pair, 0.0) for pair in combinations(four, 2)) for four in combinations(range(9), 4)]
        found = strongest_floral(weight)
        assert found is not None and max(every) > 0
        floral, images = found
        assert float(weight[floral.rows].where(weight[floral.rows] > 0, 1.0).min()) == max(every)
        for row, pair in zip(floral.rows.tolist(), floral.image.tolist(), strict=True):
            assert set(weight[row].nonzero()[:, 0].tolist()) == set(images[pair].tolist())


def test_where_no_four_images_have_all_pairs_there_is_none() -> None:
    assert strongest_floral(weights([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)], 4, even=True)) is None


def test_the_value_on_which_rows_agree_is_that_of_a_fine_grid() -> None:
    stream = SeededStream(1)
    part, share, value = stream.normal(4, 30), 0.3 + 0.4 * stream.uniform(4), stream.normal(30)
    size = (part + share[:, None] * value).abs()
    size[3] += 0.01 * stream.normal(30).abs()  # one row is not quite right
    found, grid = agreed(size, part, share), torch.linspace(-4, 4, 8001, dtype=torch.float64)
    cost = ((part + share[:, None] * grid[:, None, None]).abs() - size).abs().sum(1)
    assert float((found - value).abs().max()) < 0.05
    assert float((grid[cost.argmin(0)] - found).abs().max()) < 0.05


def test_an_image_waits_until_it_shares_rows_with_several_known_ones() -> None:
    pairs = [*SIX, (0, 4), (0, 4), (0, 4), (1, 5), (2, 5), (4, 5)]
    assert spreading_order(weights(pairs, 6, even=True), torch.arange(4)) == [5, 4]


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("beside", [0.0, 0.3])
def test_all_images_are_recovered(even: bool, beside: float) -> None:
    truth, weight = SeededStream(1).normal(12, 3000), weights(pairs_of(12, 5, 4), 12, even)
    part = beside * SeededStream(2).normal(len(weight), 3000)
    size, floral = (part + weight @ truth).abs(), strongest_floral(weight)
    assert floral is not None
    found = recovered(size, part, weight, *floral)
    assert (up_to_sign(found, truth) if beside == 0 else float((found - truth).abs().max())) < 1e-6
    assert float(sign_patterns.misfit(size, part, weight, found).max()) < 1e-6


def test_rough_weights_recover_most_values() -> None:
    truth, weight = SeededStream(1).normal(12, 3000), weights(pairs_of(12, 5, 4), 12, even=False)
    rough = weight + 0.01 * SeededStream(3).normal(*weight.shape) * (weight > 0)
    floral = strongest_floral(rough)
    assert floral is not None
    found = recovered((weight @ truth).abs(), torch.zeros(len(weight), 3000).double(), rough, *floral)
    sign = (found * truth).sum(0).sign()
    assert float(((found * sign - truth).abs().amax(0) < 0.3).double().mean()) > 0.99
