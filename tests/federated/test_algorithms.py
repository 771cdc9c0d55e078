"""FedAvg and FedProx against plain training, autograd and one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError, TrainingError
from mixveil.core.randomness import SeededStream
from mixveil.federated.algorithms import HeadName, Rounds, Weights, average, federated, local, new_head, weights_of
from mixveil.learn.batches import RemixedEveryBatch
from mixveil.learn.fit import Head, TrainingRecipe, draw_back, fit, train_epochs
from mixveil.learn.mlp import Classifier, Linear

HEADS: tuple[HeadName, ...] = ("linear", "mlp")


def rows(n: int, seed: int, classes: int = 3, inputs: int = 6) -> tuple[Tensor, Tensor]:
    stream = SeededStream(seed)
    labels = (stream.uniform(n) * classes).long()
    return (stream.normal(n, inputs) + 2 * torch.eye(classes, inputs)[labels]).float(), labels


def source(n: int, seed: int) -> RemixedEveryBatch:
    return RemixedEveryBatch(*rows(n, seed), 3, None)


def same(one: Weights, other: Weights) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def run(
    head: HeadName, sizes: Sequence[int], recipe: TrainingRecipe, rounds: Rounds, proximal: float | None
) -> list[Weights]:
    model = new_head(head, 6, 3, recipe)
    return list(federated(model, [source(n, i) for i, n in enumerate(sizes)], recipe, rounds, proximal=proximal))


@pytest.mark.parametrize("head", HEADS)
def test_fedprox_without_a_pull_is_fedavg_bit_for_bit(head: HeadName) -> None:
    recipe = TrainingRecipe(batch=16, learning_rate=0.01)
    one, other, pulled = (run(head, [40, 25, 9], recipe, Rounds(3, 2), mu) for mu in (None, 0.0, 0.5))
    assert len(one) == 3 and all(same(a, b) for a, b in zip(one, other, strict=True))
    assert not same(one[-1], pulled[-1])


@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
def test_one_party_and_one_round_is_plain_training(optimiser: str) -> None:
    """Against the training that `mixveil train` does."""
    recipe = TrainingRecipe(epochs=5, batch=16, optimiser=optimiser, learning_rate=0.01, seed=3)  # type: ignore[arg-type]
    plain = fit(source(50, 0), recipe)
    (found,) = run("mlp", [50], recipe, Rounds(1, 5), None)
    assert same(found, plain.state_dict())


@pytest.mark.parametrize("head", HEADS)
def test_one_party_is_plain_training_whose_optimiser_begins_anew_every_round(head: HeadName) -> None:
    recipe = TrainingRecipe(epochs=6, batch=16, learning_rate=0.01, seed=3)
    model = new_head(head, 6, 3, recipe)
    for number in range(3):
        train_epochs(source(50, 0), recipe, model, range(2 * number, 2 * number + 2))
    assert same(run(head, [50], recipe, Rounds(3, 2), None)[-1], model.state_dict())


def test_one_party_trained_by_hand() -> None:
    """The slow twin: softmax regression with AdamW in a plain loop."""
    recipe, (x, labels) = TrainingRecipe(epochs=3, batch=50, learning_rate=0.05), rows(50, 0)
    model = torch.nn.Linear(6, 3)
    start = weights_of(new_head("linear", 6, 3, recipe))
    model.load_state_dict({"weight": start["dense.weight"], "bias": start["dense.bias"]})
    for epoch in range(3):
        rate = 0.05 * (1 + torch.cos(torch.tensor(torch.pi * epoch / 3))) / 2
        optimiser = torch.optim.AdamW(model.parameters(), float(rate), weight_decay=1e-4)  # a new one every round
        torch.nn.functional.cross_entropy(model(x), labels).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        optimiser.zero_grad()
    found = run("linear", [50], recipe, Rounds(3, 1), None)[-1]
    assert torch.allclose(found["dense.weight"], model.weight, atol=1e-5)
    assert torch.allclose(found["dense.bias"], model.bias, atol=1e-5)


@pytest.mark.parametrize("head", HEADS)
def test_the_pull_is_the_gradient_of_the_squared_term(head: HeadName) -> None:
    recipe, mu = TrainingRecipe(seed=1), 0.37
    model: Head = new_head(head, 6, 3, recipe)
    anchor = [SeededStream(5).normal(*p.shape).float() for p in model.parameters()]
    squared = torch.stack([(p - a).square().sum() for p, a in zip(model.parameters(), anchor, strict=True)]).sum()
    by_autograd = torch.autograd.grad(mu / 2 * squared, list(model.parameters()))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    draw_back(model.parameters(), anchor, mu)
    for parameter, gradient in zip(model.parameters(), by_autograd, strict=True):
        assert parameter.grad is not None and torch.allclose(parameter.grad, gradient, atol=1e-7)


def test_a_local_step_of_fedprox_by_autograd_of_the_whole_loss() -> None:
    """Two full-batch steps of SGD, whose second begins away from the server's weights."""
    recipe, (x, labels), mu = TrainingRecipe(epochs=2, batch=50, optimiser="sgd", learning_rate=0.3), rows(50, 0), 2.0
    model = Linear(6, 3, draws=recipe.draws())
    start = [p.detach().clone() for p in model.parameters()]
    found = local(model, weights_of(model), source(50, 0), recipe, range(2), proximal=mu)
    weight, bias = (p.clone().requires_grad_() for p in start)
    moment = [torch.zeros_like(weight), torch.zeros_like(bias)]
    for step in range(2):
        rate = 0.3 * (1 + torch.cos(torch.tensor(torch.pi * step / 2))) / 2
        loss = torch.nn.functional.cross_entropy(x @ weight.T + bias, labels)
        loss = loss + mu / 2 * ((weight - start[0]).square().sum() + (bias - start[1]).square().sum())
        gradients = torch.autograd.grad(loss, (weight, bias))
        moment = [0.9 * m + g for m, g in zip(moment, gradients, strict=True)]
        weight, bias = ((w - rate * m).detach().requires_grad_() for w, m in zip((weight, bias), moment, strict=True))
    assert torch.allclose(found["dense.weight"], weight, atol=1e-6)
    assert torch.allclose(found["dense.bias"], bias, atol=1e-6)


def test_the_server_takes_the_mean_by_rows() -> None:
    parts = [({"w": torch.tensor([1.0, 2.0])}, 1), ({"w": torch.tensor([5.0, -2.0])}, 3)]
    assert torch.equal(average(parts)["w"], torch.tensor([4.0, -1.0]))
    only = {"w": SeededStream(1).normal(1000).float()}
    assert torch.equal(average([(only, 49_999)])["w"], only["w"])  # to the last bit
    for bad, said in (
        ([], "no weights"),
        ([(only, 0)], "rows must be"),
        ([(only, 1), ({"v": only["w"]}, 1)], "weights of other models"),
    ):
        with pytest.raises(ArgumentError, match=said):
            average(bad)


def test_parties_draw_for_themselves_and_learn_what_none_of_them_has() -> None:
    """Two parties of one class each: alone neither can tell them apart, together they do."""
    x, labels = rows(400, 1, classes=2)
    recipe = TrainingRecipe(batch=32, learning_rate=0.05)
    parts = [RemixedEveryBatch(x[labels == c], labels[labels == c], 2, None) for c in (0, 1)]
    model = new_head("linear", 6, 2, recipe)
    start = weights_of(model)
    *_, weights = federated(model, parts, recipe, Rounds(10))
    model.load_state_dict(dict(weights))
    right = float(model(x).argmax(1).eq(labels).double().mean())
    alone = local(model, start, parts[0], Rounds(10).recipe(recipe), range(10))
    model.load_state_dict(dict(alone))
    assert right > 0.8 and float(model(x).argmax(1).eq(labels).double().mean()) < 0.7
    one, other = (local(model, start, parts[0], recipe, range(1), party=party) for party in (0, 1))
    assert not same(one, other)


def test_a_strong_pull_keeps_parties_where_they_were() -> None:
    recipe = TrainingRecipe(epochs=5, batch=16, optimiser="sgd", learning_rate=0.05)
    model = Linear(6, 3, draws=recipe.draws())
    start = weights_of(model)
    found = [
        local(model, start, source(60, 0), recipe, range(5), proximal=mu)["dense.weight"] for mu in (0.0, 0.1, 1.0, 5.0)
    ]
    moved = [float((weight - start["dense.weight"]).norm()) for weight in found]
    assert moved == sorted(moved, reverse=True) and moved[-1] < 0.5 * moved[0]


def test_bad_settings_are_named() -> None:
    recipe = TrainingRecipe()
    with pytest.raises(ArgumentError, match="head must be one of linear, mlp, lenet5, convnet, got 'tree'"):
        new_head("tree", 6, 3, recipe)
    for settings in ((0, 1), (1, 0)):
        with pytest.raises(ArgumentError, match="must be"):
            Rounds(*settings)
    for mu in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ArgumentError, match="proximal must not be negative"):
            run("linear", [20], recipe, Rounds(1), mu)
    assert isinstance(new_head("mlp", 6, 3, recipe), Classifier)
    wild = replace(recipe, optimiser="sgd", learning_rate=1e38)
    with pytest.raises(TrainingError, match="loss is"):
        run("linear", [40], wild, Rounds(4), 1.0)
