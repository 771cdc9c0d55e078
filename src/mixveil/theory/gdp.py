"""Gaussian differential privacy of a release: one record replaced by another with the same label.

Records are clipped to ‖z‖ ≤ C and the pairing is a derangement drawn without looking at them. Replacing
record i moves its own row by w₁Δ under noise w₂σ, and its partner's row by w₂Δ under noise w₂σ, ‖Δ‖ ≤ 2C:

    μ_i = (2C/σ) √((w₁/w₂)² + 1) ≤ (2C/σ) √((α/(1 − α))² + 1).

m rows of one person, none of them paired with another, move 2m rows at most, each under noise of its own: √m times as
much. Where they may be paired with one another, a row moves by (w₁ + w₂)·2C, and (2C/σ) √m/(1 − α) covers all cases.

Every μ that is stated here is larger by the relative margin 2⁻⁴⁰ than the formula's, and every σ likewise: so float64's
rounding, in the formulas and in the weights and coefficients of a mixture, never makes a figure too small.

This holds against an attacker who knows everything else. It says nothing of labels, nor of adding or removing a record,
and it needs Gaussian noise: noise on a sphere puts two records on different spheres, which an attacker can tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from scipy.special import erfcx, ndtr, ndtri
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError
from mixveil.theory.snr import amplification

MARGIN = 2.0**-40
"""By how much more μ is stated, or noise is added, than the formulas say: a thousand times what float64 rounds."""


def mu_of(distance: float, sigma: float) -> float:
    """μ of Gaussian noise σ on what moves by at most `distance`: never too small."""
    return distance / checks.finite_positive("sigma", sigma) * (1 + MARGIN)


def sigma_of(distance: float, mu: float) -> float:
    """The noise that makes what moves by at most `distance` μ-GDP.

    >>> mu_of(3.0, sigma_of(3.0, 0.5)) == 0.5
    True
    """
    return distance / checks.finite_positive("mu", mu) * (1 + MARGIN)


def record_factor(alpha: float) -> float:
    """√((α/(1 − α))² + 1): the noise that mixing needs, over plain noise on one record, at the largest weight."""
    return math.sqrt(amplification(alpha) + 1)


def mu_worst(clip: float, sigma: float, alpha: float) -> float:
    """μ of every record, for any weights under the cap α."""
    return _sensitivity(clip, sigma) * record_factor(alpha)


def mu_together(clip: float, sigma: float, alpha: float) -> float:
    """(2C/σ)/(1 − α): times √m, the μ of m records of one unit, for any pairing."""
    return _sensitivity(clip, sigma) / (1 - checks.cap("alpha", alpha))


def mu_records(clip: float, sigma: float, weight: Tensor) -> Tensor:
    """(n,) μ of each record. weight: (n, 2) as drawn, own weight first."""
    own, partner = weight.double().unbind(1)
    return _sensitivity(clip, sigma) * (own / partner).square().add(1).sqrt()


def sigma_for(mu: float, clip: float, alpha: float) -> float:
    """The noise that makes every record μ-GDP.

    >>> round(mu_worst(3.0, sigma_for(0.5, 3.0, 0.55), 0.55), 12)
    0.5
    """
    return sigma_of(2 * checks.finite_positive("clip", clip), mu) * record_factor(alpha)


def compose(mus: Iterable[float]) -> float:
    """μ of several releases of the same record: √Σμ²."""
    return math.hypot(*mus)


def delta(mu: float, epsilon: float) -> float:
    """The smallest δ for which μ-GDP is (ε, δ)-DP: Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2).

    As e^ε φ(−ε/μ − μ/2) = φ(−ε/μ + μ/2), both terms are that density times a Mills ratio, which neither
    overflows nor loses the tails.
    """
    checks.finite_positive("mu", mu)
    upper, lower = -epsilon / mu + mu / 2, -epsilon / mu - mu / 2
    density = math.exp(-(upper**2) / 2) / math.sqrt(2 * math.pi)
    first = float(ndtr(upper)) if upper > 0 else density * _mills(-upper)
    return max(0.0, first - density * _mills(-lower))


def epsilon(mu: float, delta_: float = 1e-5) -> float:
    """The smallest ε ≥ 0 for which μ-GDP is (ε, δ)-DP, by bisection from above: the result is never too small.

    >>> [round(epsilon(mu), 1) for mu in (0.5, 1, 2)]
    [2.0, 4.4, 10.0]
    """
    checks.probability("delta", delta_)
    if delta(mu, 0.0) <= delta_:
        return 0.0
    low, high = 0.0, mu * mu / 2 + mu * 40  # beyond 40 deviations nothing is left
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if delta(mu, middle) <= delta_ else (middle, high)
    return high


def taken_out(mu: float, share: float) -> float:
    """μ for one record taken out, of sums that are μ-GDP for one record replaced, its label with it.

    Out means that the record's contribution is zero; the number of records is public. share: of μ² that class sums
    have; residual sums have the rest. The noise of each is that of a replacement, 2C/μ for contributions of norm C.
    A class sum carries a record and a count of the same weight, norm √2 C instead of 2C: μ/√2. A residual sum carries
    a clipped gradient, norm C instead of 2C: μ/2. Together √(s μ²/2 + (1 − s) μ²/4).

    >>> round(taken_out(1.0, 0.2), 3)
    0.548
    """
    checks.finite_positive("mu", mu)
    if not 0 <= share <= 1:
        raise ArgumentError(f"share must be in [0, 1], got {share}")
    return mu * math.sqrt(share / 2 + (1 - share) / 4)


def replaced(epsilon_: float, delta_: float) -> tuple[float, float]:
    """(2ε, (1 + e^ε) δ): for one record replaced by another, of what is (ε, δ)-DP for one record taken out. It is an
    upper bound: one record out, and one in. δ is 1 at most, which promises nothing.

    >>> replaced(0.0, 1e-5)
    (0.0, 2e-05)
    """
    if not 0 <= epsilon_ < math.inf:
        raise ArgumentError(f"epsilon must be finite and not negative, got {epsilon_}")
    checks.probability("delta", delta_)
    return 2 * epsilon_, min(1.0, (1 + math.exp(min(epsilon_, 700.0))) * delta_)


def member_tpr(mu: float, fpr: float) -> float:
    """The best true-positive rate of any membership test at that false-positive rate: Φ(Φ⁻¹(FPR) + μ). False alarms
    are counted among those that could replace a record: of releases that show labels, others of the same label.

    >>> round(member_tpr(1.0, 0.01), 4)
    0.0924
    """
    if mu < 0 or math.isnan(mu):
        raise ArgumentError(f"mu must not be negative, got {mu}")
    checks.probability("fpr", fpr)
    return float(ndtr(ndtri(fpr) + mu))


def _sensitivity(clip: float, sigma: float) -> float:
    """2C/σ: how far replacing a record moves a row, in units of its noise."""
    return mu_of(2 * checks.finite_positive("clip", clip), sigma)


def _mills(x: float) -> float:
    """Φ(−x)/φ(x), for any x ≥ 0."""
    return math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))
