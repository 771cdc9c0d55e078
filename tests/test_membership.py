"""The guarantee itself, against the best attacker there can be."""

from __future__ import annotations

from dataclasses import replace

from mixveil.encoders.singular import Singular
from mixveil.types import Fact, Facts, Mu
from tests.membership import refutes, scores

FACTS = Facts(
    {
        "dimension": Fact(4.0, "range"),
        "centre": Fact(0.5, "range"),
        "amplitude": Fact(0.5, "range"),
        "clip": Fact(0.2, "public"),
    }
)


def calibrated(mu: float, alpha: float | None = None) -> Singular:
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
    assert not refutes(*scores(encoder, encoder, 3_000, length=4.0), mu=1.0)
    unclipped = replace(encoder, clip=float(encoder.clip or 0) * 100)
    assert refutes(*scores(encoder, unclipped, 3_000, length=4.0), mu=1.0)


def test_a_planted_lie_is_caught() -> None:
    """Settings that say σ for μ = 0.5, and noise of half that σ: a manifest cannot show it, the test does."""
    stated = calibrated(0.5)
    liar = replace(stated, sigma=float(stated.sigma or 0) / 2)
    assert refutes(*scores(stated, liar, 3_000), mu=0.5)
    assert not refutes(*scores(stated, stated, 3_000), mu=0.5)


def test_the_default_weights_stay_under_the_bound() -> None:
    encoder = calibrated(1.0)
    assert not refutes(*scores(encoder, encoder, 2_000), mu=1.0)
