"""Theorem 2: the noise that keeps the directional signal-to-noise ratio of a row under τ.

A row is w₁x + w₂(x' + e) with w₁ ≤ α and noise of variance σ² = r²/d in every direction. For a direction
in which centred records have variance λ,

    SNR = w₁²λ / (w₂²(λ + σ²)) ≤ A λ/(λ + σ²),   A = (α/(1 − α))²,

which grows with λ, so its supremum over directions is at λ_max. The three calibrations bound λ_max
differently: `theorem` by V = E‖x‖², `spectral` not at all, and `energy`, which made the published tables,
by the average V/d: that is no bound, and the guarantee does not hold in every direction. A fourth one bounds nothing
at all: `displacement` is the noise that the published experiments give features; `features.displacement` measures it.
"""

from __future__ import annotations

import math

from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError
from mixveil.core.types import Calibration


def amplification(alpha: float) -> float:
    """A = (α/(1 − α))²: the largest own-to-partner energy ratio of a row.

    >>> round(amplification(0.7), 4)
    5.4444
    """
    return (checks.cap("alpha", alpha) / (1 - alpha)) ** 2


def signal_bound(calibration: Calibration, *, dimension: int, energy: float, lambda_max: float) -> float:
    """The variance of a record in the most revealing direction, as a calibration bounds it."""
    if calibration == "theorem":
        return energy
    if calibration == "spectral":
        return lambda_max
    if calibration == "energy":
        return energy / dimension
    if calibration == "displacement":
        raise ArgumentError(
            "calibration = displacement bounds no variance: its noise is measured, not computed from one"
        )
    raise ArgumentError(f"calibration must be theorem, spectral, energy or displacement, got {calibration!r}")


def noise_variance(tau: float, alpha: float, signal: float) -> float:
    """σ² = r²/d for which A λ/(λ + σ²) ≤ τ whenever λ ≤ signal."""
    checks.fraction("tau", tau)
    if not (math.isfinite(signal) and signal > 0):
        raise ArgumentError(
            f"the records do not vary (largest variance {signal:g}): there is nothing to hide or to learn"
        )
    factor = amplification(alpha) / tau - 1
    if factor <= 0:
        raise ArgumentError(f"tau = {tau:g} holds without any noise at alpha = {alpha:g}: ask for a smaller tau")
    return signal * factor


def directional_snr(lambda_max: float, sigma: float, alpha: float) -> float:
    """sup_u SNR(u) of a row with own weight α: the realised value."""
    if lambda_max <= 0:
        return 0.0
    return amplification(alpha) * lambda_max / (lambda_max + sigma**2)


def worst_directional_snr(clip: float, sigma: float, alpha: float) -> float:
    """The same for the worst possible record, of norm C in one direction, whose partner covers nothing: A(C/σ)². It
    does not depend on any record."""
    return amplification(alpha) * (clip / sigma) ** 2


def mean_directional_snr(lambda_max: float, sigma: float, weight: Tensor) -> float:
    """The same for the average row: E w₁² / E w₂² in place of A. weight: (n, 2)."""
    own, partner = weight.double().square().mean(0).tolist()
    return float(own / partner * lambda_max / (lambda_max + sigma**2)) if lambda_max > 0 else 0.0


def radius_multiple(radius: float, distance: float) -> float:
    """m_f = r/D, the noise as the paper states it."""
    return radius / checks.finite_positive("distance", distance)
