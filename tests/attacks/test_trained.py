"""The paper's two attacks against slow twins; the stronger ones on digits: small, and failing if they stop working."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv2d, conv_transpose2d, max_pool2d, relu

from mixveil.attacks.features.decoder import FeatureDecoder
from mixveil.attacks.records.linear import recovered
from mixveil.attacks.records.lmmse import Lmmse
from mixveil.attacks.records.prior import KnowNothing
from mixveil.attacks.records.unet import Unet, _Mixtures
from mixveil.attacks.records.unet_strong import UnetStrong
from mixveil.attacks.shared import nets, training
from mixveil.attacks.shared.base import CannotAttackError
from mixveil.attacks.shared.estimates import LEVELS, held_out, of_public, of_releases, worth_of
from mixveil.attacks.shared.model import MixingMatrix, prior_of
from mixveil.attacks.shared.pixels import Pixels, total_variation
from mixveil.attacks.shared.training import Schedule, TrainingCache
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import TrainingError, TrainingStopped
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Attack, Trace, View
from mixveil.core.wording.notes import note
from mixveil.data.images import Images, from_tensors
from mixveil.data.similarity import mse, ssim
from mixveil.features.backbones.loading import IMAGENET
from tests.attacks.made import digits, random_features, released

CPU = torch.device("cpu")


def error(attack: Attack, view: View, data: Images) -> float:
    images = attack(view, stream=SeededStream(0)).images
    assert images is not None
    return float(mse(data.take(torch.arange(len(data))).x, images.clamp(0, 1)).mean())


@pytest.mark.parametrize("releases", [1, 2])
def test_the_linear_attack_is_the_papers_to_the_last_step(releases: int) -> None:
    stream, n = SeededStream(3), 5
    seen = [stream.normal(5, 3, 6, 4).float() for _ in range(releases)]
    partners = [torch.tensor([1, 2, 3, 4, 0]), torch.tensor([2, 3, 4, 0, 1])][:releases]
    weights = [stream.capped_weights(5, 0.7) for _ in range(releases)]
    traces = tuple(Trace(p[:, None], w) for p, w in zip(partners, weights, strict=True))
    found = recovered(MixingMatrix.of(traces), seen, Pixels(3, 0.0, 1.0, normalised=True))
    rows = torch.stack(seen).mean(0)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in IMAGENET)
    guess = rows.clone()
    first, second = torch.zeros_like(rows), torch.zeros_like(rows)
    for step in range(1, 201):
        x = guess.clone().requires_grad_()
        fits = [
            (w[:, 0].view(n, 1, 1, 1) * x + w[:, 1].view(n, 1, 1, 1) * x[p] - y).square().mean()
            for p, w, y in zip(partners, weights, seen, strict=True)
        ]
        smooth = (x[:, :, 1:] - x[:, :, :-1]).abs().mean() + (x[..., 1:] - x[..., :-1]).abs().mean()
        loss = sum(fits, start=torch.zeros(())) / releases + 1e-3 * smooth + 1e-4 * x.square().mean()
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


def test_the_range_is_that_of_public_data_where_they_state_one() -> None:
    data = digits(0, 40)
    view = released(data, 1.0, replace(data, low=-1.0, high=2.0))
    assert (Pixels.of(view, False).low, Pixels.of(view, False).high) == (-1.0, 2.0)
    for public in (None, replace(data, low=-float("inf"), high=float("inf"))):
        found = Pixels.of(replace(view, public=public), False)
        assert (found.low, found.high) == (0.0, 1.0)


def test_total_variation_counts_every_neighbour_once() -> None:
    assert float(total_variation(torch.tensor([[[[0.0, 2.0, 5.0]]]]))) == pytest.approx(2.5)  # one row: nothing above
    x = torch.tensor([[[[0.0, 1.0], [3.0, 7.0]]]])
    assert float(total_variation(x)) == pytest.approx((3 + 6) / 2 + (1 + 4) / 2)


def test_the_u_net_has_the_papers_layers_and_computes_what_they_say() -> None:
    net = nets.started(nets.UNet(3, 3, 48), DeviceStream(SeededStream(0)), CPU)
    weights = net.state_dict()
    wide = [tuple(w.shape[:2]) for name, w in weights.items() if w.dim() == 4]
    assert wide == [
        *[(48, 3), (48, 48), (96, 48), (96, 96), (192, 96), (192, 192), (384, 192), (384, 384)],
        *[(384, 192), (192, 96), (96, 48)],  # transposed: in, out
        *[(192, 384), (192, 192), (96, 192), (96, 96), (48, 96), (48, 48)],
        (3, 48),
    ]
    small = nets.started(nets.UNet(3, 2, 4), DeviceStream(SeededStream(0)), CPU)
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
    one = nets.started(nets.UNet(1, 1, 2), DeviceStream(SeededStream(4)), CPU).state_dict()
    torch.manual_seed(2)
    two = nets.started(nets.UNet(1, 1, 2), DeviceStream(SeededStream(4)), CPU).state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)


def small_unet(cache: TrainingCache = training.NO_CACHE) -> Unet:
    return Unet(base=6, schedule=Schedule(epochs=6, batch=32, rate=3e-3), cache=cache)


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

    data, public = bars(150, 1), bars(1000, 2)
    view = released(data, 0.5, public)
    attack = UnetStrong(base=8, rounds=2, schedule=Schedule(epochs=6, batch=64, rate=3e-3, falling=True))
    assert error(attack, view, data) < 0.85 * error(Lmmse(), view, data)


@pytest.mark.parametrize("share", [0.3, 30.0])
def test_the_strong_network_does_not_fall_behind_the_linear_attack(share: float) -> None:
    data, public = digits(0, 150), digits(600, 1500)
    view = released(data, share, public)
    attack = UnetStrong(base=4, rounds=1, schedule=Schedule(epochs=3, batch=64, falling=True))
    assert error(attack, view, data) < 1.01 * error(Lmmse(), view, data)


def test_a_public_record_does_not_help_to_say_what_it_is_like() -> None:
    """Estimates of public records leave the error that the linear attack leaves of strangers, not less."""
    public = digits(600, 1000)
    view = released(digits(0, 100), 1.0, public)
    index, made = of_public(view, lambda c, prior: prior.values(c).float(), 1, 1000, SeededStream(0))
    assert sorted(index.tolist()) == list(range(400))
    truth = public.take(index).x.flatten(1)
    at_one = (made.known.sum(1) > 0.15) & (made.known.sum(1) < 1.5)
    ours = float(mse(truth[at_one], made.linear[at_one]).mean())
    strangers, views = digits(1000, 1400), released(digits(1000, 1400), 2.0, digits(600, 800))
    theirs = error(Lmmse(), views, strangers)
    assert 0.7 < ours / theirs < 1.6
    assert float(made.error.max()) <= 1.01 * float(prior_of(view).variance.mean())


def test_the_decoder_gets_pictures_out_of_features_and_none_out_of_strong_noise() -> None:
    data, public = digits(0, 150), digits(600, 1600)
    attack = FeatureDecoder(base=4, rounds=1, schedule=Schedule(epochs=8, batch=32, rate=3e-3, falling=True))
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
    with pytest.raises(CannotAttackError) as refused:
        UnetStrong()(released(data, 1.0, digits(100, 120)), stream=SeededStream(0))
    assert refused.value.why == note("too-few-public-rows", rows=20, least=4 * len(LEVELS))


def test_the_rate_falls_to_nothing_by_a_cosine(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []
    step = torch.optim.Adam.step

    def noted(self: torch.optim.Adam, closure: None = None) -> object:
        rates.append(self.param_groups[0]["lr"])
        return step(self, closure)

    monkeypatch.setattr(torch.optim.Adam, "step", noted)
    net = torch.nn.Linear(1, 1)
    schedule = Schedule(epochs=4, batch=10, rate=0.5, falling=True)

    def loss(index: Tensor, draws: DeviceStream) -> Tensor:
        return net(torch.ones(len(index), 1)).square().mean()  # type: ignore[no-any-return]

    draws = DeviceStream(SeededStream(0))
    training.train(net, loss, 100, schedule, about={"attack": "x"}, draws=draws, cache=training.NO_CACHE)
    assert len(rates) == 40 and rates[0] == 0.5 and rates[20] == pytest.approx(0.25) and rates[-1] < 0.5 * 0.01


def test_a_training_that_diverges_late_is_an_error() -> None:
    net, draws, asked = torch.nn.Linear(1, 1), DeviceStream(SeededStream(0)), list[int]()

    def loss(index: Tensor, draws: DeviceStream) -> Tensor:
        asked.append(1)
        return net(torch.ones(1, 1)).sum() * (float("nan") if len(asked) > 3 else 1.0)  # type: ignore[no-any-return]

    with pytest.raises(TrainingError, match="diverged"):
        training.train(net, loss, 10, Schedule(5, 10), about={"attack": "x"}, draws=draws, cache=training.NO_CACHE)


def test_several_releases_are_averaged_before_the_u_net_sees_them() -> None:
    data, public = digits(0, 40), digits(600, 700)
    views = [released(data, 5.0, public, seed) for seed in range(4)]
    spread = []
    for count in (1, 4):
        releases = tuple(view.releases[0] for view in views[:count])
        traces = tuple(view.traces[0] for view in views[:count] if view.traces)
        mixtures = _Mixtures(View(releases, traces, public), CPU, SeededStream(0))
        truth, rows = mixtures.batch(torch.arange(64), DeviceStream(SeededStream(1)))
        spread.append(float((rows - truth).std()))
    assert 0.4 < spread[1] / spread[0] < 0.65


def test_a_row_says_as_much_as_its_weight_and_noise_allow() -> None:
    view = released(digits(0, 60), 1.0, digits(600, 1000))
    made = of_releases(view, prior_of(view), lambda c, prior: c.float())
    assert view.traces is not None
    weight = view.traces[0].weight.double()
    told = (weight[:, 0] / view.releases[0].encoder.deviation(weight)).square() * float(prior_of(view).variance.mean())
    assert torch.allclose(made.known[:, 0].double(), told, rtol=1e-5)
    _, public = of_public(view, lambda c, prior: c.float()[:, :1], 1, 1000, SeededStream(0))
    low, high = public.known[:, 0].log10().aminmax()
    assert float(high - low) > 8  # ten levels of noise, half a decade of deviation each, and their weights
    at_one = public.part((public.known.sum(1) > 1).logical_and(public.known.sum(1) < 3).nonzero()[:, 0])
    assert float(at_one.known[:, 0].std() / at_one.known[:, 0].mean()) > 0.2  # weights differ


@pytest.mark.parametrize("public", [591, 400, 97])
def test_some_of_the_records_are_held_out_however_they_were_chosen(public: int) -> None:
    index = torch.linspace(0, public - 1, 60).round().long().repeat(3)
    held, fitted = held_out(index)
    assert len(held) + len(fitted) == 180 and len(held) == 18
    assert not set(index[held].tolist()) & set(index[fitted].tolist())
    assert int(index[held].max()) > 0.7 * public
    places = torch.unique(index, return_inverse=True)[1][held]
    assert set((places % 2).tolist()) == {0, 1}  # of both halves


def test_what_is_added_is_worth_what_it_explains_less_its_uncertainty() -> None:
    stream = SeededStream(9)
    added = stream.normal(4000, 1, 2, 2)
    assert worth_of(0.5 * added + 0.5 * stream.normal(4000, 1, 2, 2), added) == pytest.approx(0.5, abs=0.02)
    assert worth_of(2 * added, added) == 1.0 and worth_of(-added, added) == 0.0
    worths = [worth_of(stream.normal(5, 1, 2, 2), stream.normal(5, 1, 2, 2)) for _ in range(2000)]
    assert sum(worth == 0 for worth in worths) > 1500  # of few records that say nothing, nothing is believed mostly


class StoppedError(Exception):
    pass


def test_a_training_that_was_killed_goes_on_and_ends_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, public = digits(0, 40), digits(600, 900)
    view = released(data, 0.5, public)
    whole = small_unet()(view, stream=SeededStream(0)).images
    monkeypatch.setattr("mixveil.core.checkpoint.EVERY", 0.0)
    monkeypatch.setattr("mixveil.core.checkpoint.Saved.due", lambda self: True)
    heard: list[str] = []

    def watch(text: str) -> None:
        heard.append(text)
        if "step 40 " in text and len(heard) < 6:
            raise StoppedError

    with pytest.raises(StoppedError):
        small_unet(TrainingCache(tmp_path, watch=watch))(view, stream=SeededStream(0))
    assert [path.suffix for path in (tmp_path / "attacks").iterdir()] == [".state"]
    heard.clear()
    heard.extend(["again"] * 9)
    resumed = small_unet(TrainingCache(tmp_path, watch=watch))(view, stream=SeededStream(0)).images
    assert not any("step 0 " in text or "step 20 " in text for text in heard)
    assert whole is not None and resumed is not None and torch.equal(whole, resumed)


def test_an_interrupted_training_says_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mixveil.core.checkpoint.Saved.due", lambda self: True)
    net, asked = torch.nn.Linear(1, 1), list[int]()

    def loss(index: Tensor, draws: DeviceStream) -> Tensor:
        asked.append(1)
        if len(asked) == 4:
            raise KeyboardInterrupt
        return net(torch.ones(1, 1)).sum()  # type: ignore[no-any-return]

    with pytest.raises(TrainingStopped, match="x: stopped, and its state after step 3 is kept"):
        training.train(
            net,
            loss,
            10,
            Schedule(9, 10),
            about={"attack": "x"},
            draws=DeviceStream(SeededStream(0)),
            cache=TrainingCache(tmp_path),
        )


def test_a_trained_network_is_kept_and_a_damaged_or_other_one_is_not_used(tmp_path: Path) -> None:
    data, public = digits(0, 40), digits(600, 700)
    view = released(data, 0.5, public)
    heard: list[str] = []
    attack = small_unet(TrainingCache(tmp_path, max_steps=3, watch=heard.append))
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
    whole = kept.read_bytes()
    for damaged in (whole[:-50], whole[:-4] + b"\0\0\0\0", whole.replace(b'"seed', b'"deed')):
        kept.write_bytes(damaged)
        heard.clear()
        mended = attack(view, stream=SeededStream(0)).images
        assert heard and mended is not None and torch.equal(first, mended)
    assert (tmp_path / "attacks").stat().st_mode & 0o077 == 0


def test_one_network_serves_all_strengths_of_noise(tmp_path: Path) -> None:
    data, public = digits(0, 40), digits(600, 700)
    heard: list[str] = []
    cache = TrainingCache(tmp_path, max_steps=3, watch=heard.append)
    attack = UnetStrong(base=2, rounds=1, cache=cache)
    for share in (0.5, 5.0):
        attack(released(data, share, public), stream=SeededStream(0))
    assert sum("training step 0" in text for text in heard) == 1
    assert len(list((tmp_path / "attacks").iterdir())) == 1
