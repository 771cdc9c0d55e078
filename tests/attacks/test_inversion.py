"""The inversions of representations: the paper's two against slow twins, and all of them on digits, against the client
half of a plain network and of one that was trained with MixCon."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy, cross_entropy

from mixveil.attacks.representations.inversion import Inversion
from mixveil.attacks.representations.inversion_adaptive import InversionAdaptive
from mixveil.attacks.representations.inversion_gan import InversionGan, Rivals, told_loss
from mixveil.attacks.shared import nets
from mixveil.attacks.shared.inverting import Target, Whitening, total_variation
from mixveil.attacks.shared.training import Schedule, TrainingCache
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Attack, View
from mixveil.data.images import from_tensors
from mixveil.data.similarity import mse
from mixveil.features.split.half import Half
from mixveil.releases.representations import in_memory
from mixveil.theory.separability import mixcon
from tests.attacks.made import digits

CPU = torch.device("cpu")
PUBLIC, PRIVATE, N = digits(0, 800), digits(900, 930), 30
TRUTH = PRIVATE.take(torch.arange(N)).x
GAN = InversionGan(base=8, schedule=Schedule(epochs=15, batch=32, rate=0.002))
ADAPTIVE = InversionAdaptive(base=8, steps=150, schedule=Schedule(epochs=15, batch=32, rate=5e-3, falling=True))


def half_of(net: nn.Sequential, shape: tuple[int, ...] = (1, 8, 8)) -> Half:
    output = tuple(net(torch.zeros(1, *shape)).shape[1:])
    return Half("client", net.eval(), shape, output, PUBLIC.classes)


def trained(weight: float) -> Half:
    """The client half of a small network of digits, trained with so much of MixCon."""
    h = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    g = nn.Sequential(nn.Flatten(), nn.Linear(192, 10))
    net = nets.started(nn.Sequential(OrderedDict(h=h, g=g)), DeviceStream(SeededStream(1)), CPU)
    x, y = PUBLIC.take(torch.arange(len(PUBLIC)))
    optimiser = torch.optim.Adam(net.parameters(), 5e-3)
    for step in range(150):
        rows = torch.arange(step * 80, step * 80 + 80) % len(x)
        z, labels = h(x[rows]), y[rows].argmax(1)
        loss = cross_entropy(g(z), labels) + weight * mixcon(z, labels, 1e-4)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    x, y = digits(1000, 1400).take(torch.arange(400))
    assert float((g(h(x)).argmax(1) == y.argmax(1)).double().mean()) > 0.85
    return half_of(h.requires_grad_(False))


@pytest.fixture(scope="module")
def plain() -> Half:
    return trained(0.0)


@pytest.fixture(scope="module")
def defended() -> Half:
    return trained(1.0)


def seen_through(half: Half, rows: int = N) -> View:
    return View((in_memory(PRIVATE.part(torch.arange(rows)), half),), public=PUBLIC, client=half)


def images(attack: Attack, view: View) -> Tensor:
    found = attack(view, stream=SeededStream(0)).images
    assert found is not None
    return found


def error(attack: Attack, half: Half) -> float:
    return float(mse(TRUTH, images(attack, seen_through(half))).mean())


NOTHING = float(mse(TRUTH, PUBLIC.take(torch.arange(800)).x.mean(0).expand_as(TRUTH)).mean())


def test_the_total_variation_is_the_papers_and_has_a_slope_everywhere() -> None:
    s = SeededStream(1).uniform(2, 2, 4, 3)
    slow = [0.0, 0.0]
    for n, c, i, j in torch.cartesian_prod(*map(torch.arange, s.shape)).tolist():
        down = float(s[n, c, i + 1, j] - s[n, c, i, j]) if i < 3 else 0.0
        across = float(s[n, c, i, j + 1] - s[n, c, i, j]) if j < 2 else 0.0
        slow[n] += (down**2 + across**2) ** 0.5
    assert torch.allclose(total_variation(s), torch.tensor(slow, dtype=torch.float64), atol=1e-4)
    flat = torch.full((1, 1, 4, 4), 0.5, requires_grad=True)
    (slope,) = torch.autograd.grad(total_variation(flat).sum(), flat)
    assert bool(slope.isfinite().all())


@pytest.mark.parametrize("distance", ["l2", "mse", "l1"])
@pytest.mark.parametrize("start", ["zeros", "grey", "noise"])
def test_the_inversion_is_the_papers_to_the_last_step(plain: Half, distance: str, start: str) -> None:
    """Against torch's own SGD on each image alone: what is found of one does not depend on the others."""
    settings: dict[str, Any] = {"distance": distance, "start": start, "weight_decay": 0.1}
    attack = Inversion(steps=6, rate=0.05, zeta=0.01, mean_over=1, **settings)
    fourth = Inversion(steps=6, rate=0.2, zeta=0.01, mean_over=4, **{**settings, "weight_decay": 0.025})
    assert torch.allclose(images(attack, seen_through(plain, 3)), images(fourth, seen_through(plain, 3)), atol=1e-5)
    found = images(attack, seen_through(plain, 3))
    h = plain.on(CPU)
    noise = SeededStream(0).fork("start").uniform(3, 1, 8, 8).float()
    for row in range(3):
        first = {"zeros": torch.zeros(1, 1, 8, 8), "grey": torch.full((1, 1, 8, 8), 0.5), "noise": noise[row : row + 1]}
        s = first[start].clone().requires_grad_()
        optimiser = torch.optim.SGD([s], 0.05, weight_decay=0.1)
        for _ in range(6):
            apart = h(s) - h(TRUTH[row : row + 1])
            fit = {"l2": apart.norm(), "mse": apart.square().mean(), "l1": apart.abs().sum()}[distance]
            optimiser.zero_grad()
            (fit + 0.01 * total_variation(s).sum()).backward()
            optimiser.step()
        assert torch.allclose(found[row].float(), s.detach()[0].clamp(0, 1), atol=1e-4)


def test_where_the_rate_is_too_large_a_smaller_one_is_taken() -> None:
    """Pixels times 40 have slopes so steep that the rates 10, 1 and 0.1 leave all numbers, and 0.01 does not."""
    layer = nn.Linear(64, 64, bias=False)
    layer.load_state_dict({"weight": 40 * torch.eye(64)})
    squares: dict[str, Any] = {"zeta": 0.0, "distance": "mse", "mean_over": 1}
    view = seen_through(half_of(nn.Sequential(nn.Flatten(), layer)))
    found = images(Inversion(**squares), view)
    assert torch.equal(found, images(Inversion(**squares, rate=0.01), view))
    assert float(mse(TRUTH, found).mean()) < 1e-4


def test_vectors_are_inverted_too() -> None:
    """As in the paper's synthetic experiment: l1, the rate 0.01, no total variation."""
    x = SeededStream(1).uniform(20, 6).float()
    layer = nn.Linear(6, 12)
    layer.load_state_dict({"weight": SeededStream(2).normal(12, 6).float(), "bias": torch.zeros(12)})
    half = half_of(nn.Sequential(layer), (6,))
    view = View((in_memory(from_tensors(x, torch.arange(20) % 10, classes=10), half),), client=half)
    found = images(Inversion(distance="l1", rate=0.01, zeta=0.0, mean_over=1), view)
    assert float(mse(x, found).mean()) < 0.01


@pytest.mark.parametrize("wrong", [{"distance": "l3"}, {"start": "truth"}])
def test_settings_that_do_not_exist_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(wrong.values()))):
        Inversion(**wrong)  # type: ignore[arg-type]


def test_the_papers_attacks_invert_a_plain_network(plain: Half) -> None:
    assert error(Inversion(), plain) < 0.2 * NOTHING
    assert error(GAN, plain) < 0.3 * NOTHING


def test_the_adaptive_attack_recovers_most_with_mixcon_and_without(plain: Half, defended: Half) -> None:
    """Of 64 pixels a half sends three times as many values: MixCon has nothing to hide them behind."""
    assert error(Inversion(), defended) < 0.2 * NOTHING
    for half in (plain, defended):
        assert error(ADAPTIVE, half) < min(0.01 * NOTHING, error(Inversion(), half))
    assert error(ADAPTIVE, defended) < error(GAN, defended)


def test_squeezing_blinds_the_papers_attack_and_not_the_adaptive_one(plain: Half) -> None:
    """The same half with all it sends in a small ball: gradient descent at the paper's rate hardly moves."""
    last = nn.Conv2d(12, 12, 1)
    last.load_state_dict({"weight": 1e-2 * torch.eye(12).view(12, 12, 1, 1), "bias": torch.ones(12)})
    squeezed = half_of(nn.Sequential(*plain.net, last))
    assert error(Inversion(), squeezed) > 0.5 * NOTHING
    assert error(ADAPTIVE, squeezed) < 0.01 * NOTHING


def test_what_is_guessed_of_an_image_does_not_depend_on_the_others_attacked(defended: Half) -> None:
    brief = replace(ADAPTIVE, cache=TrainingCache(max_steps=20))
    all_of_them, some = (images(brief, seen_through(defended, rows)) for rows in (N, 4))
    assert torch.allclose(all_of_them[:4], some, atol=1e-3)


def test_a_half_that_sends_nothing_gives_nothing() -> None:
    """All representations are the same: what is left to guess is the public mean, and numbers."""
    layer = nn.Linear(64, 5)
    layer.load_state_dict({"weight": torch.zeros(5, 64), "bias": torch.ones(5)})
    found = images(ADAPTIVE, seen_through(half_of(nn.Sequential(nn.Flatten(), layer))))
    assert torch.allclose(found, found[:1].expand_as(found), atol=1e-3)
    assert float(mse(TRUTH, found).mean()) == pytest.approx(NOTHING, rel=0.1)


@pytest.mark.parametrize("values", [6, 3000])
def test_whitened_representations_are_uncorrelated(values: int) -> None:
    """Few values, or more than rows; and nothing is made of rounding."""
    stream = SeededStream(3)
    z = (5 + 1e-3 * stream.normal(60, 4) @ stream.normal(4, values)).float()
    white = Whitening.of(z)
    w = white(z).double()
    assert w.shape == (60, 4)
    assert torch.allclose(w.mean(0), torch.zeros(4, dtype=torch.float64), atol=5e-2)
    assert torch.allclose(w.T @ w / 60, torch.eye(4, dtype=torch.float64), atol=5e-2)


def test_each_of_the_rivals_learns_from_its_own_loss_alone(plain: Half) -> None:
    z = plain.on(CPU)(TRUTH)
    target = Target(z, plain.on(CPU), plain, plain.output)
    rivals = nets.started(Rivals(target, 4), DeviceStream(SeededStream(0)), CPU)
    made = rivals(z)
    real, fake = (torch.sigmoid(rivals.discriminator(x)) for x in (TRUTH, made))
    ones, zeros = torch.ones(N), torch.zeros(N)
    told, deceived = told_loss(rivals, TRUTH, made.detach()), GAN.made_loss(rivals, target, TRUTH, z, made)
    assert torch.allclose(told, binary_cross_entropy(real, ones) + binary_cross_entropy(fake, zeros), atol=1e-2)
    penalties = (TRUTH - made).abs().mean() + (z - plain.on(CPU)(made)).abs().mean()
    assert torch.allclose(deceived, binary_cross_entropy(fake, ones) + 10 * penalties, atol=1e-2)
    for loss, own, other in ((told, "discriminator", "generator"), (deceived, "generator", "discriminator")):
        rivals.zero_grad(set_to_none=True)
        loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
        moved = {name.split(".")[0] for name, weight in rivals.named_parameters() if weight.grad is not None}
        assert moved == {own} and other not in moved


def test_a_finished_gan_is_taken_from_the_cache_and_a_damaged_one_is_not(plain: Half, tmp_path: Path) -> None:
    said: list[str] = []
    cached = replace(GAN, cache=TrainingCache(tmp_path, max_steps=4, watch=said.append))
    view = seen_through(plain, 4)
    first = images(cached, view)
    assert said
    said.clear()
    assert torch.equal(images(cached, view), first) and not said
    (kept,) = (tmp_path / "attacks").iterdir()
    data = bytearray(kept.read_bytes())
    data[-5] ^= 1
    kept.write_bytes(data)
    assert torch.equal(images(cached, view), first) and said
    said.clear()
    images(replace(cached, xi=1.0), view)
    assert said and len([*(tmp_path / "attacks").iterdir()]) == 2
