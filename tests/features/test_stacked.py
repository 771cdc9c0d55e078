"""Clients side by side against one client after the other, by torch's own layers, gradients and optimiser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, kl_div

from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError
from mixveil.core.local_training import AugMix, LocalTraining
from mixveil.core.randomness import SeededStream
from mixveil.data.augmix import views
from mixveil.features.split.networks import convnet, lenet5, vgg16
from mixveil.features.stacked.local_steps import Rows, gradients, local_steps, losses
from mixveil.features.stacked.network import Stacked, stacked

CLIENTS, BATCH, CLASSES = 3, 2, 5


def weights_of(net: nn.Module, clients: int = CLIENTS, size: float = 1.0) -> dict[str, Tensor]:
    """(k, …) different for every client, float64, and the same in every run: a network's own are not."""
    stream = SeededStream(2)
    return {
        name: size * stream.normal(clients, *value.shape) / value[0].numel() ** 0.5
        for name, value in net.named_parameters()
    }


def of(weights: dict[str, Tensor], client: int) -> dict[str, Tensor]:
    return {name: value[client] for name, value in weights.items()}


def tiny() -> nn.Sequential:
    """Smooth, so that differences are slopes."""
    body = nn.Sequential(nn.Conv2d(1, 3, 3, stride=2, padding=1), nn.Tanh(), nn.AvgPool2d(2))
    return nn.Sequential(body, nn.Flatten(), nn.Linear(12, 6), nn.GELU(), nn.Linear(6, CLASSES)).double()


def rows(*shape: int, seed: int = 3) -> Rows:
    x = SeededStream(seed).uniform(CLIENTS, BATCH, *shape)
    y = SeededStream(seed + 50).uniform(CLIENTS, BATCH, CLASSES)
    return Rows(x, y / y.sum(-1, keepdim=True))


def with_views(found: Rows, augmix: AugMix, seed: int = 4) -> Rows:
    drawn = views(found.x.flatten(0, 1), augmix, DeviceStream(SeededStream(seed)))
    return found._replace(views=drawn.view(augmix.views, *found.x.shape))


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolution": (lambda: nn.Conv2d(2, 4, 3), (2, 9, 8)),
    "without bias": (lambda: nn.Conv2d(2, 4, 3, bias=False), (2, 9, 8)),
    "of one pixel": (lambda: nn.Conv2d(3, 2, 1), (3, 5, 5)),
    "strides that leave pixels over": (lambda: nn.Conv2d(2, 3, 3, stride=2), (2, 8, 10)),
    "long strides": (lambda: nn.Conv2d(2, 3, 2, stride=5, padding=1), (2, 11, 9)),
    "different both ways": (lambda: nn.Conv2d(2, 3, (2, 5), stride=(3, 2), padding=(0, 3)), (2, 8, 7)),
    "more padding than pixels": (lambda: nn.Conv2d(1, 3, 5, padding=4), (1, 3, 2)),
    "linear": (lambda: nn.Linear(7, 4), (7,)),
    "linear without bias": (lambda: nn.Linear(7, 4, bias=False), (7,)),
    "average": (lambda: nn.AvgPool2d(2), (2, 7, 6)),
    "overlapping average": (lambda: nn.AvgPool2d(3, 2, 1), (2, 7, 6)),
    "average different both ways": (lambda: nn.AvgPool2d((1, 3), (2, 1), (0, 1)), (2, 7, 6)),
    "maximum": (lambda: nn.MaxPool2d(2), (2, 7, 6)),
    "overlapping maximum": (lambda: nn.MaxPool2d(3, 2, 1), (2, 8, 6)),
    "flat": (nn.Flatten, (2, 3, 4)),
    "relu": (nn.ReLU, (2, 3, 4)),
    "tanh": (nn.Tanh, (2, 3, 4)),
    "sigmoid": (nn.Sigmoid, (6,)),
    "gelu": (nn.GELU, (6,)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_is_torchs(name: str) -> None:
    make, shape = LAYERS[name]
    net = nn.Sequential(make()).double()
    weights, x = weights_of(net), SeededStream(1).normal(CLIENTS, BATCH, *shape)
    found = Stacked(net)(weights, x)
    for client in range(CLIENTS):
        expected = functional_call(net, of(weights, client), (x[client],))
        assert found[client].shape == expected.shape and torch.allclose(found[client], expected, atol=1e-12), client


@pytest.mark.parametrize(
    ("net", "shape"),
    [
        (lenet5((1, 28, 28), CLASSES), (1, 28, 28)),
        (lenet5((3, 32, 32), CLASSES), (3, 32, 32)),
        (convnet((3, 32, 32), CLASSES, width=4), (3, 32, 32)),
        (convnet((1, 17, 19), CLASSES, width=3), (1, 17, 19)),
    ],
)
def test_networks_and_their_gradients_are_torchs(net: nn.Sequential, shape: tuple[int, ...]) -> None:
    net = net.double()
    weights, many, found = weights_of(net), Stacked(net), rows(*shape)
    ours = gradients(many, weights, found)
    assert many.shapes == {name: tuple(value.shape) for name, value in net.named_parameters()}
    assert many.values == sum(value.numel() for value in net.parameters())
    for client in range(CLIENTS):
        net.load_state_dict(of(weights, client))
        net.zero_grad()
        scores = net(found.x[client])
        assert torch.allclose(many(weights, found.x)[client], scores, atol=1e-10)
        cross_entropy(scores, found.y[client]).backward()  # type: ignore[no-untyped-call]
        for name, value in net.named_parameters():
            assert value.grad is not None and torch.allclose(ours[name][client], value.grad, atol=1e-10), name
    assert not any(value.requires_grad for value in weights.values())  # the caller's stay as they are


class Doubled(nn.Linear):
    """A layer that only looks like one of torch's."""

    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


def shared() -> nn.Sequential:
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, nn.Tanh(), layer)


@pytest.mark.parametrize(
    "net",
    [
        vgg16((3, 32, 32), 10),
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)),
        nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))),
        nn.Sequential(nn.Conv2d(2, 2, 3, groups=2)),
        nn.Sequential(nn.Conv2d(2, 2, 3, dilation=2)),
        nn.Sequential(nn.Conv2d(2, 2, 3, padding="same")),
        nn.Sequential(nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular")),
        nn.Sequential(nn.AvgPool2d(3, ceil_mode=True)),
        nn.Sequential(nn.AvgPool2d(3, padding=1, count_include_pad=False)),
        nn.Sequential(nn.AvgPool2d(3, divisor_override=1)),
        nn.Sequential(nn.MaxPool2d(3, dilation=2)),
        nn.Sequential(nn.MaxPool2d(3, ceil_mode=True)),
        nn.Sequential(nn.MaxPool2d(3, return_indices=True)),
        nn.Sequential(nn.Flatten(2)),
        nn.Sequential(nn.GELU("tanh")),
        nn.Sequential(Doubled(3, 3)),
        shared(),
        nn.Linear(3, 3),
    ],
)
def test_what_would_be_computed_wrongly_is_refused(net: Any) -> None:
    with pytest.raises(ArgumentError):
        Stacked(net)


def test_stacked_weights_are_copies() -> None:
    net = tiny()
    many = stacked(dict(net.named_parameters()), 4)
    for name, value in net.named_parameters():
        assert many[name].shape == (4, *value.shape) and torch.equal(many[name][3], value)
        many[name][0] += 1
        assert torch.equal(many[name][1], value) and not many[name].requires_grad


def loss_by_hand(net: nn.Module, found: Rows, client: int, augmix: AugMix | None) -> Tensor:
    """Eq. 5 and 6 for one client, by torch's own losses."""
    scores = net(found.x[client])
    loss = cross_entropy(scores, found.y[client])
    if augmix is None or found.views is None:
        return loss
    each = [scores.softmax(1)] + [net(view[client]).softmax(1) for view in found.views]
    mean = torch.stack(each).mean(0)
    apart = torch.stack([kl_div(mean.log(), one, reduction="batchmean") for one in each]).mean()
    weight = augmix.large if float(loss.detach()) > augmix.scale * float(apart.detach()) else augmix.weight
    return loss + weight * apart


def trained_by_hand(
    net: nn.Module, start: dict[str, Tensor], steps: Sequence[Rows], training: LocalTraining, client: int
) -> dict[str, Tensor]:
    net.load_state_dict(start)
    optimiser = torch.optim.SGD(net.parameters(), training.rates[0], momentum=training.momentum)
    for rate, found in zip(training.rates, steps, strict=True):
        optimiser.param_groups[0]["lr"] = rate
        optimiser.zero_grad()
        loss = loss_by_hand(net, found, client, training.augmix)
        for name, value in net.named_parameters():
            loss = loss + (training.proximal or 0.0) / 2 * (value - start[name]).square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return {name: value.detach().clone() for name, value in net.named_parameters()}


TRAININGS = {
    "sgd": LocalTraining(4, 2, (0.3, 0.1, 0.2, 0.05)),
    "momentum": LocalTraining(4, 2, (0.3, 0.1, 0.2, 0.05), momentum=0.9),
    "proximal": LocalTraining(4, 2, (0.3, 0.1, 0.2, 0.05), proximal=0.7),
    "both": LocalTraining(4, 2, (0.3, 0.1, 0.2), momentum=0.5, proximal=0.7),
    "augmix": LocalTraining(4, 2, (0.3, 0.1, 0.2), augmix=AugMix(5.0, weight=12.0, scale=0.0, large=12.0)),
    "augmix in phases": LocalTraining(4, 2, (0.3, 0.1), momentum=0.5, proximal=0.1, augmix=AugMix(5.0, 3, scale=3e5)),
    "not compared": LocalTraining(4, 2, (0.3, 0.1), augmix=AugMix(5.0, weight=0.0, scale=0.0, large=0.0)),
}


@pytest.mark.parametrize("differentiable", [False, True])
@pytest.mark.parametrize("name", TRAININGS)
def test_local_steps_are_torchs_optimiser(name: str, differentiable: bool) -> None:
    training, net = TRAININGS[name], tiny()
    steps = [rows(1, 8, 8, seed=seed) for seed in range(len(training.rates))]
    if training.augmix is not None:
        steps = [with_views(found, training.augmix, seed) for seed, found in enumerate(steps)]
    weights = weights_of(net)
    before = {key: value.clone() for key, value in weights.items()}
    found = local_steps(Stacked(net), weights, steps, training, differentiable=differentiable)
    for client in range(CLIENTS):
        expected = trained_by_hand(net, of(before, client), steps, training, client)
        for key, value in expected.items():
            assert torch.allclose(found[key][client], value, rtol=1e-8, atol=1e-10), (client, key)
            assert not torch.allclose(value, before[key][client], atol=1e-4)
    assert all(torch.equal(weights[key], before[key]) and not weights[key].requires_grad for key in weights)
    assert differentiable or not any(value.requires_grad for value in found.values())


def test_both_phases_of_the_weight_occur_among_clients() -> None:
    """A client whose views agree has the large weight, and the others have not: λ is each client's own."""
    net, augmix = tiny(), AugMix(9.0, weight=2.0, scale=3e6, large=1e6)
    found = with_views(rows(1, 8, 8), augmix)
    assert found.views is not None
    found.views[:, 1] = found.x[1] + 1e-2 * SeededStream(1).normal(2, *found.x[1].shape)
    weights = weights_of(net)
    ours = losses(Stacked(net), weights, found, augmix)
    large = []
    for client in range(CLIENTS):
        net.load_state_dict(of(weights, client))
        assert float(ours[client]) == pytest.approx(float(loss_by_hand(net, found, client, augmix).detach()), rel=1e-6)
        plain = float(loss_by_hand(net, found._replace(views=None), client, None).detach())
        base = AugMix(9.0, weight=2.0, scale=1e12, large=2.0)
        large.append(float(ours[client]) != pytest.approx(float(losses(Stacked(net), weights, found, base)[client])))
        assert float(ours[client]) > plain
    assert large == [False, True, False]


@pytest.mark.parametrize("augmix", [None, AugMix(5.0)])
def test_rows_without_a_share_are_not_there(augmix: AugMix | None) -> None:
    """Client 0 has one row and a filling, client 1 both rows alike, client 2 one row three times as much."""
    net, found = tiny(), rows(1, 8, 8)
    many, weights = Stacked(net), weights_of(net)
    found = found if augmix is None else with_views(found, augmix)
    shares = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.25, 0.75]], dtype=torch.float64)
    ours = losses(many, weights, found._replace(shares=shares), augmix)
    alike = losses(many, weights, found, augmix)
    parts = [torch.tensor(index) for index in ([0], [0, 1], [0, 1, 1, 1])]
    for client, part in enumerate(parts):
        some = None if found.views is None else found.views[:, :, part]
        alone = losses(many, weights, Rows(found.x[:, part], found.y[:, part], some), augmix)
        assert float(ours[client]) == pytest.approx(float(alone[client]), rel=1e-9)
        assert (client == 1) == (float(ours[client]) == pytest.approx(float(alike[client]), rel=1e-9))


@pytest.mark.parametrize("name", ["sgd", "both", "augmix"])
def test_the_update_has_its_slope_in_the_images(name: str) -> None:
    """The second derivative, against differences of the update."""
    training, net = TRAININGS[name], tiny()
    many, weights, found = Stacked(net), weights_of(net), rows(1, 8, 8)
    still = {key: SeededStream(7).normal(*value.shape) for key, value in weights.items()}
    shifts = 0.1 * SeededStream(9).normal(2, *found.x.shape)

    def along(x: Tensor, *, differentiable: bool) -> Tensor:
        """A direction of the update, where every step sees the same images, and views that move with them."""
        step = Rows(x, found.y, x + shifts if training.augmix else None)
        after = local_steps(many, weights, [step] * len(training.rates), training, differentiable=differentiable)
        return torch.stack([(after[key] * still[key]).sum() for key in after]).sum()

    x, way, size = found.x.clone().requires_grad_(), SeededStream(8).normal(*found.x.shape), 1e-5
    (slope,) = torch.autograd.grad(along(x, differentiable=True), x)
    ends = [along(found.x + sign * size * way, differentiable=False) for sign in (1, -1)]
    assert float((slope * way).sum()) == pytest.approx(float(ends[0] - ends[1]) / (2 * size), rel=1e-5)


def test_a_defence_changes_the_gradients_of_every_step() -> None:
    net, training, found = tiny(), LocalTraining(4, 2, (0.3, 0.1)), rows(1, 8, 8)
    weights, seen = weights_of(net), []

    def ones(slopes: dict[str, Tensor]) -> dict[str, Tensor]:
        seen.append(slopes)
        return {name: torch.ones_like(slope) for name, slope in slopes.items()}

    after = local_steps(Stacked(net), weights, [found] * 2, training, changed=ones)
    assert len(seen) == 2 and all(torch.allclose(after[name], weights[name] - 0.4) for name in weights)


def test_steps_that_are_not_computed_are_refused() -> None:
    net, found = tiny(), rows(1, 8, 8)
    for training in (LocalTraining(4, 2, (0.1,), "adamw"), LocalTraining(4, 2, (0.1,), weight_decay=0.1)):
        with pytest.raises(ArgumentError, match="plain SGD"):
            local_steps(Stacked(net), weights_of(net), [found], training)
    with pytest.raises(ArgumentError, match="2 steps have rates, and 1 have rows"):
        local_steps(Stacked(net), weights_of(net), [found], LocalTraining(4, 2, (0.1, 0.1)))
