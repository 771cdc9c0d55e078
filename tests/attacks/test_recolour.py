"""Colours of recovered images: a planted change is undone, and images that no change makes better stay."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mixveil.attacks.shared.breaks.recolour import recoloured
from mixveil.core.randomness import SeededStream


def pictures(n: int, seed: int, channels: int = 3) -> Tensor:
    return SeededStream(seed).uniform(n, channels, 8, 8)


def changed(x: Tensor) -> Tensor:
    """Faded, with a cast, and with channels that run into one another."""
    return 0.2 + 0.5 * x.sqrt() + 0.2 * x.roll(1, dims=1)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_change_of_colours_is_undone_on_images_it_has_not_seen(channels: int) -> None:
    public, truth = pictures(40, 1, channels), pictures(20, 2, channels)
    found = recoloured(changed(truth), changed(public), public, SeededStream(0))
    error, before = ((x - truth).square().mean() for x in (found, changed(truth)))
    assert found.shape == truth.shape and found.dtype == torch.float64
    assert float(error) < 0.1 * float(before)


def test_a_change_need_not_be_linear() -> None:
    """Lost signs: the best linear change gives one grey to all pixels."""
    public, x = (4 * pictures(40, seed, 1) - 2 for seed in (1, 2))
    found = recoloured(x, public, public.abs(), SeededStream(0))
    assert float((found - x.abs()).square().mean()) < 0.2 * float(x.abs().var())


def test_every_pixel_is_changed_by_its_own_colour_alone() -> None:
    public, x = pictures(40, 1), changed(pictures(6, 2))
    found = recoloured(x, changed(public), public, SeededStream(0))
    turned = recoloured(x.flip(0, 2), changed(public), public, SeededStream(0))
    torch.testing.assert_close(turned.flip(0, 2), found)
    assert not torch.allclose(found, x, atol=0.05)


def test_images_stay_where_a_change_does_not_help() -> None:
    public, x = pictures(10, 1)[..., :2, :2], pictures(5, 2)
    noise = 0.3 * SeededStream(3).normal(*public.shape)  # what is learned from noise is wrong for other images
    assert torch.equal(recoloured(x, public, public + noise, SeededStream(0)), x)
    assert torch.equal(recoloured(x.float(), public, public, SeededStream(0)), x.float().double())


def test_images_of_one_public_image_stay() -> None:
    """It is held out, and there is nothing to learn from."""
    x = pictures(5, 2)
    assert torch.equal(recoloured(x, pictures(1, 1), changed(pictures(1, 1)), SeededStream(0)), x)


def test_nothing_is_learned_from_the_images_that_it_is_judged_by() -> None:
    """Every fifth public image is held out: there a change makes them worse, and so nothing is changed."""
    public, x = pictures(40, 1), pictures(5, 2)
    held = (torch.arange(40) % 5 == 0).view(-1, 1, 1, 1)
    assert torch.equal(recoloured(x, torch.where(held, public, changed(public)), public, SeededStream(0)), x)
    here = recoloured(x, torch.where(held.roll(1), public, changed(public)), public, SeededStream(0))
    assert not torch.allclose(here, x, atol=0.05)


def test_colours_follow_from_the_stream() -> None:
    public, x = pictures(10, 1), changed(pictures(5, 2))
    one, again, other = (recoloured(x, changed(public), public, SeededStream(seed)) for seed in (0, 0, 1))
    assert torch.equal(one, again) and not torch.equal(one, other)
