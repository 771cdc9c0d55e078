"""Cohorts of clients side by side compute what each client would compute alone."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, softmax

import mixveil
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError, TooFewRowsError, TrainingError
from mixveil.core.first_weights import started
from mixveil.core.local_training import AugMix
from mixveil.core.randomness import SeededStream
from mixveil.data import augmix as augmentation
from mixveil.features.stacked.local_steps import Rows, losses
from mixveil.features.stacked.network import Stacked, stacked
from mixveil.federated import cohort_steps
from mixveil.federated.cohort_rows import FEWEST, Schedule, dealt, schedule
from mixveil.federated.cohorts import CohortConfig, Cohorts, Labelled, cohorts

BASE = CohortConfig(rounds=2, epochs=2, batch=8, rate=0.1, clients=12, share=0.25, beta=0.3, every=1)
PHASES: list[bool] = []
SOME = AugMix(5.0, views=2, weight=3.0, scale=1500.0, large=20.0)


@pytest.fixture(scope="module")
def digits() -> Labelled:
    data = mixveil.open_data("digits:train")
    rows = torch.arange(0, len(data), 2)
    return Labelled(data.take(rows).x, data.labels[rows])


def network() -> nn.Sequential:
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(64, 16), nn.Tanh()
    )
    net.append(nn.Linear(16, 10))
    return started(net, DeviceStream(SeededStream(3).fork("net")), torch.device("cpu"))


def made(digits: Labelled, config: CohortConfig = BASE, *, test: Labelled | None = None) -> Cohorts:
    return Cohorts(network(), digits.x, digits.labels, 10, config, test=test)


def loss_of(net: nn.Module, x: Tensor, y: Tensor, views: Tensor | None, config: CohortConfig) -> Tensor:
    """Of Fed-AugMix, written out."""
    named = cross_entropy(net(x), y)
    if views is None or config.augmix is None:
        return named
    seen = [softmax(net(image), 1) for image in (x, *views)]
    mean = sum(seen, torch.zeros(())) / len(seen)
    apart = sum((kl_div(mean.log(), p, reduction="batchmean") for p in seen), torch.zeros(())) / len(seen)
    large = bool(named > config.augmix.scale * apart)
    PHASES.append(large)
    return named + (config.augmix.large if large else config.augmix.weight) * apart


def alone(
    weights: Mapping[str, Tensor],
    plan: Schedule,
    place: int,
    data: Labelled,
    config: CohortConfig,
    seen: Mapping[tuple[int, int, int], Tensor] | None = None,
) -> nn.Sequential:
    """One client by torch's own optimiser, batch by batch. seen: views by step, place and row of the batch."""
    net = network()
    net.load_state_dict(dict(weights))
    first = copy.deepcopy(net)
    optimiser = torch.optim.SGD(net.parameters(), config.rate, momentum=config.momentum)
    for step in range(len(plan.rows)):
        size = int((plan.shares[step, place] > 0).sum())
        if not size:
            continue
        rows = plan.rows[step, place, :size]
        views = None
        if seen is not None:
            views = torch.stack([seen[step, place, at] for at in range(size)], 1)
        loss = loss_of(net, data.x[rows], data.labels[rows], views, config)
        if config.proximal is not None:
            pairs = zip(net.parameters(), first.parameters(), strict=True)
            loss = loss + config.proximal / 2 * sum(((a - b.detach()) ** 2).sum() for a, b in pairs)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return net


def averaged(nets: list[nn.Sequential], counts: Tensor) -> dict[str, Tensor]:
    shares = counts.double() / counts.sum()
    parts = [{name: value.detach().double() for name, value in net.named_parameters()} for net in nets]
    return {name: sum((s * p[name] for s, p in zip(shares, parts, strict=True)), torch.zeros(())) for name in parts[0]}


def assert_alike(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    for name, value in wanted.items():
        torch.testing.assert_close(found[name].double(), value.double(), rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize(
    "config",
    [BASE, replace(BASE, momentum=0.8), replace(BASE, proximal=0.7), replace(BASE, batch=64, epochs=1)],
    ids=["fedavg", "momentum", "fedprox", "one batch"],
)
def test_a_round_is_what_each_client_would_do_alone(digits: Labelled, config: CohortConfig) -> None:
    run = made(digits, config)
    plan = run.plan(1)
    assert len({*plan.counts.tolist()}) > 1, "clients of one size would not show how sizes are weighed"
    sizes = (plan.shares > 0).sum(2)
    assert bool(((sizes > 0) & (sizes < config.batch)).any()), "no small batch"
    nets = [alone(run.first, plan, place, digits, config) for place in range(len(plan.clients))]
    after = run.round(1, run.first, plan)
    assert_alike(after, averaged(nets, plan.counts))
    # What was left in place by the first round plays no part in the second.
    plan = run.plan(2)
    nets = [alone(after, plan, place, digits, config) for place in range(len(plan.clients))]
    assert_alike(run.round(2, after, plan), averaged(nets, plan.counts))


@pytest.mark.parametrize("large", [20.0, 3.0], ids=["phased", "one weight"])
def test_views_are_compared_as_each_client_would_alone(
    digits: Labelled, large: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(BASE, augmix=replace(SOME, large=large), epochs=1)
    monkeypatch.setattr(cohort_steps, "_VALUES", 2 * 3 * 8 * 64 * 2)  # two steps at once
    drawn: list[tuple[Tensor, Tensor]] = []

    def views(x: Tensor, settings: AugMix, draws: DeviceStream) -> Tensor:
        found = own_views(x, settings, draws)
        drawn.append((x, found))
        return found

    own_views = augmentation.views
    monkeypatch.setattr(augmentation, "views", views)
    run = made(digits, config)
    plan, start = run.plan(1), {name: 3 * value for name, value in run.first.items()}  # views differ little at first
    after = run.round(1, start, plan)
    assert len(drawn) > 1
    real = (plan.shares > 0).nonzero().tolist()
    images, found = torch.cat([x for x, _ in drawn]), torch.cat([of for _, of in drawn], 1)
    assert torch.equal(images, digits.x[plan.rows[plan.shares > 0]]) and not torch.equal(found[0], found[1])
    seen = {(step, place, at): found[:, number] for number, (step, place, at) in enumerate(real)}
    PHASES.clear()
    nets = [alone(start, plan, place, digits, config, seen) for place in range(len(plan.clients))]
    assert_alike(after, averaged(nets, plan.counts))
    assert {*PHASES} == {True, False}


def test_a_view_takes_the_place_of_its_image(digits: Labelled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augmentation, "views", lambda x, settings, draws: torch.stack([1 - x, x.flip(3)]))
    run = made(digits, replace(BASE, augmix=SOME, compared=False))
    other = made(Labelled(1 - digits.x, digits.labels))
    assert_alike(run.round(1, run.first, run.plan(1)), other.round(1, other.first, other.plan(1)))


def test_rows_that_fill_up_a_batch_have_no_part_in_the_loss() -> None:
    stream = SeededStream(0)
    net = network()
    weights = stacked(dict(net.named_parameters()), 2)
    x, y = stream.uniform(2, 6, 1, 8, 8).float(), torch.eye(10)[torch.arange(12).view(2, 6) % 10]
    views = stream.uniform(2, 2, 6, 1, 8, 8).float()
    shares = torch.zeros(2, 6)
    shares[:, :4] = 0.25
    for augmix in (None, SOME):
        seen = None if augmix is None else views
        few = Rows(x[:, :4], y[:, :4], None if seen is None else seen[:, :, :4])
        wanted = losses(Stacked(net), weights, few, augmix)
        torch.testing.assert_close(losses(Stacked(net), weights, Rows(x, y, seen, shares), augmix), wanted)
        assert not torch.allclose(losses(Stacked(net), weights, Rows(x, y, seen), augmix), wanted)


def test_every_epoch_goes_once_through_the_rows_of_a_client(digits: Labelled) -> None:
    run = made(digits)
    plan = run.plan(1)
    assert plan.counts.tolist() == sorted(plan.counts.tolist(), reverse=True)
    for place, number in enumerate(plan.clients):
        own = run.clients[number].train
        taken = plan.rows[:, place][plan.shares[:, place] > 0]
        epochs = torch.split(taken, len(own))
        assert len(epochs) == 2 and all(torch.equal(epoch.sort().values, own) for epoch in epochs)
        assert not torch.equal(epochs[0], epochs[1])
    assert plan.active == [int((step > 0).any(1).sum()) for step in plan.shares]
    assert not torch.equal(plan.rows[0], run.plan(2).rows[0])


def test_clients_share_all_rows_and_keep_a_quarter() -> None:
    labels = torch.arange(4000) % 10
    unlike, alike, equal = (
        dealt(labels, 30, beta=beta, test_share=0.25, sizes=sizes, stream=SeededStream(1))  # type: ignore[arg-type]
        for beta, sizes in ((0.1, "drawn"), (100.0, "drawn"), (0.1, "equal"))
    )
    for clients in (unlike, alike, equal):
        assert torch.cat([*(c.train for c in clients), *(c.test for c in clients)]).sort().values.tolist() == [
            *range(4000)
        ]
        assert all(abs(len(c.test) - (len(c.train) + len(c.test)) / 4) <= 1 and len(c.test) for c in clients)
    sizes = [sorted(len(c.train) + len(c.test) for c in clients) for clients in (unlike, alike, equal)]
    assert FEWEST <= sizes[0][0] < 30 and sizes[0][-1] > 400
    assert sizes[1][0] > 80 and sizes[1][-1] < 200
    assert {*sizes[2]} == {133, 134}
    with pytest.raises(TooFewRowsError):
        dealt(labels[:100], 30, beta=0.1, test_share=0.25, stream=SeededStream(1))
    with pytest.raises(ArgumentError, match="hardly ever"):
        dealt(labels[:130], 30, beta=0.01, test_share=0.25, stream=SeededStream(1))


def test_a_seed_gives_one_run_and_runs_go_on_where_they_stopped(digits: Labelled) -> None:
    config = replace(BASE, rounds=3, augmix=SOME, every=2)
    kept: dict[int, dict[str, Tensor]] = {}
    rows: list[int] = []
    first = cohorts(
        network(),
        *digits,
        10,
        config,
        progress=rows.append,
        on_round=lambda number, weights, _: kept.update({number: weights}),
    )
    assert [at["round"] for at in first.curve] == [2, 3] and len(rows) == 3 and min(rows) > 0
    assert {"views", "steps", "measuring"} == {*first.seconds}
    rest = made(digits, config).run(after=2, weights=kept[2])
    other = cohorts(network(), *digits, 10, replace(config, seed=1))
    for name, value in first.weights.items():
        assert torch.equal(rest.weights[name], value)
        assert not torch.equal(other.weights[name], value)


def test_a_federation_learns_and_says_how_well(digits: Labelled) -> None:
    data = mixveil.open_data("digits:test")
    test = Labelled(data.take(torch.arange(len(data))).x, data.labels)
    run = made(digits, replace(BASE, rounds=40, every=40, beta=1.0), test=test)
    found = run.run()
    net = network()
    net.load_state_dict(found.weights)
    (figures,) = found.curve
    with torch.no_grad():
        right = net(test.x).argmax(1).eq(test.labels).double()
        own = [net(digits.x[c.test]).argmax(1).eq(digits.labels[c.test]).double() for c in run.clients]
    assert figures["test"] == pytest.approx(float(right.mean())) and figures["test"] > 0.6
    assert figures["clients"] == pytest.approx(float(torch.cat(own).mean()))
    assert figures["by client"] == pytest.approx(float(torch.stack([o.mean() for o in own]).mean()))
    assert run.personal(found.weights)["clients"] > figures["clients"] - 0.05


def test_octets_are_images(digits: Labelled) -> None:
    octets = (digits.x * 255).round().to(torch.uint8)
    one, other = made(Labelled(octets, digits.labels)), made(Labelled(octets.float() / 255, digits.labels))
    assert_alike(one.round(1, one.first, one.plan(1)), other.round(1, other.first, other.plan(1)))


def test_a_network_sees_scaled_images(digits: Labelled) -> None:
    run = made(digits, replace(BASE, augmix=SOME, centre=(0.3,), spread=(0.4,)), test=digits)
    first = nn.Conv2d(1, 1, 1)
    with torch.no_grad():
        for tensor, value in zip(first.parameters(), (1 / 0.4, -0.3 / 0.4), strict=True):
            tensor.fill_(value)
        net = nn.Sequential(first, *network()).eval()
        right = net(digits.x).argmax(1).eq(digits.labels).double()
    assert run.measured(run.first)["test"] == pytest.approx(float(right.mean()))
    views, images = made(digits, replace(BASE, augmix=SOME)), made(digits, replace(BASE, centre=(0.3,), spread=(0.4,)))
    after = run.round(1, run.first, run.plan(1))
    for other in (views, images):
        unlike = other.round(1, other.first, other.plan(1))
        assert not torch.allclose(unlike["0.weight"], after["0.weight"])
    config = replace(BASE, centre=(0.3,), spread=(0.4,))
    scaled = Labelled((digits.x - 0.3) / 0.4, digits.labels)
    other = made(scaled)
    assert_alike(made(digits, config).round(1, run.first, run.plan(1)), other.round(1, other.first, other.plan(1)))


def test_what_cannot_be_is_refused(digits: Labelled) -> None:
    for change in ({"rate": 0.0}, {"share": 0.0}, {"momentum": 1.0}, {"proximal": -1.0}, {"test_share": 1.0}):
        with pytest.raises(ArgumentError):
            made(digits, replace(BASE, **change))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="labels"):
        Cohorts(network(), digits.x, digits.labels[1:], 10, BASE)
    with pytest.raises(TrainingError, match="finite"):
        cohorts(network(), *digits, 10, replace(BASE, rate=1e38))


def test_a_schedule_of_one_client() -> None:
    (client,) = dealt(torch.zeros(8).long(), 1, beta=None, test_share=0.25, stream=SeededStream(0))
    plan = schedule([client], [0], 1, 4, SeededStream(0))
    assert plan.shares.tolist() == [[[0.25] * 4], [[0.5, 0.5, 0, 0]]] and plan.active == [1, 1]
