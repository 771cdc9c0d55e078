"""InvGrad finds images in updates without a defence, of one gradient and of several local steps; and attackers who know
of Fed-AugMix look where its views are not loud."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from mixveil.attacks.shared.matching import (
    Descent,
    Sought,
    batches,
    coarse,
    descend,
    flat,
    sent,
    simulated,
    variation,
)
from mixveil.attacks.shared.updates import UpdateTarget
from mixveil.attacks.updates.invgrad import InvGrad, best, without_views
from mixveil.attacks.updates.invgrad_adaptive import InvGradAdaptive, noise, views_of, weights
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError
from mixveil.core.first_weights import started
from mixveil.core.local_training import AugMix, LocalTraining
from mixveil.core.randomness import SeededStream
from mixveil.core.types import View
from mixveil.data.augmix import views
from mixveil.data.opening import open_data
from mixveil.data.similarity import psnr_db
from mixveil.features.stacked.local_steps import Rows, local_steps
from mixveil.features.stacked.network import Stacked, stacked
from mixveil.releases.updates import in_memory

DATA = open_data("digits:train")
CPU = torch.device("cpu")
QUICK = Descent(250, tv=1e-4)


def network() -> nn.Sequential:
    net = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, 12, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(192, 10),
    )
    return started(net, DeviceStream(SeededStream(1)), CPU)


def rows(clients: int, batch: int) -> tuple[Tensor, Tensor]:
    x, y = DATA.take(torch.arange(clients * batch))
    return x.view(clients, batch, 1, 8, 8), y.view(clients, batch, -1)


def target(x: Tensor, y: Tensor, training: LocalTraining, seen: list[Rows] | None = None) -> UpdateTarget:
    """What clients with these images send."""
    net = network()
    before = stacked(dict(net.named_parameters()), len(x))
    steps = seen or [
        Rows(x[:, part], y[:, part]) for part in batches(training.rows, training.batch, len(training.rates))
    ]
    after = local_steps(Stacked(net), before, steps, training)
    return UpdateTarget(before, after, Stacked(net), training, 10, (1, 8, 8))


def starts(like: Tensor) -> Tensor:
    return SeededStream(2).uniform(*like.shape).float()


TRAININGS = {
    "a gradient": LocalTraining(3, 3, (0.1,)),
    "five steps": LocalTraining(3, 3, (0.1,) * 5),
    "batches": LocalTraining(3, 1, (0.1, 0.05, 0.02, 0.01)),
    "a small last batch": LocalTraining(3, 2, (0.1, 0.1)),
    "momentum and a proximal term": LocalTraining(3, 3, (0.1,) * 3, momentum=0.9, proximal=0.3),
}


@pytest.mark.parametrize("training", TRAININGS.values(), ids=TRAININGS)
def test_images_are_found_in_updates_without_a_defence(training: LocalTraining) -> None:
    x, y = rows(2, 3)
    seen = target(x, y, training)
    found = descend(seen, starts(x), y, QUICK)
    assert float(found.misfit.median()) < 0.03
    decibels = psnr_db(x.flatten(0, 1), found.images.flatten(0, 1))
    assert float(decibels.median()) > 20 and float(psnr_db(x.flatten(0, 1), starts(x).flatten(0, 1)).max()) < 10


@pytest.mark.parametrize("training", TRAININGS.values(), ids=TRAININGS)
def test_the_truth_fits_exactly_and_other_images_do_not(training: LocalTraining) -> None:
    x, y = rows(2, 3)
    seen = target(x, y, training)
    assert torch.allclose(simulated(seen, x, y, differentiable=False), sent(seen), atol=1e-7)
    others = simulated(seen, x.roll(1, 0), y, differentiable=False)
    assert float(Sought(sent(seen)).misfit(others).min()) > 0.01


def test_the_slope_goes_through_all_local_steps() -> None:
    """Against finite differences of the misfit, in float64."""
    x, y = (t.double() for t in rows(1, 2))
    training = LocalTraining(2, 1, (0.2, 0.1, 0.3), momentum=0.5)
    whole = target(x.float(), y.float(), training)
    before, after = ({n: t.double() for n, t in of.items()} for of in (whole.before, whole.after))
    seen = replace(whole, before=before, after=after)

    def misfit(z: Tensor) -> Tensor:
        return Sought(sent(seen)).misfit(simulated(seen, z, y)).sum()

    guess = (0.3 + 0.4 * SeededStream(3).uniform(*x.shape)).requires_grad_()
    (slope,) = torch.autograd.grad(misfit(guess), guess)
    for place in ((0, 0, 0, 3, 3), (0, 1, 0, 4, 2)):
        step = torch.zeros_like(guess)
        step[place] = 1e-5
        there = (misfit(guess + step) - misfit(guess - step)) / 2e-5
        assert float(slope[place]) == pytest.approx(float(there.detach()), rel=1e-3, abs=1e-9)


def test_the_rate_falls_and_total_variation_is_of_neighbours() -> None:
    how = Descent(80, rate=0.1)
    rates = [how.rate_at(step) for step in (0, 29, 30, 50, 70)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.001, 0.0001])
    x = SeededStream(4).uniform(2, 3, 2, 4, 5)
    for client, found in zip(x, variation(x), strict=True):
        down = [
            abs(float(i[c, r + 1, k] - i[c, r, k])) for i in client for c in (0, 1) for r in range(3) for k in range(5)
        ]
        across = [
            abs(float(i[c, r, k + 1] - i[c, r, k])) for i in client for c in (0, 1) for r in range(4) for k in range(4)
        ]
        assert float(found) == pytest.approx(math.fsum(down) / len(down) + math.fsum(across) / len(across))
    with pytest.raises(ArgumentError, match=r"coarse must be in \[0, 1\], got 2"):
        Descent(coarse=2)


def test_local_steps_are_first_taken_as_one() -> None:
    x, y = rows(1, 4)
    seen = target(x, y, LocalTraining(4, 2, (0.1,) * 6, momentum=0.5, proximal=0.1))
    one = coarse(seen).training
    assert one.rates == pytest.approx((0.6,)) and (one.batch, one.momentum, one.proximal) == (4, 0.0, None)
    near = Sought(sent(seen)).misfit(simulated(coarse(seen), x, y, differentiable=False))
    assert 0.001 < float(near) < 0.3  # about the way, but not the way


def test_of_several_starts_the_best_is_kept_for_each_party() -> None:
    x, y = rows(3, 1)
    seen = target(x, y, LocalTraining(1, 1, (0.1,)))
    mixed = torch.stack([x[0], 1 - x[1], x[2]]), torch.stack([1 - x[0], x[1], starts(x)[2]])
    found = best([descend(seen, start, y, Descent(1, rate=1e-9)) for start in mixed])
    assert torch.allclose(found.images, x, atol=1e-6) and float(found.misfit.max()) < 1e-3


@pytest.mark.parametrize("told", [True, False], ids=["labels known", "labels read off"])
def test_the_attack_finds_images_of_a_release(told: bool) -> None:
    order = torch.tensor([3, 7, 1, 5])  # of four classes
    part = DATA.part(order)
    x, y = part.take(torch.arange(4))
    seen = target(x[None], y[None], LocalTraining(4, 4, (0.1,) * 2))
    both = [{name: value[0] for name, value in ends.items()} for ends in (seen.before, seen.after)]
    release = in_memory(part, *both, method="fedavg", training=seen.training, net=network())
    view = View((release,), labels=part.labels if told else None)
    images = InvGrad(steps=250, restarts=2, tv=1e-4)(view, stream=SeededStream(0)).images
    assert images is not None
    expected = x if told else x[part.labels.argsort()]
    assert float(psnr_db(expected, images).median()) > 18


def test_updates_of_adamw_show_images_too() -> None:
    x, y = rows(3, 1)
    net = network()
    before = stacked(dict(net.named_parameters()), 3)
    after = {name: value.clone() for name, value in before.items()}
    for client in range(3):
        own = network()
        optimiser = torch.optim.AdamW(own.parameters(), 1e-3, weight_decay=1e-4)
        nn.functional.cross_entropy(own(x[client]), y[client]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        for name, value in own.named_parameters():
            after[name][client] = value.detach()
    training = LocalTraining(1, 1, (1e-3,), "adamw", weight_decay=1e-4)
    seen = UpdateTarget(before, after, Stacked(net), training, 10, (1, 8, 8))
    found = descend(seen, starts(x), y, Descent(400, tv=1e-2))
    gained = psnr_db(x.flatten(0, 1), found.images.flatten(0, 1)) - psnr_db(
        x.flatten(0, 1), torch.full((3, 1, 8, 8), 0.3)
    )
    assert float(gained.median()) > 3


def with_views(x: Tensor, y: Tensor, settings: AugMix) -> UpdateTarget:
    draws = DeviceStream(SeededStream(6))
    seen = views(x.flatten(0, 1), settings, draws).view(settings.views, *x.shape)
    return target(x, y, LocalTraining(x.shape[1], x.shape[1], (0.1,), augmix=settings), [Rows(x, y, seen)])


def test_attackers_who_know_of_fed_augmix_get_more_than_those_who_do_not() -> None:
    """On average: views put noise into an update, and into some layers more than into others. Going on alone does not
    make up for it."""
    x, y = rows(12, 2)
    seen = with_views(x, y, AugMix(10.0, weight=2e3, large=2e3))
    attack = InvGradAdaptive(steps=150, restarts=1, tv=1e-3, rounds=1, plays=12, smoother=3.0)
    plain = InvGrad.found(attack, seen, y, SeededStream(0))
    longer = descend(without_views(seen), plain.images, y, Descent(150, 0.05, 3e-3))
    more = attack.refined(seen, y, plain, SeededStream(1))
    got = [float(psnr_db(x.flatten(0, 1), found.images.flatten(0, 1)).mean()) for found in (plain, longer, more)]
    assert got[2] > got[0] + 0.5 and got[2] > got[1]


def test_the_noise_of_views_is_measured_by_tensor() -> None:
    x, y = rows(2, 2)
    seen = with_views(x, y, AugMix(6.0, weight=3e3, large=3e3))
    drawn = views_of(seen, AugMix(6.0), DeviceStream(SeededStream(7)))
    found = noise(seen, x, y, drawn, 8)
    again = views_of(seen, AugMix(6.0), DeviceStream(SeededStream(7)))
    plays = torch.stack([simulated(seen, x, y, again, differentiable=False) for _ in range(8)]).double()
    sizes = [value[0].numel() for value in seen.before.values()]
    for client in range(2):
        each = [part.var(0).mean().sqrt() for part in torch.split(plays[:, client], sizes, 1)]
        slow = torch.cat([deviation.expand(n) for deviation, n in zip(each, sizes, strict=True)])
        assert torch.allclose(found[client].double(), slow, rtol=1e-3)
        size = float(sent(seen)[client].double().square().mean().sqrt())
        scales = [max(float(value), 0.05 * size) for value in slow]
        expected = torch.tensor([min(scales) / scale for scale in scales])
        assert torch.allclose(weights(seen, found)[client], expected, rtol=1e-3)


def test_where_views_are_silent_all_of_an_update_counts_alike() -> None:
    x, y = rows(2, 2)
    seen = with_views(x, y, AugMix(6.0, weight=0.0, large=0.0))
    silent = noise(seen, x, y, views_of(seen, AugMix(6.0), DeviceStream(SeededStream(7))), 3)
    assert float(silent.max()) == 0 and torch.equal(weights(seen, silent), torch.ones_like(silent))
    attack = InvGradAdaptive(steps=150, restarts=1, tv=1e-4, rounds=1, plays=2)
    found = attack.found(seen, y, SeededStream(0))
    assert float(psnr_db(x.flatten(0, 1), found.images.flatten(0, 1)).median()) > 18


def test_small_updates_are_compared_as_large_ones_are() -> None:
    x, y = rows(2, 2)
    seen = with_views(x, y, AugMix(6.0, weight=3e3, large=3e3))
    found = simulated(seen, x.roll(1, 0), y, differentiable=False)
    tiny = 1e-24  # squared it is no float32
    usual, small = Sought(sent(seen)).misfit(found), Sought(tiny * sent(seen)).misfit(tiny * found)
    assert torch.allclose(usual, small, rtol=1e-4) and float(usual.min()) > 0
    after = {name: seen.before[name] + tiny * (value - seen.before[name]) for name, value in seen.after.items()}
    still = replace(seen, after=after)  # float32 loses the difference: nothing was sent
    assert torch.equal(weights(still, torch.zeros_like(found)), torch.ones_like(found))
    assert bool(weights(still, tiny * found.abs()).isfinite().all())


def test_the_plain_attack_does_not_know_of_views() -> None:
    x, y = rows(1, 2)
    seen = with_views(x, y, AugMix(4.0))
    assert without_views(seen).training.augmix is None and seen.training.augmix is not None
    assert flat({"a": torch.ones(2, 3, 1), "b": torch.zeros(2, 2)}).tolist() == [[1, 1, 1, 0, 0]] * 2
