"""The inversions of representations: the paper's two against slow twins, and all of them on digits, against the client
half of a plain network and of one that was trained with MixCon."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
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
from mixveil.attacks.shared.inverting import Standard, Target, Whitening, told, total_variation
from mixveil.attacks.shared.kept_networks import KeptNetworks
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
GAN = InversionGan(base=8, schedule=Schedule(epochs=9, batch=32, rate=0.002))
ADAPTIVE = InversionAdaptive(base=8, steps=80, schedule=Schedule(epochs=8, batch=32, rate=5e-3, falling=True))


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
    squares: dict[str, Any] = {"zeta": 0.0, "distance": "mse", "mean_over": 1}
    view = seen_through(times(40))
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


def decoy(large: float, small: float = 1.0) -> Half:
    """Sends the image times a small factor, and beside it maps of its mean times a large one."""
    layer = nn.Conv2d(1, 2, 15, padding=7)
    weight = torch.zeros(2, 1, 15, 15)
    weight[0, 0, 7, 7], weight[1] = small, large / 64
    layer.load_state_dict({"weight": weight, "bias": torch.tensor([0.0, large])})
    return half_of(nn.Sequential(layer))


def times(factor: float) -> Half:
    """Sends all pixels times a factor."""
    layer = nn.Linear(64, 64, bias=False)
    layer.load_state_dict({"weight": factor * torch.eye(64)})
    return half_of(nn.Sequential(nn.Flatten(), layer))


BRIEF = replace(ADAPTIVE, cache=TrainingCache(max_steps=60))


@pytest.mark.parametrize("half", [decoy(1e7), *(times(10.0**power) for power in (-38, -20, -6, 6))])
def test_no_size_of_what_is_sent_hides_images_from_the_adaptive_attack(half: Half) -> None:
    """Neither large values beside small ones, nor all values large or small."""
    assert error(BRIEF, half) < 0.01 * NOTHING


def test_small_differences_of_large_values_are_used() -> None:
    """Pixels on top of 10⁵ times their mean: float32 keeps a hundredth of a pixel there."""
    layer = nn.Linear(64, 64, bias=False)
    layer.load_state_dict({"weight": torch.eye(64) + 1e5 / 64})
    assert error(BRIEF, half_of(nn.Sequential(nn.Flatten(), layer))) < 0.1 * NOTHING


@pytest.mark.parametrize("half", [decoy(1.0, 1e-7), times(1e-20)])
def test_the_generator_sees_small_values(half: Half) -> None:
    """Beside large ones, or alone."""
    assert error(replace(GAN, schedule=Schedule(epochs=5, batch=32, rate=0.002)), half) < 0.4 * NOTHING


def test_what_is_guessed_of_an_image_does_not_depend_on_the_others_attacked(defended: Half) -> None:
    brief = replace(ADAPTIVE, cache=TrainingCache(max_steps=20))
    all_of_them, some = (images(brief, seen_through(defended, rows)) for rows in (N, 4))
    apart, differ = (all_of_them[:4] - some).abs(), (some - some.roll(1, 0)).abs()
    # Not to the last digit: training and Adam blow up the rounding of sums taken in another order.
    assert float(apart.mean()) < 0.1 * float(differ.mean())
    assert float(apart.flatten(1).mean(1).max()) < 0.5 * float(differ.flatten(1).mean(1).min())


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


def test_each_value_is_standardised_by_itself_and_what_does_not_vary_is_dropped() -> None:
    z = SeededStream(4).normal(50, 4).float() * torch.tensor([1e-30, 1.0, 1e20, 0.0]) + torch.tensor([0, 5, 0, 7.0])
    standard = Standard.of(z)
    wide = z.double()
    slow = (wide - wide.mean(0)) / wide.std(0, correction=0)
    assert torch.allclose(standard(z)[:, :3], slow[:, :3]) and bool((standard(z)[:, 3] == 0).all())
    other = z.clone()
    other[:, 3] = 1e9  # what never varied in public says nothing of how images differ
    assert bool((standard(other)[:, 3] == 0).all())
    assert torch.allclose(Whitening.of(z)(z).double().square().mean(0), torch.ones(3, dtype=torch.float64), atol=1e-3)


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


class Unnamed:
    """A client part that has no digest."""

    def __init__(self, half: Half) -> None:
        self.half, self.shape, self.low, self.high = half, half.shape, half.low, half.high
        self.all_values = half.all_values

    def on(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        return self.half.on(device)


@pytest.mark.parametrize("named", [True, False])
def test_networks_of_another_client_half_or_range_have_another_key(named: bool) -> None:
    """Of two halves that do the same to all public images, and of one with another range of pixels."""
    x = PUBLIC.take(torch.arange(100)).x
    most = float(x.flatten(1).sum(1).max()) + 1
    keys = []
    for large, high in ((0.0, 1.0), (100.0, 1.0), (0.0, 2.0)):
        layer = nn.Linear(64, 65)
        weight = torch.cat([torch.eye(64), torch.full((1, 64), large)])
        layer.load_state_dict({"weight": weight, "bias": torch.cat([torch.zeros(64), torch.tensor([-large * most])])})
        half = replace(half_of(nn.Sequential(nn.Flatten(), layer, nn.ReLU())), high=high)
        client: Any = half if named else Unnamed(half)
        z = half.on(CPU)(x)
        keys.append(told(Target(z, half.on(CPU), client, half.output), x, z))
    assert keys[0]["sent"] == keys[1]["sent"] and keys[0]["client"] != keys[1]["client"]
    assert keys[0] != keys[2] and keys[2]["high"] == 2.0


def test_attacks_that_train_tell_client_halves_apart_in_their_caches(plain: Half, tmp_path: Path) -> None:
    for attack in (GAN, ADAPTIVE):
        for number, half in enumerate((plain, replace(plain, high=2.0)), start=1):
            cached = replace(attack, cache=TrainingCache(tmp_path / attack.name, max_steps=2))
            images(cached, seen_through(half, 2))
            assert len([*(tmp_path / attack.name / "attacks").glob("*.safetensors")]) == number


@pytest.mark.parametrize("wrong", [torch.full((2, 2), torch.nan), torch.ones(2, 2, dtype=torch.float64)])
def test_kept_networks_of_no_numbers_or_another_type_are_not_used(wrong: Tensor, tmp_path: Path) -> None:
    net, other = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    kept = KeptNetworks.of({"attack": "toy"}, TrainingCache(tmp_path))
    kept.keep(net)
    assert kept.taken(other) and torch.equal(net.weight, other.weight)
    net.weight = nn.Parameter(wrong)
    kept.keep(net)
    assert not kept.taken(other) and bool(other.weight.isfinite().all())
