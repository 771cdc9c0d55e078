"""AugMix: every operation against Pillow, the mixture against one image at a time, and its gradient."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor

import mixveil
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError
from mixveil.core.local_training import AugMix
from mixveil.core.randomness import SeededStream
from mixveil.data.augmix import OPERATIONS, Plan, applied, augmix, followed, planned, views

NONE = len(OPERATIONS)


def draws(seed: int = 1) -> DeviceStream:
    return DeviceStream(SeededStream(seed))


def photographs(n: int = 3, channels: int = 3, high: int = 28, wide: int = 36) -> Tensor:
    """(n, c, h, w) uint8: smooth waves and some grain, dark in one channel, with all of the range in none."""
    rows, columns = torch.meshgrid(torch.arange(high) / high, torch.arange(wide) / wide, indexing="ij")
    phase = 6 * SeededStream(3).uniform(n, channels, 2, 1, 1)
    waves = torch.sin(7 * rows + phase[:, :, 0]) * torch.cos(5 * columns + phase[:, :, 1])
    grain = SeededStream(4).uniform(n, channels, high, wide) - 0.5
    bright = torch.linspace(1, 0.5, channels)[:, None, None]
    return ((0.5 + 0.35 * waves + 0.1 * grain) * bright * 255).round().to(torch.uint8)


def pictures(x: Tensor) -> list[Image.Image]:
    if x.shape[1] == 1:
        return [Image.fromarray(each[0].numpy(), "L") for each in x]
    return [Image.fromarray(each.movedim(0, -1).numpy(), "RGB") for each in x]


def octets(found: list[Image.Image]) -> Tensor:
    return torch.stack([torch.from_numpy(np.array(each)).view(each.height, each.width, -1) for each in found]).movedim(
        -1, 1
    )


def ours(name: str, x: Tensor, level: float) -> Tensor:
    """In 0…255, of images in 0…255."""
    number = torch.full((len(x),), OPERATIONS.index(name))
    return applied(x.double() / 255, number, torch.full((len(x),), level, dtype=torch.float64)) * 255


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("level", [0.01, 0.3, 0.51, 0.76, 0.999, 1.0, -0.6])
def test_posterize_and_solarize_are_pillows(channels: int, level: float) -> None:
    x = photographs(channels=channels)
    bits = max(1, 4 - math.floor(4 * abs(level)))
    expected = octets([ImageOps.posterize(each, bits) for each in pictures(x)])
    assert torch.allclose(ours("posterize", x, level), expected.double(), atol=1e-6)
    threshold = math.ceil(255 * (1 - abs(level)))  # Pillow inverts from this octet on
    inverted = octets([ImageOps.solarize(each, threshold) for each in pictures(x)])
    assert torch.allclose(ours("solarize", x, level), inverted.double(), atol=1e-6)
    assert not torch.equal(inverted, x) or abs(level) < 0.1


def flat_and_rare() -> Tensor:
    """Images that histograms are wrong about: flat, of two values, hardly any darker than the brightest."""
    x = photographs(4, 3)
    x[0, 0], x[0, 1], x[1, :, :20] = 77, 0, 255
    x[2] = torch.where(x[2] > 100, 200, 3).to(torch.uint8)
    x[3, :, :21], x[3, 0, 21:, :5] = 250, 9  # 255 pixels, less the brightest, decide
    return x


@pytest.mark.parametrize("x", [photographs(), photographs(channels=1), photographs(2, 3, 8, 8), flat_and_rare()])
def test_equalize_and_autocontrast_are_pillows(x: Tensor) -> None:
    expected = octets([ImageOps.equalize(each) for each in pictures(x)])
    assert torch.allclose(ours("equalize", x, 0.5), expected.double(), atol=1e-6)
    stretched = octets([ImageOps.autocontrast(each) for each in pictures(x)]).double()
    apart = ours("autocontrast", x, 0.5) - stretched  # Pillow cuts fractions off
    assert float(apart.min()) > -1e-6 and float(apart.max()) < 1 + 1e-6
    assert not torch.equal(stretched, x.double())


def shape_of(name: str, level: float, wide: int, high: int) -> tuple[float, ...]:
    """Pillow's six numbers: where, in pixels from the upper left corner, a pixel is taken from."""
    if name == "rotate":
        angle = math.radians(30 * level)
        cosine, sine, x, y = math.cos(angle), math.sin(angle), wide / 2, high / 2
        return cosine, -sine, x - cosine * x + sine * y, sine, cosine, y - sine * x - cosine * y
    return {
        "shear-x": (1, 0.3 * level, 0, 0, 1, 0),
        "shear-y": (1, 0, 0, 0.3 * level, 1, 0),
        "translate-x": (1, 0, level * wide / 3, 0, 1, 0),
        "translate-y": (1, 0, 0, 0, 1, level * high / 3),
    }[name]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("level", [0.04, 0.37, 1.0, -0.83])
@pytest.mark.parametrize("name", OPERATIONS[:5])
def test_moves_are_pillows(name: str, level: float, channels: int) -> None:
    x = photographs(channels=channels)
    high, wide = x.shape[2:]
    numbers = shape_of(name, level, wide, high)

    def transformed(image: Image.Image) -> Image.Image:
        return image.transform(image.size, Image.Transform.AFFINE, numbers, Image.Resampling.BILINEAR)

    expected = octets([transformed(each) for each in pictures(x)]).double()
    row, column = torch.meshgrid(torch.arange(high) + 0.5, torch.arange(wide) + 0.5, indexing="ij")
    right = numbers[0] * column + numbers[1] * row + numbers[2]
    down = numbers[3] * column + numbers[4] * row + numbers[5]
    # Pillow draws the outermost half pixel on; here it fades to black.
    inside = (right > 0.5) & (right < wide - 0.5) & (down > 0.5) & (down < high - 0.5)
    outside = (right < -0.5) | (right > wide + 0.5) | (down < -0.5) | (down > high + 0.5)
    found = ours(name, x, level)
    assert float(inside.float().mean()) > 0.5
    assert float((found - expected)[..., inside].abs().max()) < 1.01  # Pillow's octets
    assert bool((found[..., outside] == 0).all()) and bool((expected[..., outside] == 0).all())
    assert bool(outside.any()) or abs(level) < 0.1
    assert float((expected - x)[..., inside].abs().max()) > 3


def test_rotation_is_pillows_own() -> None:
    x = photographs()
    expected = octets([each.rotate(12, Image.Resampling.BILINEAR) for each in pictures(x)]).double()
    apart = (ours("rotate", x, 0.4) - expected).abs()
    assert float(apart[..., 6:-6, 6:-6].max()) < 1.01


def one_at_a_time(x: Tensor, plan: Plan) -> Tensor:
    """Algorithm 2, line by line."""
    found = []
    for i, image in enumerate(x):
        mixed = torch.zeros_like(image)
        for j, weight in enumerate(plan.weights[i]):
            now = image[None]
            for number, level in zip(plan.operation[i, j], plan.level[i, j], strict=True):
                if number < NONE:
                    now = applied(now, number[None], level[None])
            mixed += weight * now[0]
        found.append(plan.kept[i] * image + (1 - plan.kept[i]) * mixed)
    return torch.stack(found)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("settings", [AugMix(8.0), AugMix(3.0, chains=2, longest=4, alpha=0.4)])
def test_a_batch_is_one_image_at_a_time(channels: int, settings: AugMix) -> None:
    x = photographs(20, channels, 18, 22).float() / 255
    plan, stream = planned(len(x), settings, draws()), draws()
    found = augmix(x, settings, stream)
    assert torch.allclose(found, one_at_a_time(x, plan), atol=1e-6)
    assert {*plan.operation.flatten().tolist()} == {*range(NONE + 1)}  # all of them were at work
    assert found.shape == x.shape and found.dtype == x.dtype
    assert float(found.min()) >= 0 and float(found.max()) <= 1
    assert float((found - x).abs().mean()) > 0.02
    assert not torch.allclose(augmix(x, settings, stream), found)


def test_views_are_drawn_one_by_one_and_repeat_by_their_number() -> None:
    x, settings, stream = mixveil.open_data("digits:test").take(torch.arange(6)).x, AugMix(6.0, views=3), draws()
    stream.restart(7)
    found = views(x, settings, stream)
    other = views(x, settings, stream)
    stream.restart(7)
    assert found.shape == (3, *x.shape) and torch.equal(views(x, settings, stream), found)
    assert not torch.allclose(found[0], found[1]) and not torch.allclose(found, other)
    stream.restart(7)
    plan = planned(18, settings, stream)
    expected = one_at_a_time(x.repeat(3, 1, 1, 1), plan).view_as(found)
    assert torch.allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("severity", [0.05, 2.0, 10.0])
def test_plans_follow_their_laws(severity: float) -> None:
    n, settings = 4000, AugMix(severity, chains=3, longest=3)
    plan = planned(n, settings, draws())
    assert plan.operation.shape == plan.level.shape == (n, 3, 3)
    low, high = sorted((0.01, severity / 10))
    size = plan.level.abs()
    assert low - 1e-6 <= float(size.min()) < low + 0.001 * high + 1e-3 and float(size.max()) <= high + 1e-6
    assert float(size.mean()) == pytest.approx((low + high) / 2, rel=0.02)
    assert abs(float(plan.level.sign().mean())) < 6 / plan.level.numel() ** 0.5
    lengths = (plan.operation < NONE).sum(2)
    assert torch.equal(plan.operation < NONE, torch.arange(3) < lengths[..., None])  # no gaps
    shares = lengths.flatten().bincount(minlength=4) / (3 * n)
    assert shares[0] == 0 and float((shares[1:] - 1 / 3).abs().max()) < 6 * (2 / 9 / (3 * n)) ** 0.5
    counts = plan.operation[:, :, 0].flatten().bincount(minlength=NONE + 1) / (3 * n)
    assert counts[NONE] == 0 and float((counts[:NONE] - 1 / 9).abs().max()) < 6 * (8 / 81 / (3 * n)) ** 0.5
    assert torch.allclose(plan.weights.sum(1), torch.ones(n), atol=1e-6)
    assert float(plan.weights.var(0).mean()) == pytest.approx(1 / 18, rel=0.1)  # of Dirichlet(1, 1, 1)
    assert float(plan.kept.var()) == pytest.approx(1 / 12, rel=0.1)


def test_severity_moves_images_farther() -> None:
    x = photographs(60).float() / 255
    apart = [float((augmix(x, AugMix(severity), draws()) - x).square().mean()) for severity in (0.2, 2, 6, 10)]
    assert apart == sorted(apart) and apart[-1] > 1.5 * apart[0]  # some operations have no level


def slope_by_differences(run: Callable[[Tensor], Tensor], x: Tensor, way: Tensor, size: float = 1e-6) -> float:
    return float((run(x + size * way) - run(x - size * way)).sum() / (2 * size))


@pytest.mark.parametrize(
    "name", ["rotate", "shear-x", "shear-y", "translate-x", "translate-y", "solarize", "autocontrast"]
)
def test_gradients_are_the_slopes(name: str) -> None:
    x = (SeededStream(5).uniform(3, 2, 7, 9) * 0.8 + 0.1).requires_grad_()
    number, level = torch.full((3,), OPERATIONS.index(name)), torch.tensor([0.9, -0.4, 0.2], dtype=torch.float64)
    aim, way = SeededStream(6).normal(*x.shape), SeededStream(7).normal(*x.shape)

    def run(x: Tensor) -> Tensor:
        return aim * applied(x, number, level)

    (slope,) = torch.autograd.grad(run(x).sum(), x)
    assert float((slope * way).sum()) == pytest.approx(slope_by_differences(run, x.detach(), way), rel=1e-5)
    assert float(slope.abs().max()) > 0.5


@pytest.mark.parametrize("name", ["posterize", "equalize"])
def test_steps_hand_gradients_through(name: str) -> None:
    x, number = (photographs().double() / 255).requires_grad_(), OPERATIONS.index(name)
    aim = SeededStream(6).normal(*x.shape)
    found = applied(x, torch.full((3,), number), torch.full((3,), 0.5))
    assert not torch.allclose(found, x, atol=0.01)
    (slope,) = torch.autograd.grad((aim * found).sum(), x)
    assert torch.equal(slope, aim)


def test_the_whole_has_its_gradient() -> None:
    """Without operations that have no slope, against differences."""
    x = SeededStream(8).uniform(12, 1, 9, 9) * 0.9 + 0.05
    plan = planned(12, AugMix(7.0), draws(4))
    smooth = torch.where((plan.operation == 5) | (plan.operation == 7), 0, plan.operation)
    plan = plan._replace(operation=smooth)
    way = SeededStream(9).normal(*x.shape)
    wanted = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(followed(wanted, plan).square().sum(), wanted)
    expected = slope_by_differences(lambda each: followed(each, plan).square(), x, way)
    assert float((slope * way).sum()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("edge", [0.0, 1.0])
def test_gradients_live_at_black_and_at_white(edge: float) -> None:
    x = torch.full((50, 1, 6, 6), edge, requires_grad=True)
    found = augmix(x, AugMix(5.0), draws())
    (slope,) = torch.autograd.grad(found.sum(), x)
    assert bool((slope.flatten(1).abs().amax(1) > 0).all()) and bool(((found >= 0) & (found <= 1)).all())


@pytest.mark.parametrize(
    "x", [torch.zeros(3, 8, 8), torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.zeros(0, 1, 8, 8), torch.tensor(0.5)]
)
def test_what_are_no_images_is_refused(x: Tensor) -> None:
    for run in (augmix, views):
        with pytest.raises(ArgumentError, match=r"x must be floats \(n, c, h, w\)"):
            run(x, AugMix(2.0), draws())


def test_pixels_that_are_no_numbers_break_nothing_else() -> None:
    x = photographs(30, 1, 20, 20).float() / 255
    spoilt = x.clone()
    spoilt[0, 0, 3, 3] = math.nan
    assert torch.equal(augmix(spoilt, AugMix(5.0), draws())[1:], augmix(x, AugMix(5.0), draws())[1:])
