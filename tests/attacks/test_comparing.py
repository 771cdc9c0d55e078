"""Networks that say which rows share a record, and the encodings of public images that they learn from."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mixveil.attacks.records.demask import Demask
from mixveil.attacks.shared.breaks.comparing import (
    Comparer,
    Groups,
    Structure,
    _Net,
    _pair_loss,
    _prototype_loss,
    beside,
)
from mixveil.attacks.shared.breaks.encodings import Encodings, encodings
from mixveil.attacks.shared.demasking import Imitation
from mixveil.attacks.shared.training import Schedule, TrainingCache
from mixveil.attacks.shared.whitening import whitening
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Encoder, View
from mixveil.data.images import Images, from_tensors
from mixveil.data.moves import moved
from mixveil.encoders.instahide import CalibratedInstaHide
from mixveil.encoders.mixup import Mixup
from tests.attacks.made import digits, weak
from tests.made import encoded

Loss = Callable[[_Net, Tensor, Tensor], Tensor]
SHAPE, PUBLIC = (1, 8, 8), digits(600, 1000)
HIDING = CalibratedInstaHide(k=2, c1=0.65, c2=0.3, covers=0, pad=0, values=64, centre=0.5)
MOVING = CalibratedInstaHide(k=3, c1=0.65, c2=0.3, covers=0, pad=1, values=64, centre=0.5)


def known(encoder: Encoder, covers: Images | None = None) -> Imitation:
    release, _ = encoded(encoder, digits(0, 40), SeededStream(0), covers)
    return Imitation(View((release,), public=PUBLIC, covers=covers))


def sums(encoder: Encoder, images: Tensor, made: Encodings) -> Tensor:
    """(m, d) the weighed sums of images as they enter, moved as stated."""
    total = torch.zeros(len(made.rows), 64, dtype=torch.float64)
    for column, sources in enumerate(made.sources.T):
        z = encoder.prepare(moved(images[sources], made.moves[:, column], encoder.centre))
        total += made.weights[:, column, None] * z
    return total


def comparer(
    steps: int,
    folder: Path | None = None,
    rate: float = 1e-2,
    noise: float = 0.0,
    said: list[str] | None = None,
    encoder: Encoder = HIDING,
    *,
    in_places: bool = False,
) -> Comparer:
    cache = TrainingCache(folder, max_steps=steps, watch=(said if said is not None else list[str]()).append)
    attack = Demask(base=8, schedule=Schedule(4, 64, rate, falling=True), cache=cache)
    return Comparer(attack, encoder, SHAPE, known(encoder), noise, in_places=in_places)


def held_rows() -> tuple[Tensor, Tensor]:
    """Rows of images that no network has seen, and (m, images) the weights in them."""
    imitation = known(HIDING)
    made = encodings(HIDING, imitation, imitation.held[:60], 4, SeededStream(5))
    return made.rows, torch.zeros(240, 60, dtype=torch.float64).scatter_add_(1, made.sources, made.weights).float()


def area(maps: Tensor, held: Tensor) -> float:
    """Under the ROC curve of pairs of rows, by inner products: do they share an image?"""
    flat, pair = maps.flatten(1), torch.ones(len(held), len(held)).triu(1) > 0
    score, shared = (flat @ flat.T)[pair], (held @ held.T > 0)[pair]
    return float((score[shared][:, None] > score[~shared]).double().mean())


def cross_entropy(logit: float, truth: bool) -> float:
    return math.log1p(math.exp(-logit if truth else logit))


def drawn(rows: int, images: int) -> tuple[Tensor, Tensor]:
    """Maps (m, 6), and weights (m, images): two images in every row, and every image in two rows at least."""
    stream = SeededStream(3)
    first = torch.arange(rows) % images
    second = (first + 1 + (stream.uniform(rows) * (images - 1)).long()) % images
    held = torch.zeros(rows, images, dtype=torch.float64)
    weight = 0.3 + 0.4 * stream.uniform(rows)
    held[torch.arange(rows), first], held[torch.arange(rows), second] = weight, 1 - weight
    return stream.normal(rows, 6).float(), held.float()


def test_mixtures_are_made_again_of_their_images_and_weights() -> None:
    encoder, images = Mixup(k=3), known(Mixup(k=3)).learnt[:20]
    made = encodings(encoder, known(encoder), images, 4, SeededStream(1))
    assert made.rows.shape == (80, *SHAPE) and made.rows.dtype == torch.float32
    assert torch.allclose(made.rows.flatten(1).double(), sums(encoder, images, made), atol=1e-6)
    assert torch.equal(made.sources[:, 0], torch.arange(20).repeat(4)) and not bool(made.moves.any())
    assert torch.allclose(made.weights.sum(1), torch.ones(80, dtype=torch.float64))
    assert len({tuple(part) for part in made.sources.view(4, -1).tolist()}) == 4


@pytest.mark.parametrize("still", [False, True])
def test_masked_rows_are_made_again_up_to_their_signs(still: bool) -> None:
    images = known(MOVING).learnt[:20]
    made = encodings(MOVING, known(MOVING), images, 3, SeededStream(1), still=still)
    rows, mixtures = made.rows.flatten(1).double(), sums(MOVING, images, made)
    assert torch.allclose(rows.abs(), mixtures.abs(), atol=1e-6)
    assert 0.4 < float((rows * mixtures > 0).double().mean()) < 0.6
    assert made.moves.shape == (60, 3, 3) and int(made.moves.abs().max()) == (0 if still else 1)


def test_a_still_encoding_is_the_same_one_without_its_moves() -> None:
    images = known(MOVING).learnt[:20]
    moving, still = (encodings(MOVING, known(MOVING), images, 2, SeededStream(1), still=s) for s in (False, True))
    assert torch.equal(moving.sources, still.sources) and torch.equal(moving.weights, still.weights)
    assert not torch.equal(moving.rows.abs(), still.rows.abs())


def test_covers_are_not_among_the_images_of_a_row() -> None:
    encoder = Mixup(k=4, covers=9)
    imitation = known(encoder, from_tensors(torch.zeros(9, *SHAPE), torch.zeros(9, dtype=torch.int64), classes=10))
    images = imitation.learnt[:20]
    made = encodings(encoder, imitation, images, 2, SeededStream(1))
    assert made.sources.shape == made.weights.shape == (40, 2) and int(made.sources.max()) < 20
    assert float(made.weights.sum(1).max()) < 1
    assert torch.allclose(made.rows.flatten(1).double(), sums(encoder, images, made), atol=1e-6)  # covers are zero


def test_rows_with_noise_are_in_the_values_of_a_release() -> None:
    encoder = weak(PUBLIC)
    images = known(encoder).learnt[:200]
    made = encodings(encoder, known(encoder), images, 2, SeededStream(1))
    noise = (made.rows.flatten(1).double() - sums(encoder, images, made)) / encoder.deviation(made.weights)[:, None]
    assert encoder.step is not None
    assert float(noise.std()) == pytest.approx(1, abs=0.02) and float(noise.mean()) == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize("rows", [60, 240])
@pytest.mark.parametrize("encoder", [HIDING, Mixup(k=2)])
def test_maps_of_structure_multiply_to_the_cosines_of_whitened_rows(encoder: Encoder, rows: int) -> None:
    """Of few rows by waves, of many by their covariance; of squares, where signs are hidden."""
    imitation = known(encoder)
    x = encodings(encoder, imitation, imitation.learnt[:60], rows // 60, SeededStream(2)).rows
    told = (x.square() if encoder.masked else x).flatten(1).double()
    told = told - told.mean(0)
    space = whitening(told, SHAPE, 0.0 if encoder.masked else 0.003)
    assert (space.basis is None) == (rows == 60)
    maps = Structure.of(x, encoder, noise=0.003)(x)
    flat = maps.flatten(1)
    assert maps.shape == x.shape and maps.dtype == torch.float32
    assert torch.allclose(flat @ flat.T, space.alike(told), atol=1e-4)
    assert float((flat @ flat.T - whitening(told, SHAPE, 0.01).alike(told)).abs().max()) > 1e-3


def test_signs_do_not_change_the_structure_of_masked_rows() -> None:
    x = held_rows()[0]
    structure = Structure.of(x, HIDING, 0.0)
    assert torch.allclose(structure(x), structure(x * SeededStream(1).signs(*x.shape).float()))
    assert torch.allclose(structure(x[:7]), structure(x)[:7], atol=1e-6)


def test_the_weights_of_a_group_are_those_of_its_images() -> None:
    sources = torch.tensor([[[0, 1], [1, 63]], [[5, 5], [2, 0]]])
    weights = torch.tensor([[[0.4, 0.6], [0.7, 0.3]], [[0.5, 0.25], [0.9, 0.1]]])
    groups = Groups(torch.zeros(2, 2, *SHAPE), sources, weights)
    first, second = torch.zeros(2, 64), torch.zeros(2, 64)
    first[0, 0], first[0, 1], first[1, 1], first[1, 63] = 0.4, 0.6, 0.7, 0.3
    second[0, 5], second[1, 2], second[1, 0] = 0.75, 0.9, 0.1
    assert torch.allclose(groups.held(0), first) and torch.allclose(groups.held(1), second)


def test_a_row_beside_all_others_by_hand() -> None:
    maps, held = drawn(12, 5)
    found = beside(maps, held.T @ maps, held)
    for row in range(12):
        for image in range(5):
            others = [other for other in range(12) if other != row]
            total = sum((float(held[other, image]) * maps[other] for other in others), torch.zeros(6))
            assert float(found[row, image]) == pytest.approx(float(maps[row] @ total), abs=1e-4)


def test_the_loss_of_pairs_by_hand() -> None:
    maps, held = drawn(12, 5)
    net = _Net(1, 8)
    net.begin(sharp=7.0, rare=-1.5)
    losses = [
        cross_entropy(float(maps[a] @ maps[b]) - 1.5, bool(((held[a] > 0) & (held[b] > 0)).any()))
        for a in range(12)
        for b in range(12)
        if a != b
    ]
    assert float(_pair_loss(net, maps, held).detach()) == pytest.approx(sum(losses) / (12 * 11), rel=1e-4)


def test_the_loss_of_prototypes_by_hand() -> None:
    maps, held = drawn(12, 5)
    net = _Net(1, 8)
    net.begin(sharp=7.0, rare=-1.5)
    losses = []
    for row in range(12):
        for image in range(5):
            others = [other for other in range(12) if other != row and held[other, image] > 0]
            mean = (held[others, image, None] * maps[others]).sum(0) / held[others, image].sum()
            losses.append(cross_entropy(float(maps[row] @ mean) - 1.5, bool(held[row, image] > 0)))
    assert float(_prototype_loss(net, maps, held).detach()) == pytest.approx(sum(losses) / 60, rel=1e-4)


def test_a_network_adds_to_the_structure_and_says_more_than_it() -> None:
    net = _Net(1, 8)
    net.begin(sharp=9.0, rare=-1.0)
    maps, structure = SeededStream(1).normal(3, 5, 8, 8).float(), SeededStream(2).normal(3, *SHAPE).float()
    joined = net.joined(maps, structure)
    assert torch.allclose(joined[:, :1], 3 * structure + maps[:, :1], atol=1e-5)
    assert torch.equal(joined[:, 1:], maps[:, 1:])
    alone = net.joined(torch.zeros_like(maps), structure).flatten(1)
    flat = structure.flatten(1)
    assert torch.allclose(alone @ alone.T, 9 * flat @ flat.T, rtol=1e-4)


def test_pairs_that_share_an_image_are_told_from_others() -> None:
    rows, held = held_rows()
    both = comparer(1, rate=0.0), comparer(30)  # the first is as it begins
    maps = both[1].maps("pairs", rows)
    assert maps.shape == (240, 5, 8, 8) and maps.dtype == torch.float32
    assert area(maps, held) > 0.83
    assert area(maps, held) > area(Structure.of(rows, HIDING, 0.0)(rows), held) - 0.02
    assert area(maps, held[torch.arange(240).roll(7)]) < 0.6  # of other rows they say nothing
    before, after = (float(_pair_loss(c._pairs, c.maps("pairs", rows).flatten(1), held).detach()) for c in both)
    assert after < 0.9 * before, (before, after)


def test_signs_do_not_change_the_maps_of_masked_rows() -> None:
    rows = held_rows()[0][:20]
    found = comparer(1)
    assert torch.allclose(found.maps("pairs", rows), found.maps("pairs", -rows), atol=1e-6)


def test_the_second_network_begins_with_the_weights_of_the_first() -> None:
    rows, begun, trained = held_rows()[0][:20], comparer(1, rate=0.0), comparer(1)
    assert torch.equal(begun.maps("pairs", rows), begun.maps("prototypes", rows))
    assert not torch.equal(trained.maps("pairs", rows), trained.maps("prototypes", rows))


def test_each_network_learns_by_its_own_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    called = list[str]()

    def noted(name: str, loss: Loss) -> Loss:
        def wrapped(net: _Net, maps: Tensor, held: Tensor) -> Tensor:
            called.append(name)
            assert maps.shape == (512, 5 * 64) and held.shape == (512, 64)
            return loss(net, maps, held)

        return wrapped

    for name, loss in (("_pair_loss", _pair_loss), ("_prototype_loss", _prototype_loss)):
        monkeypatch.setattr(f"mixveil.attacks.shared.breaks.comparing.{name}", noted(name, loss))
    comparer(2).maps("prototypes", held_rows()[0][:20])
    assert called == ["_pair_loss"] * 2 + ["_prototype_loss"] * 2


@pytest.mark.parametrize("in_places", [True, False])
def test_networks_learn_from_images_that_were_moved_unless_places_are_compared(
    in_places: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves = list[Tensor]()

    def noted(*given: Any, **more: Any) -> Encodings:
        made = encodings(*given, **more)
        moves.append(made.moves)
        return made

    monkeypatch.setattr("mixveil.attacks.shared.breaks.comparing.encodings", noted)
    comparer(1, encoder=MOVING, in_places=in_places).maps("pairs", held_rows()[0][:20])
    assert moves and all(bool(part.any()) != in_places for part in moves)


def test_networks_are_trained_once_and_then_taken_from_the_cache(tmp_path: Path) -> None:
    rows, said = held_rows()[0][:20], list[str]()
    first = comparer(5, tmp_path, said=said).maps("prototypes", rows)
    assert len(list((tmp_path / "attacks").iterdir())) == 2 and len(said) == 3  # one for the encodings
    again = comparer(5, tmp_path, said=said).maps("prototypes", rows)
    assert torch.equal(again, first) and len(list((tmp_path / "attacks").iterdir())) == 2 and len(said) == 3
    comparer(5, tmp_path, noise=0.1).maps("pairs", rows)
    assert len(list((tmp_path / "attacks").iterdir())) == 3
