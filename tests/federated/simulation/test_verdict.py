"""What the figures of a simulation say, before its table."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from mixveil.core.randomness import SeededStream
from mixveil.federated.methods.catalogue import METHODS
from mixveil.federated.simulation.verdict import chance, verdict
from tests.notes import codes, holds
from tests.plugins import toy_method

TESTED = 10_000


def row(method: str, accuracy: float, mu: float | None = None, code: str = "mu-labels-by-row") -> dict[str, Any]:
    promise = "weights-unbounded" if mu is None else code
    return {"method": method, "mu": mu, "accuracy": accuracy, "guarantee": {"code": promise}}


def test_the_best_at_each_promise() -> None:
    rows = [row("two-step", 0.7, 2.0), row("two-step", 0.6, 1.0), row("sums", 0.8, 2.0), row("sums", 0.5, 1.0)]
    rows += [row("fedavg", 0.9), row("fedprox", 0.85), row("centralised", 0.99), row("public", 0.95), row("local", 0.1)]
    told = verdict(rows, TESTED)
    assert [note.code for note in told] == ["best-at-mu", "best-at-mu", "best-without-guarantee"]
    assert [dict(note.figures) for note in told] == [
        {"mu": 1.0, "method": "two-step", "accuracy": 0.6},
        {"mu": 2.0, "method": "sums", "accuracy": 0.8},
        {"method": "fedavg", "accuracy": 0.9},  # those that methods are compared with are none
    ]


def test_what_is_worse_than_alone_is_warned_of() -> None:
    """MNIST with other public data: certified methods fell below what each party has alone."""
    rows = [row("local", 0.855), row("two-step", 0.708, 1.0), row("fedavg", 0.922), row("public", 0.067)]
    told = verdict([*rows, row("one-shot", 0.852), row("dp-sgd", 0.857, 1.0)], TESTED)
    (worse,) = [note for note in told if note.code == "worse-than-local"]
    assert worse.figures["points"] == pytest.approx(14.7) and worse.figures["local"] == 0.855
    assert holds([worse], "method-at-mu", method="two-step", mu=1.0)
    assert holds(told, "as-local-by-chance", methods=["one-shot", "dp-sgd (μ = 1)"], local=0.855)


def test_differences_within_chance_are_said_to_be_so() -> None:
    rows = [row("local", 0.5), row("sums", 0.9, 1.0), row("two-step", 0.895, 1.0), row("moments", 0.88, 1.0)]
    assert holds(verdict(rows, TESTED), "best-at-mu-by-chance", method="sums", others=["two-step"])
    assert holds(verdict(rows, 100), "best-at-mu-by-chance", others=["two-step", "moments"])
    assert "best-at-mu" in codes(verdict(rows, 1_000_000))


def test_without_local_it_says_that_it_did_not_compare() -> None:
    assert codes(verdict([row("sums", 0.9, 1.0)], TESTED)) == {"best-at-mu", "local-not-compared"}
    assert verdict([row("local", 0.9)], TESTED) == () == verdict([row("public", 0.9)], TESTED)


def test_promises_of_one_mu_may_differ() -> None:
    rows = [row("local", 0.1), row("sums", 0.9, 1.0), row("dp-sgd", 0.5, 1.0, "epsilon-record-taken-out")]
    assert "promises-differ" in codes(verdict(rows, TESTED)) and "promises-differ" not in codes(
        verdict(rows[:2], TESTED)
    )
    rows[1]["guarantee"] = "a text of an earlier version"
    assert "promises-differ" in codes(verdict(rows, TESTED))


def test_a_method_from_outside_is_judged() -> None:
    with METHODS.including(toy_method.NearestMean):
        told = verdict([row("local", 0.8), row("nearest-mean", 0.6)], TESTED)
    assert holds(told, "best-without-guarantee", method="nearest-mean") and holds(told, "method-named")


def test_chance_is_two_standard_errors() -> None:
    """Slow twin: the spread of the difference of two means of so many draws."""
    stream, rows = SeededStream(0), 400
    first, second = ((stream.uniform(4000 * rows).view(4000, rows) < p).double().mean(1) for p in (0.9, 0.6))
    assert chance(0.9, 0.6, rows) == pytest.approx(2 * float(torch.std(first - second)), rel=0.05)
    assert chance(1.0, 1.0, rows) == 0 and math.isclose(chance(0.5, 0.5, rows), math.sqrt(2 / rows))
