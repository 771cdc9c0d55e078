"""The guarantee itself, against the best attacker there can be."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mixveil.core.randomness import SecureStream
from mixveil.core.types import Fact, Facts, Mu
from mixveil.data.images import from_tensors
from mixveil.encoders.gaussian import CalibratedGaussian, Gaussian
from mixveil.encoders.singular import CalibratedSingular, Singular
from tests.membership import DIRECTION, refutes, scores

FACTS = Facts(
    {
        "dimension": Fact(4.0, "range"),
        "centre": Fact(0.5, "range"),
        "amplitude": Fact(0.5, "range"),
        "clip": Fact(0.2, "public"),
    }
)


def calibrated(mu: float, alpha: float | None = None) -> CalibratedSingular:
    return Singular(alpha=alpha).calibrate(Mu(mu), FACTS)[0]


def test_20_000_repetitions_of_the_optimal_test() -> None:
    """Weights of one half make the bound tight. No threshold beats μ = 1; and the test could fail: it reaches so
    near to the bound that a claim of 0.8 is refuted, and one of 0.5 all the more."""
    encoder = calibrated(1.0, alpha=0.5)
    members, others = scores(encoder, encoder, 20_000)
    assert not refutes(members, others, mu=1.0)
    assert refutes(members, others, mu=0.8)
    assert refutes(members, others, mu=0.5)


def test_records_beyond_the_clip_norm_are_no_easier_to_find() -> None:
    """The attacker's two records are four times as long as C, as the row's own and as the partner of another: without
    clipping either would be found at once."""
    encoder = calibrated(1.0, alpha=0.5)
    assert not refutes(*scores(encoder, encoder, 20_000, length=4.0), mu=1.0)
    unclipped = replace(encoder, clip=encoder.clip * 100)
    assert refutes(*scores(encoder, unclipped, 20_000, length=4.0), mu=1.0)


def test_a_planted_lie_is_caught() -> None:
    """Settings that say σ for μ = 0.5, and noise of half that σ: a manifest cannot show it, the test does."""
    stated = calibrated(0.5)
    liar = replace(stated, sigma=stated.sigma / 2)
    assert refutes(*scores(stated, liar, 20_000), mu=0.5)
    assert not refutes(*scores(stated, stated, 20_000), mu=0.5)


def test_the_default_weights_stay_under_the_bound() -> None:
    encoder = calibrated(1.0)
    assert not refutes(*scores(encoder, encoder, 20_000), mu=1.0)


def plain_scores(
    stated: CalibratedGaussian, actual: CalibratedGaussian, repetitions: int, length: float = 1.0
) -> tuple[Tensor, Tensor]:
    """The optimal test against plain Gaussian records: every row is one repetition, ± the longest record."""
    clip, sigma = stated.clip, stated.sigma
    found = []
    for sign in (1, -1):
        points = (stated.centre + sign * length * clip * DIRECTION).expand(repetitions, 4)
        data = from_tensors(points, torch.arange(repetitions) % 2)
        trace = actual.plan(repetitions, stream=SecureStream())
        batch = actual.encode(
            replace(data, low=-9.0, high=9.0), torch.arange(repetitions), trace, stream=SecureStream()
        )
        found.append(batch.x.double() * actual.step @ DIRECTION * 2 * clip / sigma**2)
    return found[0], found[1]


def test_plain_gaussian_records_keep_their_bound_and_no_more() -> None:
    encoder = Gaussian().calibrate(Mu(1.0), FACTS)[0]
    assert encoder.sigma == pytest.approx(0.4)  # 2C/μ
    members, others = plain_scores(encoder, encoder, 20_000)
    assert not refutes(members, others, mu=1.0)
    assert refutes(members, others, mu=0.8)
    assert not refutes(*plain_scores(encoder, encoder, 20_000, length=7.0), mu=1.0)  # longer ones are clipped
    assert refutes(*plain_scores(encoder, replace(encoder, sigma=0.2), 20_000), mu=1.0)  # a planted lie
