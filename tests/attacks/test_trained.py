"""The paper's two attacks against slow twins; the stronger ones on digits: small, and failing if they stop working."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv2d, conv_transpose2d, max_pool2d, relu

from mixveil.attacks import _nets, _training
from mixveil.attacks._estimates import LEVELS, of_public
from mixveil.attacks._model import Mixing, prior_of
from mixveil.attacks._pixels import Pixels, total_variation
from mixveil.attacks._training import Recipe, Workshop
from mixveil.attacks.decoder import FeatureDecoder
from mixveil.attacks.linear import recovered
from mixveil.attacks.lmmse import Lmmse
from mixveil.attacks.prior import KnowNothing
from mixveil.attacks.unet import Unet
from mixveil.attacks.unet_strong import UnetStrong
from mixveil.backbones import IMAGENET
from mixveil.data import Images, from_tensors, open_data
from mixveil.encoders.singular import Singular
from mixveil.errors import ArgumentError
from mixveil.keys import DeviceStream, SeededStream
from mixveil.metrics.image import mse, ssim
from mixveil.types import Attack, Tau, Trace, View
from tests.made import encoded, range_facts, with_moments

CPU = torch.device("cpu")


def digits(start: int, stop: int) -> Images:
    return open_data("digits").part(torch.arange(start, stop))


def released(data: Images, share: float, public: Images, seed: int = 1) -> View:
    """Under noise of that many standard deviations of a pixel."""
    x = data.take(torch.arange(len(data))).x
    facts = with_moments(range_facts(data), energy=float(x.var(0).sum()), lambda_max=1.0)
    encoder, _ = Singular().calibrate(Tau(1.0, "energy"), facts)
    release, trace = encoded(replace(encoder, sigma=share * float(x.std())), data, SeededStream(seed))
    return View((release,), (trace,), public, pictures=public)


def error(attack: Attack, view: View, data: Images) -> float:
    images = attack(view, stream=SeededStream(0)).images
    assert images is not None
    return float(mse(data.take(torch.arange(len(data))).x, images.clamp(0, 1)).mean())


def test_the_linear_attack_is_the_papers_to_the_last_step() -> None:
    stream = SeededStream(3)
    rows, n = stream.normal(5, 3, 6, 4).float(), 5
    partner, weight = torch.tensor([1, 2, 3, 4, 0]), stream.capped_weights(5, 0.7)
    found = recovered(Mixing.of((Trace(partner[:, None], weight),)), [rows], Pixels(3, 0.0, 1.0, normalised=True))
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in IMAGENET)
    guess = rows.clone()
    first, second = torch.zeros_like(rows), torch.zeros_like(rows)
    for step in range(1, 201):
        x = guess.clone().requires_grad_()
        mixed = weight[:, 0].view(n, 1, 1, 1) * x + weight[:, 1].view(n, 1, 1, 1) * x[partner]
        smooth = (x[:, :, 1:] - x[:, :, :-1]).abs().mean() + (x[..., 1:] - x[..., :-1]).abs().mean()
        loss = (mixed - rows).square().mean() + 1e-3 * smooth + 1e-4 * x.square().mean()
        (slope,) = torch.autograd.grad(loss, x)
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope.square()
        move = first / (1 - 0.9**step) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
        guess = torch.minimum(torch.maximum(guess - 0.05 * move, -mean / std), (1 - mean) / std)
    assert torch.allclose(found, guess, atol=2e-3)
    assert not torch.allclose(found, rows, atol=0.1)


def test_pixels_enter_and_leave_normalised_and_are_clamped_to_what_they_can_be() -> None:
    x = SeededStream(1).uniform(2, 3, 4, 4).mul(10).sub(3)
    scale = Pixels(3, -3.0, 7.0, normalised=False)
    inside = scale.enter(x)
    assert torch.allclose(scale.leave(inside), x)
    assert torch.allclose(inside[:, 1], ((x[:, 1] + 3) / 10 - 0.456) / 0.224)
    assert torch.equal(scale.clamp(inside), inside)
    beyond = scale.leave(scale.clamp(inside * 100))
    assert float(beyond.min()) == pytest.approx(-3.0) and float(beyond.max()) == pytest.approx(7.0)
    assert Pixels(3, 0.0, 1.0, normalised=True).enter(x) is x


def test_total_variation_counts_every_neighbour_once() -> None:
    x = torch.tensor([[[[0.0, 1.0], [3.0, 7.0]]]])
    assert float(total_variation(x)) == pytest.approx((3 + 6) / 2 + (1 + 4) / 2)


def test_the_u_net_has_the_papers_layers_and_computes_what_they_say() -> None:
    net = _nets.started(_nets.UNet(3, 3, 48), DeviceStream(SeededStream(0)), CPU)
    weights = net.state_dict()
    wide = [tuple(w.shape[:2]) for name, w in weights.items() if w.dim() == 4]
    assert wide == [
        *[(48, 3), (48, 48), (96, 48), (96, 96), (192, 96), (192, 192), (384, 192), (384, 384)],
        *[(384, 192), (192, 96), (96, 48)],  # transposed: in, out
        *[(192, 384), (192, 192), (96, 192), (96, 96), (48, 96), (48, 48)],
        (3, 48),
    ]
    small = _nets.started(_nets.UNet(3, 2, 4), DeviceStream(SeededStream(0)), CPU)
    weights = small.state_dict()

    def double(x: Tensor, name: str) -> Tensor:
        for place in (0, 2):
            x = relu(conv2d(x, weights[f"{name}.{place}.weight"], weights[f"{name}.{place}.bias"], padding=1))
        return x

    x = SeededStream(1).normal(2, 3, 16, 8).float()
    one = double(x, "down.0")
    two = double(max_pool2d(one, 2), "down.1")
    three = double(max_pool2d(two, 2), "down.2")
    y = double(max_pool2d(three, 2), "down.3")
    for level, skip in enumerate((three, two, one)):
        up = conv_transpose2d(y, weights[f"up.{level}.weight"], weights[f"up.{level}.bias"], stride=2)
        y = double(torch.cat([skip, up], dim=1), f"join.{level}")
    y = conv2d(y, weights["out.weight"], weights["out.bias"])
    assert torch.allclose(small(x), y, atol=1e-6)
    assert small(x[..., :13, :7]).shape == (2, 2, 13, 7)


def test_first_weights_follow_from_the_stream_alone() -> None:
    torch.manual_seed(1)
    one = _nets.started(_nets.UNet(1, 1, 2), DeviceStream(SeededStream(4)), CPU).state_dict()
    torch.manual_seed(2)
    two = _nets.started(_nets.UNet(1, 1, 2), DeviceStream(SeededStream(4)), CPU).state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)


def small_unet(workshop: Workshop = _training.NOTHING_KEPT) -> Unet:
    return Unet(base=6, recipe=Recipe(epochs=6, batch=32, rate=3e-3), workshop=workshop)


def test_the_u_net_gets_digits_out_of_weak_noise_and_next_to_nothing_out_of_strong() -> None:
    data, public = digits(0, 200), digits(600, 1600)
    nothing = error(KnowNothing(), released(data, 0.5, public), data)
    assert error(small_unet(), released(data, 0.5, public), data) < 0.7 * nothing
    assert error(small_unet(), released(data, 100.0, public), data) > 0.85 * nothing


def test_the_strong_network_gains_on_the_best_linear_attack_where_records_are_not_gaussian() -> None:
    def bars(n: int, seed: int) -> Images:
        """One of sixteen bars, black or white: far from Gaussian."""
        place = (SeededStream(seed).uniform(n) * 16).long()
        x = torch.zeros(n, 1, 8, 8)
        for row, where in enumerate(place.tolist()):
            (x[row, 0, where] if where < 8 else x[row, 0, :, where - 8]).fill_(1.0)
        return from_tensors(x, place % 4, classes=4)

    data, public = bars(200, 1), bars(1500, 2)
    view = released(data, 0.5, public)
    attack = UnetStrong(base=8, rounds=2, recipe=Recipe(epochs=8, batch=64, rate=3e-3, falling=True))
    assert error(attack, view, data) < 0.85 * error(Lmmse(), view, data)


@pytest.mark.parametrize("share", [0.3, 30.0])
def test_the_strong_network_does_not_fall_behind_the_linear_attack(share: float) -> None:
    data, public = digits(0, 150), digits(600, 1500)
    view = released(data, share, public)
    attack = UnetStrong(base=4, rounds=1, recipe=Recipe(epochs=3, batch=64, falling=True))
    assert error(attack, view, data) < 1.01 * error(Lmmse(), view, data)


def test_a_public_record_does_not_help_to_say_what_it_is_like() -> None:
    """Estimates of public records leave the error that the linear attack leaves of strangers, not less."""
    public = digits(600, 1000)
    view = released(digits(0, 100), 1.0, public)
    index, made = of_public(view, lambda c, prior: (prior.mean + c @ prior.basis.T).float(), 1, 1000, SeededStream(0))
    assert sorted(index.tolist()) == list(range(400))
    truth = public.take(index).x.flatten(1)
    at_one = (made.known.sum(1) > 0.15) & (made.known.sum(1) < 1.5)
    ours = float(mse(truth[at_one], made.linear[at_one]).mean())
    strangers, views = digits(1000, 1400), released(digits(1000, 1400), 2.0, digits(600, 800))
    theirs = error(Lmmse(), views, strangers)
    assert 0.7 < ours / theirs < 1.6
    assert float(made.error.max()) <= 1.01 * float(prior_of(view).variance.mean())


def random_features(data: Images, width: int = 96) -> Images:
    """Features by a fixed random layer."""
    x = data.take(torch.arange(len(data))).x.flatten(1)
    found = relu(x @ SeededStream(7).normal(x.shape[1], width).float() / 4)
    return replace(data, read=lambda index: found[index], shape=(width,), high=float(found.max()))


def test_the_decoder_gets_pictures_out_of_features_and_none_out_of_strong_noise() -> None:
    data, public = digits(0, 150), digits(600, 1600)
    attack = FeatureDecoder(base=4, rounds=1, recipe=Recipe(epochs=8, batch=32, rate=3e-3, falling=True))
    truth = data.take(torch.arange(150)).x
    blank = float(ssim(truth, public.take(torch.arange(1000)).x.mean(0).expand_as(truth)).mean())
    found = {}
    for share in (0.1, 300.0):
        view = replace(released(random_features(data), share, random_features(public)), pictures=public)
        pictures = attack(view, stream=SeededStream(0)).pictures
        assert pictures is not None and pictures.shape == truth.shape
        found[share] = float(ssim(truth, pictures.clamp(0, 1)).mean())
    assert found[0.1] > blank + 0.15
    assert found[300.0] < blank + 0.08


def test_too_few_public_rows_are_refused() -> None:
    data = digits(0, 60)
    with pytest.raises(ArgumentError, match=f"{4 * len(LEVELS)} are the least"):
        UnetStrong()(released(data, 1.0, digits(100, 120)), stream=SeededStream(0))


class StoppedError(Exception):
    pass


def test_a_training_that_was_killed_goes_on_and_ends_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, public = digits(0, 40), digits(600, 900)
    view = released(data, 0.5, public)
    whole = small_unet()(view, stream=SeededStream(0)).images
    monkeypatch.setattr("mixveil.saved.EVERY", 0.0)
    monkeypatch.setattr("mixveil.saved.Saved.due", lambda self: True)
    heard: list[str] = []

    def watch(text: str) -> None:
        heard.append(text)
        if "step 40 " in text and len(heard) < 6:
            raise StoppedError

    with pytest.raises(StoppedError):
        small_unet(Workshop(tmp_path, watch=watch))(view, stream=SeededStream(0))
    assert [path.suffix for path in (tmp_path / "attacks").iterdir()] == [".state"]
    heard.clear()
    heard.extend(["again"] * 9)
    resumed = small_unet(Workshop(tmp_path, watch=watch))(view, stream=SeededStream(0)).images
    assert not any("step 0 " in text or "step 20 " in text for text in heard)
    assert whole is not None and resumed is not None and torch.equal(whole, resumed)


def test_a_trained_network_is_kept_and_a_damaged_or_other_one_is_not_used(tmp_path: Path) -> None:
    data, public = digits(0, 40), digits(600, 700)
    view = released(data, 0.5, public)
    heard: list[str] = []
    attack = small_unet(Workshop(tmp_path, most=3, watch=heard.append))
    first = attack(view, stream=SeededStream(0)).images
    (kept,) = (tmp_path / "attacks").iterdir()
    assert heard and kept.suffix == ".safetensors" and kept.stat().st_mode & 0o077 == 0
    heard.clear()
    again = attack(view, stream=SeededStream(0)).images
    assert first is not None and again is not None and torch.equal(first, again) and not heard
    for changed in (
        released(data, 0.6, public),  # other noise
        replace(view, public=digits(700, 800)),
        replace(view, traces=(replace(view.traces[0], weight=view.traces[0].weight.flip(1)),)),  # type: ignore[index]
    ):
        attack(changed, stream=SeededStream(0))
        assert heard
        heard.clear()
    kept.write_bytes(kept.read_bytes()[:-50])
    mended = attack(view, stream=SeededStream(0)).images
    assert heard and mended is not None and torch.equal(first, mended)


def test_one_network_serves_all_strengths_of_noise(tmp_path: Path) -> None:
    data, public = digits(0, 40), digits(600, 700)
    heard: list[str] = []
    workshop = Workshop(tmp_path, most=3, watch=heard.append)
    attack = UnetStrong(base=2, rounds=1, workshop=workshop)
    for share in (0.5, 5.0):
        attack(released(data, share, public), stream=SeededStream(0))
    assert sum("training step 0" in text for text in heard) == 1
    assert len(list((tmp_path / "attacks").iterdir())) == 1
