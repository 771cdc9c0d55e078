"""Which images rows hold, from what rows share: against a search of all possibilities, with the trap of a triangle."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from torch import Tensor

from mixveil.attacks.shared.gaussian.floral import Floral, florals, one_of_each_pair
from mixveil.attacks.shared.gaussian.line_graph import Gram, agreement, begun, told_apart, told_by_owner, told_images
from mixveil.core.randomness import SeededStream

Pair = tuple[int, int]
K4: list[Pair] = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]


def gram_of(pairs: list[Pair], noise: float = 0.0, seed: int = 1, even: bool = True) -> tuple[Gram, Tensor]:
    """What rows of these pairs show of one another, and their true weights."""
    stream = SeededStream(seed)
    share = torch.full((len(pairs),), 0.5, dtype=torch.float64) if even else 0.35 + 0.3 * stream.uniform(len(pairs))
    weight = torch.zeros(len(pairs), max(map(max, pairs)) + 1, dtype=torch.float64)
    for row, (a, b), part in zip(weight, pairs, share.tolist(), strict=True):
        row[a] += part
        row[b] += 1 - part
    errors = noise * stream.normal(len(pairs), len(pairs)).triu(1)
    value = weight @ weight.T + errors + errors.T
    low = torch.minimum(share, 1 - share)
    return Gram(value, torch.full_like(value, 0.06), low, torch.ones_like(low)), weight


def stars(weight: Tensor) -> set[frozenset[int]]:
    """The rows of each image: images are known by them, whatever their numbers."""
    return {frozenset(column.nonzero()[:, 0].tolist()) for column in (weight > 1e-3).T if bool(column.any())}


def possibilities(sharing: list[list[int]]) -> list[set[frozenset[int]]]:
    """All ways to give each row a pair of images, such that any two share as many as stated: by trying all."""
    found: list[set[frozenset[int]]] = []

    def go(chosen: list[Pair], used: int) -> None:
        row = len(chosen)
        if row == len(sharing):
            rows = [frozenset(i for i, pair in enumerate(chosen) if image in pair) for image in range(used)]
            found.append(set(rows))
            return
        for pair in combinations(range(used + 2), 2):
            new = sum(image >= used for image in pair)
            if pair[1] < used + new and all(
                len({*pair} & {*earlier}) == sharing[row][i] for i, earlier in enumerate(chosen)
            ):
                go([*chosen, pair], used + new)

    go([], 0)
    return [stars for i, stars in enumerate(found) if stars not in found[:i]]


def all_clear(gram: Gram) -> Tensor:
    return torch.ones(len(gram.low), dtype=torch.bool)


def random_pairs(images: int, rows: int, seed: int) -> list[Pair]:
    every = list(combinations(range(images), 2))
    return [every[i] for i in SeededStream(seed).permutation(len(every))[:rows].tolist()]


@pytest.mark.parametrize(("images", "rows"), [(5, 8), (6, 10), (6, 12), (7, 13)])
def test_small_graphs_are_told_as_a_search_tells_them(images: int, rows: int) -> None:
    told = 0
    for seed in range(12):
        pairs = random_pairs(images, rows, seed)
        gram, weight = gram_of(pairs)
        possible = possibilities([[len({*a} & {*b}) for b in pairs] for a in pairs])
        assert stars(weight) in possible
        found = told_apart(gram, all_clear(gram), images)
        if found is not None:
            told += 1
            assert stars(found) in possible
            if told_images(found) == images:
                assert torch.allclose(found[found > 1e-3], torch.tensor(0.5, dtype=torch.float64))
    assert told >= 5


def test_six_rows_of_four_images_do_not_tell_images_from_triangles() -> None:
    gram, _ = gram_of(K4)
    assert len(possibilities([[len({*a} & {*b}) for b in K4] for a in K4])) == 2
    assert not list(florals(gram.touch, gram.low)) and told_apart(gram, all_clear(gram), 4) is None


@pytest.mark.parametrize("seventh", [(0, 4), (1, 4), (2, 4), (3, 4)])
def test_a_seventh_row_tells_them(seventh: Pair) -> None:
    gram, weight = gram_of([*K4, seventh])
    (floral,) = florals(gram.touch, gram.low)
    opened = begun(gram, floral)
    assert stars(opened) == {rows - {6} for rows in stars(weight) if len(rows) > 1}
    found = told_apart(gram, all_clear(gram), 5)
    assert found is not None and stars(found) == stars(weight)
    # The six rows by the names of their opposites touch alike; only the seventh says that those are other images.
    crossed, weight = gram_of([*K4[::-1], seventh])
    found = told_apart(crossed, all_clear(crossed), 5)
    assert torch.equal(crossed.touch[:6, :6], gram.touch[:6, :6])
    assert found is not None and stars(found) == stars(weight)


def test_of_rows_of_one_pair_the_strongest_is_kept() -> None:
    gram, _ = gram_of([*K4, (0, 1), (0, 4)])
    strength = torch.tensor([1.0, 1, 1, 1, 1, 1, 2, 1])
    assert one_of_each_pair(gram.touch, strength).tolist() == [1, 2, 3, 4, 5, 6, 7]


def test_weights_at_an_image_follow_from_the_products_of_its_rows() -> None:
    gram, weight = gram_of(K4, even=False)
    floral = Floral(torch.arange(6), torch.tensor(K4))
    assert torch.allclose(begun(gram, floral), weight)


def made(images: int, releases: int, seed: int) -> list[Pair]:
    stream = SeededStream(seed)
    partners = [stream.permutation(images).tolist() for _ in range(releases)]
    return [(own, partner[own]) for partner in partners for own in range(images)]


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_rows_of_random_pairs_are_told_from_products_with_errors(seed: int, even: bool) -> None:
    pairs = [pair for pair in made(15, 6, seed) if pair[0] != pair[1]]  # some pairs come twice
    gram, weight = gram_of(pairs, noise=0.01, seed=seed, even=even)
    found = told_apart(gram, all_clear(gram), 15)
    assert found is not None and stars(found) == stars(weight)
    assert agreement(gram.touch, found) == 1
    order = [list(stars_of(weight)).index(rows) for rows in stars_of(found)]
    assert float((found - weight[:, order]).abs().max()) < 0.05


def stars_of(weight: Tensor) -> list[frozenset[int]]:
    return [frozenset(column.nonzero()[:, 0].tolist()) for column in (weight > 1e-3).T]


@pytest.mark.parametrize("seed", range(3))
def test_with_known_owners_images_keep_their_numbers(seed: int) -> None:
    pairs = made(15, 4, seed)
    own = torch.tensor([a for a, _ in pairs])
    twice = torch.tensor([a == b for a, b in pairs])
    gram, weight = gram_of(pairs, noise=0.01, seed=seed, even=False)
    found = told_by_owner(gram, ~twice, own, 15)
    assert torch.equal(found[~twice] > 1e-3, weight[~twice] > 0)
    assert float((found - weight)[~twice].abs().max()) < 0.05


def test_some_wrong_entries_are_outvoted() -> None:
    pairs = [pair for pair in made(15, 8, 1) if pair[0] != pair[1]]
    gram, weight = gram_of(pairs, noise=0.01)
    wrong = SeededStream(5).permutation(len(pairs))[:12].view(2, 6)
    gram.value[wrong[0], wrong[1]] = gram.value[wrong[1], wrong[0]] = 0.25 - gram.value[wrong[0], wrong[1]].clamp(
        max=0.25
    )
    found = told_apart(gram, all_clear(gram), 15)
    assert found is not None and stars(found) == stars(weight)


def test_one_release_of_pairs_tells_nothing() -> None:
    pairs = [(own, (own + 4) % 15) for own in range(15)]
    gram, _ = gram_of(pairs)
    assert told_apart(gram, all_clear(gram), 15) is None
    assert not told_by_owner(gram, all_clear(gram), torch.arange(15), 15).any()


def test_images_without_rows_of_others_are_not_told() -> None:
    apart = [(a + 6, b + 6) for a, b in [*K4, (0, 4)]]
    gram, _ = gram_of([*K4, (0, 5), *apart])
    found = told_apart(gram, all_clear(gram), 11)
    assert found is not None and told_images(found) < 11
