"""Settings for rounds of sums, from public data alone: what learns best on tasks that public classes make.

Half of the public classes fit a projection of their own. The other half are the task, grouped by their means into as
many labels as there may be, at most ten; so the projection has not seen the task's classes, as it has not seen private
ones. For each level of noise the number of directions and the rate are found by learning from four fifths of the rows
and testing on the others. Among numbers of directions that are within a point of the best the smallest is taken: it
sends fewer bytes, and private classes are less like public ones than public classes are like one another. Nothing here
is private, and no guarantee depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from mixveil.core.randomness import SeededStream, Stream
from mixveil.core.types import Progress
from mixveil.features.cache import Features
from mixveil.features.projection_fit import whitened
from mixveil.features.round_settings import TEN, RoundSettings
from mixveil.learn import rounds
from mixveil.learn.class_means import Totals

LEVELS = tuple(1e-5 * 2.0**power for power in range(-2, 9))
"""Of noise, as `round_settings.noise_of` has it, for which settings are found."""

RATES: tuple[float, ...] = (2.5, 5.0, 10.0, 20.0)
"""Of learning, tried at the most noise."""

_DIRECTIONS = (16, 64, 256, 512, 1024, 2048)
_ROUNDS, SHARE, _CLIP, _MOMENTUM, _TEMPERATURE = 16, 0.2, 0.1, 0.5, 0.25
_TOLERANCE = 0.01
_DRAWS = 3
_LABELS, _FEWEST, _MOST_ROWS = 10, 4, 25_000


@dataclass(frozen=True)
class Task:
    """Rows of public classes in the directions of a projection that others fitted.

    Attributes:
        z: (n, k) float32 to learn from; labels: (n,).
        test, test_labels: to test on.
        norms: (k,) the median norm in the first 1…k directions, of the rows that the projection was fitted on.
    """

    z: Tensor
    labels: Tensor
    test: Tensor
    test_labels: Tensor
    norms: Tensor

    @property
    def classes(self) -> int:
        return int(self.labels.max()) + 1


def find(
    public: Features, progress: Progress = lambda _: None, *, most: int | None = None
) -> tuple[RoundSettings, ...]:
    """Settings for every level of noise; none where the public data have too few classes. progress: called with
    `len(LEVELS)` steps in all. most: directions that the projection has; else all that features have."""
    task = made_task(public, most=most)
    if task is None:
        progress(len(LEVELS))
        return ()
    found: list[RoundSettings] = []
    for level in reversed(LEVELS):
        found.insert(0, _best(task, level, found[0] if found else None))
        progress(1)
    return tuple(found)


def made_task(public: Features, seed: int = 0, *, most: int | None = None) -> Task | None:
    """Half of the classes as a task for a projection that the other half fitted, with so many directions at the most;
    None where there are too few classes."""
    stream = SeededStream(seed).fork("public tasks")
    present = torch.unique(public.labels)
    if len(present) < _FEWEST:
        return None
    order = present[stream.fork("classes").permutation(len(present))]
    half = -(-len(order) // 2)
    taken = half if half < _LABELS else half - half % _LABELS  # groups of equal numbers of classes
    inside = torch.isin(public.labels, order[: len(order) - taken])
    rows = _some(torch.arange(len(public))[~inside], stream.fork("rows"))
    found = whitened(public.part(torch.arange(len(public))[inside]))
    mean, matrix = found.mean.float(), found.matrix[:, : min(most or _DIRECTIONS[-1], _DIRECTIONS[-1])].float()
    z = torch.cat([(public.read(index) - mean) @ matrix for index in torch.split(rows, 4096)])
    labels = grouped(z, public.labels[rows])
    cut = len(rows) * 4 // 5
    return Task(z[:cut], labels[:cut], z[cut:], labels[cut:], found.norms)


def grouped(z: Tensor, labels: Tensor) -> Tensor:
    """(n,) labels of groups of classes with near means, all of the same number of classes, at most ten groups. labels:
    of at most ten classes, or of a multiple of ten."""
    classes, place = torch.unique(labels, return_inverse=True)
    means = torch.zeros(len(classes), z.shape[1]).index_add_(0, place, z) / place.bincount()[:, None]
    groups = min(_LABELS, len(classes))
    each = len(classes) // groups
    centres = means[:groups]
    for _ in range(10):
        cost = torch.cdist(means, centres).repeat_interleave(each, 1)
        group = torch.tensor(linear_sum_assignment(cost.double().numpy())[1]) // each
        centres = torch.stack([means[group == number].mean(0) for number in range(groups)])
    return group[place]


def learnt(task: Task, settings: RoundSettings, stream: Stream) -> float:
    """The share of test rows that rounds with noise of settings.noise over rows name right."""
    clip = float(task.norms[settings.directions - 1])
    z = _short(task.z[:, : settings.directions], clip)
    mu = task.classes / TEN / (settings.noise * len(z))
    with_one = torch.cat([z, torch.full((len(z), 1), clip)], dim=1)
    sums = torch.zeros(task.classes, with_one.shape[1]).index_add_(0, task.labels, with_one)
    state = rounds.first(_noisy(sums, clip, settings.mu(0, mu), len(z), stream), clip, settings)
    centred = _short(z - state.head.centre.float(), clip)
    own = settings.clip * clip
    for message in range(1, settings.rounds + 1):
        sums = _residuals(centred, task.labels, state, own)
        state = rounds.improved(state, _noisy(sums, own, settings.mu(message, mu), len(z), stream), own, settings)
    head = state.head
    scores = (task.test[:, : settings.directions] - head.centre.float()) @ head.weight.float() + head.bias.float()
    return float(scores.argmax(1).eq(task.test_labels).double().mean())


def _best(task: Task, level: float, before: RoundSettings | None) -> RoundSettings:
    """The settings for one level of noise. before: those for twice as much, next to which they are looked for: less
    noise never asks for fewer directions or shorter steps."""
    known = sorted({k for k in _DIRECTIONS if k < task.z.shape[1]} | {min(task.z.shape[1], _DIRECTIONS[-1])})
    place, rates = 0, RATES
    if before is not None:
        place, rates = known.index(before.directions), (before.rate, 2 * before.rate)
    tried = [
        max((_tried(task, level, k, rate) for rate in rates), key=lambda own: own.accuracy)
        for k in known[place : place + 3]
    ]
    most = max(own.accuracy for own in tried)
    return next(own for own in tried if own.accuracy >= most - _TOLERANCE)


def _tried(task: Task, level: float, k: int, rate: float) -> RoundSettings:
    """Settings and what they reach, the mean over several draws of noise."""
    settings = RoundSettings(
        directions=k,
        rounds=_ROUNDS,
        share=SHARE,
        clip=_CLIP,
        noise=level,
        rate=rate,
        momentum=_MOMENTUM,
        temperature=_TEMPERATURE,
        accuracy=0.0,
    )
    reached = [learnt(task, settings, SeededStream(draw).fork(f"noise {level:g}")) for draw in range(_DRAWS)]
    return replace(settings, accuracy=sum(reached) / _DRAWS)


def _noisy(sums: Tensor, clip: float, mu: float, units: int, stream: Stream) -> Totals:
    sigma = 2 * clip / mu
    return Totals(sums.double() + sigma * stream.normal(*sums.shape), sigma**2, units)


def _residuals(z: Tensor, labels: Tensor, state: rounds.State, clip: float) -> Tensor:
    """(classes, k + 1) as `releases.contributions.residual_total` has it, in float32: it is an estimate."""
    head = state.head
    wrong = torch.softmax(torch.addmm(head.bias.float(), z, head.weight.float()), dim=1)
    wrong[torch.arange(len(z)), labels] -= 1
    norm = torch.linalg.vector_norm(wrong, dim=1) * (z.square().sum(1) + 1).sqrt()
    wrong *= (clip / norm.clamp(min=1e-12)).clamp(max=1)[:, None]
    return torch.cat([wrong.T @ z, wrong.sum(0)[:, None]], dim=1)


def _short(z: Tensor, clip: float) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(z, dim=1, keepdim=True)
    return z * (clip / norm.clamp(min=1e-12)).clamp(max=1)


def _some(rows: Tensor, stream: Stream) -> Tensor:
    """At most so many rows, in a random order."""
    return rows[stream.permutation(len(rows))[:_MOST_ROWS]]


def shown(table: Sequence[RoundSettings]) -> list[dict[str, float]]:
    """A table for people and JSON: the noise as n·μ/√P, so that it can be read off a job's sizes."""
    return [
        {
            "units_mu": 1 / item.noise,
            "directions": item.directions,
            "rounds": item.rounds,
            "rate": item.rate,
            "accuracy": item.accuracy,
        }
        for item in table
        if math.isfinite(item.noise)
    ]
