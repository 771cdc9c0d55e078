from __future__ import annotations

import math

import pytest
import torch

from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.data.images import from_tensors
from mixveil.data.randomised_labels import Randomised, label_shifts
from mixveil.theory import response


@pytest.mark.parametrize(("epsilon", "classes"), [(0.5, 2), (1.0, 10), (3.0, 5)])
def test_no_class_explains_a_said_label_more_than_e_epsilon_times_as_well(epsilon: float, classes: int) -> None:
    channel = response.channel(epsilon, classes)
    assert torch.allclose(channel.sum(0), torch.ones(classes, dtype=torch.float64))
    ratio = channel[:, :, None] / channel[:, None, :]
    assert float(ratio.max()) == pytest.approx(math.exp(epsilon))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_what_is_drawn_is_the_channel(epsilon: float) -> None:
    """Both the said labels of every true class, and ε as an attacker would measure it."""
    n, classes = 60_000, 4
    labels = torch.arange(n) % classes
    said = (labels + label_shifts(n, classes, epsilon, SeededStream(3))) % classes
    joint = torch.zeros(classes, classes, dtype=torch.float64).index_put_((said, labels), torch.ones(n).double(), True)
    found = joint / joint.sum(0)
    assert torch.allclose(found, response.channel(epsilon, classes), atol=0.02)
    assert math.log(float(found[0, 0] / found[0, 1:].max())) <= epsilon + 0.12


def test_what_the_labels_were_can_be_undone_on_average_only() -> None:
    """The posterior against Bayes' rule by counting."""
    n, classes, epsilon = 200_000, 3, 1.0
    labels = torch.tensor([0, 0, 0, 1, 1, 2]).repeat(n // 6 + 1)[:n]
    said = (labels + label_shifts(n, classes, epsilon, SeededStream(0))) % classes
    found = response.posterior(said.bincount().double(), epsilon)
    for c in range(classes):
        counted = labels[said == c].bincount(minlength=classes).double()
        assert torch.allclose(found[c], counted / counted.sum(), atol=0.02)
    assert torch.allclose(
        response.true_shares(said.bincount(), epsilon), torch.tensor([3, 2, 1.0]).double() / 6, atol=0.02
    )


def test_few_labels_say_little_of_the_shares() -> None:
    """Unmixed shares of 40 labels at ε = 0.2 are chance: no class is taken for missing."""
    for seed in range(20):
        labels = torch.arange(40) % 4
        said = (labels + label_shifts(40, 4, 0.2, SeededStream(seed))) % 4
        assert float(response.true_shares(said.bincount(minlength=4), 0.2).min()) > 0


def test_labels_move_and_nothing_else_does() -> None:
    data = from_tensors(SeededStream(0).uniform(50, 1, 2, 2).float(), torch.arange(50) % 5)
    moved = Randomised(data, label_shifts(50, 5, 0.5, SeededStream(1)))
    index = torch.tensor([7, 3, 3])
    a, b = data.take(index), moved.take(index)
    assert torch.equal(a.x, b.x) and b.y.shape == a.y.shape and torch.equal(b.y.sum(1), torch.ones(3))
    assert b.y[1].equal(b.y[2]) and len(moved) == 50 and moved.classes == data.classes and moved.shape == data.shape
    every = moved.take(torch.arange(50)).y.argmax(1)
    assert torch.equal(every, (data.labels + moved.shifts) % 5) and not torch.equal(every, data.labels)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan, 31.0])
def test_an_epsilon_that_is_none(epsilon: float) -> None:
    with pytest.raises(ArgumentError, match="label_epsilon"):
        response.keep_probability(epsilon, 3)
