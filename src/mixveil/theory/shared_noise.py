"""Noise that parties share in a secure sum: each adds a part of it, and the server sees the sum alone.

Noise of deviation σ makes a sum μ-GDP for a record that one party has. A party that relies on h honest parties in the
set, itself included, adds noise of deviation σ/√h. If j are honest, the sum holds honest noise of variance j·σ²/h, and
is μ·√(h/j)-GDP: μ for j = h, and μ·√h for the party alone, whatever the others do. An adversary that is one of the
parties knows its own noise: h = P parties hold against the server only.

A record that m parties have is in the sum m times: replacing it moves the sum by up to m times as far, under the same
noise. So among j honest parties, those m among them, it is m·μ·√(h/j)-GDP: at most m·μ where h are honest or more, and
√(m·h)·μ whatever the parties without it do (j = m). That is √Σα² over these parties, α = μ·√h, and it must be: the sum
is computed from their messages, each of which has noise of its own. So √Σα² also holds over several sums, over sets
that change, and with messages among them whose noise is not shared (α = μ). √Σμ² would be too little: it counts noise
that the parties share as if each had all of it. A party that has the record and tells it, or adds less noise than it
says, is not honest: nothing covers what it sends.

Each party rounds its own values to one common step. Its own message is a rounded Gaussian, so μ·√h is exact. The sum is
not one, but its law is almost that of a Gaussian sum that was rounded at random afterwards: if every party's deviation
is at least 4 steps, each probability is within a factor 1 ± 10⁻⁶⁷ a coordinate.
"""

from __future__ import annotations

import math

from mixveil.core import checks
from mixveil.core.errors import ArgumentError

LEAST_STEPS = 4.0
"""A party's deviation in steps, at the least."""

_MOST = 1 << 63


def alone(mu: float, honest: int) -> float:
    """μ·√h: what one party's message promises, whatever the others do.

    >>> alone(0.5, 4)
    1.0
    """
    return with_honest(mu, honest, 1)


def with_honest(mu: float, honest: int, j: int) -> float:
    """μ·√(h/j): what the sum promises if j parties are honest and each relied on h.

    >>> with_honest(1.0, 10, 10), with_honest(1.0, 8, 2)
    (1.0, 2.0)
    """
    checks.at_least("honest", honest, 2)
    checks.at_least("j", j, 1)
    return checks.finite_positive("mu", mu) * math.sqrt(honest / j)


def at_several(mu: float, honest: int, m: int, j: int) -> float:
    """m·μ·√(h/j): what the sum promises a record that m of j honest parties have.

    >>> at_several(1.0, 10, 10, 10), at_several(1.0, 4, 1, 4), at_several(1.0, 2, 2, 2)
    (10.0, 1.0, 2.0)
    """
    checks.at_least("m", m, 1)
    checks.at_least("j", j, m)
    return m * with_honest(mu, honest, j)


def share(sigma: float, honest: int) -> float:
    """σ/√h: the deviation of the noise that each party adds."""
    return checks.finite_positive("sigma", sigma) / math.sqrt(checks.at_least("honest", honest, 2))


def check_rounding(sigma: float, honest: int, step: float) -> None:
    """Refuse a step that is too coarse for the noise that each party adds."""
    own = share(sigma, honest)
    if own < LEAST_STEPS * checks.finite_positive("step", step):
        raise ArgumentError(
            f"step must be at most {own / LEAST_STEPS:g}, a quarter of the noise that each party adds "
            f"({sigma:g}/√{honest}), got {step:g}"
        )


def check_total(parties: int, largest: float, step: float) -> None:
    """Refuse sums that could leave (−2⁶³, 2⁶³). largest: of all values that a party sends, with its noise."""
    checks.at_least("parties", parties, 1)
    steps = checks.finite_positive("largest", largest) / checks.finite_positive("step", step) + 1  # it is rounded
    if parties * steps >= _MOST:
        raise ArgumentError(
            f"{parties} parties with values of up to {largest:g} in steps of {step:g} could add up to "
            f"{parties * steps:.3g}, and sums must stay below 2^63: choose a larger step"
        )
