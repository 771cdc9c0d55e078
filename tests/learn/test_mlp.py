"""The paper's classifier against plain torch, and the layers that it becomes."""

from __future__ import annotations

import torch
from torch import Tensor

from mixveil.core.device_random import DeviceStream
from mixveil.core.randomness import SeededStream
from mixveil.learn.mlp import Classifier
from tests.learn.twin import twin

CPU = torch.device("cpu")


def made(inputs: int = 12, classes: int = 5, seed: int = 0) -> Classifier:
    return Classifier(inputs, classes, draws=DeviceStream(SeededStream(seed)))


def rows(n: int = 64, inputs: int = 12, seed: int = 1) -> Tensor:
    return SeededStream(seed).normal(n, inputs).float()


def test_it_is_the_classifier_of_the_paper() -> None:
    model = made(62_720, 10)
    shapes = [tuple(dense.weight.shape) for dense in model._dense]
    assert shapes == [(1024, 62_720), (512, 1024), (10, 512)]
    bound = 62_720**-0.5
    first = model._dense[0].weight.detach()
    assert first.abs().max() <= bound and abs(float(first.std()) / (bound / 3**0.5) - 1) < 0.01


def test_without_dropout_it_is_torchs_own(monkeypatch: object) -> None:
    model = made()
    model._dropped = lambda x, rows: x  # type: ignore[method-assign]
    other = twin(model)
    for seed in range(4):
        x = rows(seed=seed)
        assert torch.allclose(model.train()(x), other.train()(x), atol=1e-5)
    assert torch.allclose(model.eval()(x), other.eval()(x), atol=1e-5)  # running statistics too


def test_dropout_drops_half_and_doubles_the_rest() -> None:
    model = made().train()
    ones = torch.ones(4000, 6)
    model.draws.restart(3)
    dropped = model._dropped(ones, len(ones))
    assert set(dropped.flatten().tolist()) == {0.0, 2.0} and abs(float(dropped.mean()) - 1) < 0.03
    model.draws.restart(3)
    assert torch.equal(model._dropped(ones, len(ones)), dropped)
    model.draws.restart(4)
    assert not torch.equal(model._dropped(ones, len(ones)), dropped)
    assert torch.equal(model.eval()._dropped(ones, len(ones)), ones)


def test_its_layers_say_the_same() -> None:
    model = made()
    for seed in range(3):
        model.train()(3 + 2 * rows(seed=seed))
    with torch.no_grad():
        for norm in model._norms:
            norm.weight.mul_(1.7).add_(0.1)
            norm.bias.add_(0.3)
    x = 3 + 2 * rows(seed=9)
    layers = model.eval().layers()
    assert torch.allclose(layers(x), model(x), atol=1e-4) and layers.inputs == 12
    for norm in model._norms:
        norm.running_var.fill_(1e-6)  # beside which what is added to it counts
    assert torch.linalg.vector_norm(model.layers()(x) - model(x)) < 1e-4 * torch.linalg.vector_norm(model(x))
