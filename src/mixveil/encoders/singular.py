"""Singularized mixup: each record is paired with one other, weighed, and covered by calibrated noise.

    x̃_i = w₁z_i + w₂(z_π(i) + e_i),   ỹ_i = w₁y_i + w₂y_π(i),   z = clip(x − centre)

Formal guarantees
- Asked for μ: every unit (a record, or all rows of a person) is μ-GDP (theory/gdp.py) against whoever knows everything
  else, labels excluded. Nothing computed from the private records enters: centre, clip and σ come from public facts.
- Asked for τ: the directional SNR of a row is at most τ on average over records (theory/snr.py), for the
  calibrations `theorem` and `spectral`; the noise depends on private second moments and is not certified.
- Asked for τ by `displacement`: as much noise as image noise moves features. It keeps no τ; what it realises is stated.
- Labels are mixed, not protected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import NORMAL_BOUND, Stream
from mixveil.core.types import Batch, Cost, Fact, Facts, Guarantee, Mu, Rows, Target, Tau, Trace
from mixveil.encoders.grid import GRID, stored_dtype
from mixveil.encoders.noisy import (
    NO_TARGET,
    calibrated,
    centred,
    check_noise,
    check_settings,
    check_units,
    gdp_conditions,
    prepare,
)
from mixveil.theory import gdp, snr

CERTIFIED_ALPHA = 0.55  # the nearer to one half, the less noise a given μ costs
PAPER_ALPHA = 0.7

# Conditions of a directional SNR, in codes: `core/wording/releases.py` has a sentence for each.
WORST_SNR_CONDITIONS = {"signal": "worst-record", "attacker": "sees-one-row"}
AVERAGE_SNR_CONDITIONS = {"signal": "average-deviation-from-mean", "attacker": "sees-one-row"}
FIXED_POINTS = {"fixed_points": "not-covered"}
NOT_KEPT = frozenset({"energy", "displacement"})
"""The calibrations that do not keep the τ that was asked for."""

FROM_PUBLIC, NOT_REALISED = "no-more-varied-than-public", "realised-not-stated"
"""What moments of public data leave open, where a calibration keeps its τ and where it does not."""


@dataclass(frozen=True)
class Singular:
    """alpha: cap on the weights; noise: `gaussian`, or `sphere` to reproduce the paper; fixed_points: allow
    π(i) = i, as the paper does. The other fields are set by `calibrate`: centre is subtracted from every
    value, clip bounds a record's norm, amplitude its single values, sigma is the noise of one value, unit_rows the
    most rows that one unit has."""

    name: ClassVar[str] = "singular"
    alpha: float | None = None
    noise: Literal["gaussian", "sphere"] = "gaussian"
    fixed_points: bool = False
    centre: float = 0.0
    clip: float | None = None
    amplitude: float | None = None
    sigma: float | None = None
    unit_rows: int = 1

    def __post_init__(self) -> None:
        if self.alpha is not None:
            checks.cap("alpha", self.alpha)
        if self.noise not in ("gaussian", "sphere"):
            raise ArgumentError(f"noise must be gaussian or sphere, got {self.noise!r}")
        check_settings(self)

    @classmethod
    def example(cls) -> Self:
        known = {"dimension": 16.0, "centre": 0.5, "amplitude": 0.5, "clip": 2.0}
        facts = Facts({name: Fact(value, "range") for name, value in known.items()})
        return cls().calibrate(Mu(1.0), facts)[0]

    def calibrate(self, target: Target | None, facts: Facts) -> tuple[Self, tuple[Guarantee, ...]]:
        """A new encoder with its noise. Facts: dimension, centre, amplitude and clip; for τ also lambda_max, and
        energy or, for its own calibration, displacement."""
        if isinstance(target, Mu):
            return self._certify(target, facts)
        if target is None:
            raise ArgumentError(NO_TARGET)
        alpha = PAPER_ALPHA if self.alpha is None else self.alpha
        dimension, lambda_max = int(facts["dimension"]), facts["lambda_max"]
        if target.calibration == "displacement":
            sigma = checks.positive("displacement", facts["displacement"]) / math.sqrt(dimension)
        else:
            signal = snr.signal_bound(
                target.calibration, dimension=dimension, energy=facts["energy"], lambda_max=lambda_max
            )
            sigma = math.sqrt(snr.noise_variance(target.value, alpha, signal))
        encoder = self._with(facts, alpha, sigma)
        return encoder, (encoder._directional(target, facts, lambda_max),)

    def _certify(self, target: Mu, facts: Facts) -> tuple[Self, tuple[Guarantee, ...]]:
        if self.noise == "sphere":
            raise ArgumentError("noise = sphere has no mu: two records lie on different spheres; use gaussian")
        if self.fixed_points:
            raise ArgumentError("fixed_points costs more than mu states: a certified pairing has none")
        alpha = CERTIFIED_ALPHA if self.alpha is None else self.alpha
        for name in ("dimension", "centre", "amplitude", "clip"):
            facts.certified(name)
        encoder = self._with(
            facts, alpha, gdp.sigma_for(target.value / math.sqrt(facts.unit_rows), facts["clip"], alpha)
        )
        origins = {name: facts.origin(name) for name in ("centre", "clip", "amplitude")}
        claims = encoder.claims()
        return encoder, tuple(
            replace(
                claim,
                nominal=target.value if claim.name == "gdp" else claim.nominal,
                assumes={**claim.assumes, **origins},
            )
            for claim in claims.values()
        )

    def _directional(self, target: Tau, facts: Facts, lambda_max: float) -> Guarantee:
        """The realised figure is that of the private records; from public moments it is not known."""
        private = facts.origin("lambda_max") == "private"
        measured = ("displacement",) if target.calibration == "displacement" else ("energy",)
        assumes = {
            "calibration": target.calibration,
            **AVERAGE_SNR_CONDITIONS,
            **{name: facts.origin(name) for name in (*measured, "lambda_max", "centre", "clip", "amplitude")},
        }
        if not private:
            assumes["moments"] = NOT_REALISED if target.calibration in NOT_KEPT else FROM_PUBLIC
        if self.fixed_points:
            assumes |= FIXED_POINTS
        realised = snr.directional_snr(lambda_max, self._sigma, self._alpha) if private else None
        return Guarantee("directional-snr", target.value, realised, assumes)

    def _with(self, facts: Facts, alpha: float, sigma: float) -> Self:
        amplitude, clip = facts["amplitude"], facts["clip"]
        check_noise(sigma)
        encoder = replace(
            self,
            alpha=alpha,
            sigma=sigma,
            centre=facts["centre"],
            clip=clip,
            amplitude=min(amplitude, clip),
            unit_rows=facts.unit_rows,
        )
        if (encoder.index_bound or 0) >= 1 << 31:
            raise ArgumentError(
                f"sigma = {sigma:g} is too small beside values of up to {amplitude:g} to be released on its grid"
            )
        return encoder

    def claims(self) -> Mapping[str, Guarantee]:
        """For any records, once clipped: μ and the worst directional SNR. Nothing where the noise lies on a sphere
        or where fixed points are allowed, whose cost is not counted."""
        cost = self.cost()
        if cost is None:
            return {}
        mu = cost.of(self.unit_rows)
        tau = snr.worst_directional_snr(self._clip, self._sigma, self._alpha)
        return {
            "gdp": Guarantee("gdp", mu, mu, gdp_conditions(self.unit_rows)),
            "directional-snr": Guarantee("directional-snr", tau, tau, WORST_SNR_CONDITIONS),
        }

    def cost(self) -> Cost | None:
        if self.noise != "gaussian" or self.fixed_points:
            return None
        return Cost(
            gdp.mu_worst(self._clip, self._sigma, self._alpha),
            gdp.mu_together(self._clip, self._sigma, self._alpha),
            0.5,
        )

    def possible_labels(self, y: Tensor) -> Tensor:
        """One class, or two with both shares in [1 − α, α]: others would prove a weight beyond the cap."""
        shares = y.double()
        least = torch.where(shares > 0, shares, 1.0).amin(1)
        slack = 1e-6  # labels are float32
        two = ((y > 0).sum(1) == 2) & (shares.amax(1) <= self._alpha + slack) & (least >= 1 - self._alpha - slack)
        return two | ((y > 0).sum(1) == 1)

    @property
    def step(self) -> float | None:
        return self._sigma * GRID if self.noise == "gaussian" else None

    @property
    def index_bound(self) -> int | None:
        """(amplitude + α·9.35σ)/step: the mixed values, and the largest noise that a stream can draw."""
        if self.noise != "gaussian":
            return None
        amplitude = calibrated(self, "amplitude")
        return math.ceil((amplitude / self._sigma + self._alpha * NORMAL_BOUND) / GRID) + 1

    def plan(self, n: int, *, stream: Stream, units: Tensor | None = None) -> Trace:
        checks.enough_rows(n)
        check_units(self, n, units)
        pairing = stream.fork("pairing")
        if self.fixed_points:
            partner = pairing.permutation(n)
        else:
            partner = pairing.derangement(n) if units is None else pairing.apart(units)
        weight = stream.fork("weights").capped_weights(n, self._alpha)
        return Trace(partner=partner[:, None], weight=weight)

    def encode(self, rows: Rows, index: Tensor, trace: Trace, *, stream: Stream) -> Batch:
        own, other = rows.take(index), rows.take(trace.partner[index, 0])
        weight = trace.weight[index]
        own_weight, other_weight = weight.double().T[:, :, None] / (self.step or 1)  # in steps of the grid
        x = self._noise(len(index), own.x[0].numel(), stream).mul_(other_weight)
        for source, share in ((other, other_weight), (own, own_weight)):
            z, factor = centred(source.x, self.centre, self._clip)
            x.addcmul_(z, factor * share)
        y = own.y * weight[:, :1] + other.y * weight[:, 1:]
        return Batch(self._store(x).view(own.x.shape), y)

    def prepare(self, x: Tensor) -> Tensor:
        """(m, d) float64: centred, and scaled down to norm `clip` where it is longer."""
        return prepare(x, self.centre, self._clip)

    def restore(self, z: Tensor) -> Tensor:
        return z + self.centre

    def deviation(self, weight: Tensor) -> Tensor:
        return weight.double()[:, 1] * self._sigma

    def _noise(self, m: int, d: int, stream: Stream) -> Tensor:
        radius = self._sigma * math.sqrt(d)
        return stream.gaussian(m, d, radius) if self.noise == "gaussian" else stream.sphere(m, d, radius)

    def _store(self, x: Tensor) -> Tensor:
        bound = self.index_bound
        if bound is None:
            return x.float()
        return x.round_().clamp_(-bound, bound).to(stored_dtype(bound))

    @property
    def _sigma(self) -> float:
        return calibrated(self, "sigma")

    @property
    def _alpha(self) -> float:
        return calibrated(self, "alpha")

    @property
    def _clip(self) -> float:
        return calibrated(self, "clip")
