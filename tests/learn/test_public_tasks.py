"""Settings of rounds from public tasks: for every level of noise, as noise asks for them, from public rows alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from mixveil.core.randomness import SeededStream
from mixveil.data.images import from_tensors
from mixveil.data.opening import open_data
from mixveil.features import projection_fit
from mixveil.features.cache import Features
from mixveil.features.round_settings import RoundSettings
from mixveil.learn import protocol, public_tasks
from tests.made import blobs, features_of


@pytest.fixture(scope="module")
def digits() -> Features:
    return features_of(open_data("digits:test"))


@pytest.fixture(scope="module")
def settings(digits: Features) -> tuple[RoundSettings, ...]:
    return public_tasks.find(digits)


def test_every_level_of_noise_has_settings(digits: Features, settings: tuple[RoundSettings, ...]) -> None:
    assert tuple(item.noise for item in settings) == public_tasks.LEVELS
    assert all(1 <= item.directions <= digits.dimension for item in settings)
    assert all(0.5 < item.accuracy <= 1 for item in settings)


def test_more_noise_never_has_more_directions_or_longer_steps() -> None:
    """Twenty classes that differ a little in each of eighty directions: noise drowns most of them."""
    labels = torch.arange(1000) % 20
    x = 0.3 * SeededStream(1).normal(20, 80)[labels] + SeededStream(2).normal(1000, 80)
    x = (x * torch.linspace(1, 0.5, 80) / 12 + 0.5).clamp(0, 1).float()
    found = public_tasks.find(features_of(from_tensors(x[:, None, None], labels)))
    for less, more in pairwise(found):
        assert more.directions <= less.directions and more.rate <= less.rate
    assert found[-1].directions < found[0].directions
    assert found[-1].accuracy + 0.2 < found[0].accuracy


def test_they_are_the_same_every_time(digits: Features, settings: tuple[RoundSettings, ...]) -> None:
    steps: list[int] = []
    assert public_tasks.find(digits, steps.append) == settings
    assert steps == [1] * len(public_tasks.LEVELS)


def test_no_level_has_more_directions_than_the_projection(digits: Features) -> None:
    few = public_tasks.find(digits, most=5)
    assert tuple(item.noise for item in few) == public_tasks.LEVELS and {item.directions for item in few} == {5}


def test_too_few_classes_have_no_settings() -> None:
    steps: list[int] = []
    assert public_tasks.find(features_of(blobs(60, 1, classes=3)), steps.append) == ()
    assert sum(steps) == len(public_tasks.LEVELS)
    assert public_tasks.find(features_of(blobs(80, 1, classes=4)))


@pytest.mark.parametrize(
    ("classes", "labels", "inside"), [(4, 2, 2), (5, 3, 2), (19, 10, 9), (26, 10, 16), (40, 10, 20)]
)
def test_a_task_has_classes_that_its_projection_has_not_seen(classes: int, labels: int, inside: int) -> None:
    """Ten rows a class; those of the task are split in fifths, those of the others fit the projection."""
    public = features_of(blobs(10 * classes, 2, classes=classes))
    task = public_tasks.made_task(public)
    assert task is not None and task.classes == labels
    assert len(task.z) + len(task.test) == 10 * (classes - inside)
    assert len(task.z) == 8 * (classes - inside) and len(task.z) == len(task.labels)
    counts = torch.cat([task.labels, task.test_labels]).bincount()
    assert set(counts.tolist()) == {10 * (classes - inside) // labels}


def test_groups_are_of_near_classes() -> None:
    """Twenty classes in ten pairs that lie close together: each class is grouped with its nearest one."""
    places = 5 * SeededStream(4).normal(10, 6)
    means = torch.cat([places, places + 0.1]).float()
    labels = torch.arange(200) % 20
    z = means[labels] + 0.01 * SeededStream(5).normal(200, 6).float()
    group = public_tasks.grouped(z, labels + 7)  # labels that do not begin at 0
    distance = torch.cdist(means, means).fill_diagonal_(torch.inf)
    of_class = group[:20]
    assert torch.equal(group, of_class[labels]) and set(of_class.bincount().tolist()) == {2}
    assert torch.equal(of_class, of_class[distance.argmin(1)])


def test_groups_lie_closer_than_chance_makes_them() -> None:
    labels = torch.arange(300) % 30
    z = SeededStream(6).normal(30, 4).float()[labels]
    found = public_tasks.grouped(z, labels)[:30]
    assert found.bincount().tolist() == [3] * 10
    others = [found[SeededStream(seed).permutation(30)] for seed in range(50)]
    assert _within(z[:30], found) < min(_within(z[:30], other) for other in others)


def _within(means: Tensor, group: Tensor) -> float:
    """The squared distances of classes from the mean of their group, one after the other."""
    total = 0.0
    for number in set(group.tolist()):
        own = means[group == number]
        total += sum(float((mean - own.mean(0)).square().sum()) for mean in own)
    return total


def test_noise_costs_what_is_learnt(digits: Features, settings: tuple[RoundSettings, ...]) -> None:
    task = public_tasks.made_task(digits)
    assert task is not None
    reached = [
        public_tasks.learnt(task, replace(settings[0], noise=noise), SeededStream(1)) for noise in (1e-5, 1e-2, 10.0)
    ]
    assert reached[0] > reached[1] > reached[2]
    assert reached[2] < 2 / task.classes


def test_rounds_are_learnt_as_the_protocol_learns_them(digits: Features, settings: tuple[RoundSettings, ...]) -> None:
    """Nearly without noise the estimate is the accuracy of a job with the same rows, settings and projection."""
    task = public_tasks.made_task(digits)
    assert task is not None
    wide, quiet = float(2 * torch.cat([task.z, task.test]).abs().max()), replace(settings[0], noise=1e-7)

    def rows(z: Tensor, labels: Tensor) -> Features:  # as pixels in [0, 1]
        return features_of(from_tensors((z / wide + 0.5)[:, None, None], labels, classes=task.classes))

    own = rows(task.z, task.labels)
    undone = replace(
        projection_fit.fit(own, "0" * 64),
        mean=torch.full((64,), 0.5),
        matrix=wide * torch.eye(64),
        norms=task.norms.float(),
        rounds=(quiet,),
    )
    job = protocol.in_rounds([own], undone, 1 / (quiet.noise * len(own)), stream=SeededStream(2))
    estimate = public_tasks.learnt(task, quiet, SeededStream(1))
    assert job.accuracy(rows(task.test, task.test_labels)) == pytest.approx(estimate, abs=0.02)


def test_a_table_for_people_says_sizes_of_jobs(settings: tuple[RoundSettings, ...]) -> None:
    table = public_tasks.shown(settings)
    assert [item["units_mu"] * settings[place].noise for place, item in enumerate(table)] == pytest.approx([1] * 11)
    assert [item["directions"] for item in table] == [item.directions for item in settings]
