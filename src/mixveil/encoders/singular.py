"""Singularized mixup: each record is paired with one other, weighed, and covered by calibrated noise.

    x̃_i = w₁z_i + w₂(z_π(i) + e_i),   ỹ_i = w₁y_i + w₂y_π(i),   z = clip(x − centre)

Formal guarantees
- Asked for μ: every unit (a record, or all rows of a person) is μ-GDP (theory/gdp.py) against an attacker who knows all
  else, labels excluded. Nothing computed from the private records enters: centre, clip and σ come from public facts.
- Asked for τ: the directional SNR of a row is at most τ on average over records (theory/snr.py), for the
  calibrations `theorem` and `spectral`; the noise depends on private second moments and is not certified.
- Asked for τ by `displacement`: as much noise as image noise moves features. It keeps no τ; what it realises is stated.
- Labels are mixed, not protected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import NORMAL_BOUND, Stream
from mixveil.core.types import Batch, Cost, Encoder, Facts, Guarantee, Mu, NoiseLaw, PublicUse, Rows, Target, Tau, Trace
from mixveil.encoders.grid import GRID
from mixveil.encoders.noisy import EXAMPLE, NO_TARGET, Noisy, certified, check_noise, gdp_conditions, on_grid
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
    """What its owner chooses: alpha, the cap on the weights (None: 0.55 where a μ is asked for, 0.7 where a τ is);
    noise, `sphere` to reproduce the paper; fixed_points, to allow π(i) = i as the paper does."""

    name: ClassVar[str] = "singular"
    targets: ClassVar[tuple[type[Target], ...]] = (Mu, Tau)
    needs_facts: ClassVar[bool] = True
    public_use: ClassVar[PublicUse | None] = "facts"
    alpha: float | None = None
    noise: Literal["gaussian", "sphere"] = "gaussian"
    fixed_points: bool = False

    def __post_init__(self) -> None:
        if self.alpha is not None:
            checks.cap("alpha", self.alpha)
        _check_noise_name(self.noise)

    @classmethod
    def ready(cls) -> type[Encoder]:
        return CalibratedSingular

    @classmethod
    def example(cls) -> CalibratedSingular:
        return cls().calibrate(Mu(1.0), EXAMPLE)[0]

    def calibrate(self, target: Target | None, facts: Facts) -> tuple[CalibratedSingular, tuple[Guarantee, ...]]:
        """A new encoder with its noise. Facts: dimension, centre, amplitude and clip; for τ also lambda_max, and
        energy or, for its own calibration, displacement."""
        if isinstance(target, Mu):
            return self._certify(target, facts)
        if not isinstance(target, Tau):
            raise ArgumentError(NO_TARGET if target is None else f"target must be Mu(…) or Tau(…), got {target!r:.60}")
        alpha = PAPER_ALPHA if self.alpha is None else self.alpha
        dimension, lambda_max = int(facts["dimension"]), facts["lambda_max"]
        if target.calibration == "displacement":
            sigma = checks.finite_positive("displacement", facts["displacement"]) / math.sqrt(dimension)
        else:
            signal = snr.signal_bound(
                target.calibration, dimension=dimension, energy=facts["energy"], lambda_max=lambda_max
            )
            sigma = math.sqrt(snr.noise_variance(target.value, alpha, signal))
        encoder = self._with(facts, alpha, sigma)
        return encoder, (self._directional(target, facts, encoder.directional_snr(lambda_max)),)

    def _certify(self, target: Mu, facts: Facts) -> tuple[CalibratedSingular, tuple[Guarantee, ...]]:
        if self.noise == "sphere":
            raise ArgumentError("noise = sphere has no mu: two records lie on different spheres; use gaussian")
        if self.fixed_points:
            raise ArgumentError("fixed_points costs more than mu states: a certified pairing has none")
        alpha = CERTIFIED_ALPHA if self.alpha is None else self.alpha
        sigma = gdp.sigma_for(target.value / math.sqrt(facts.unit_rows), facts["clip"], alpha)
        encoder = self._with(facts, alpha, sigma)
        return encoder, certified(encoder, target, facts)

    def _directional(self, target: Tau, facts: Facts, realised: float) -> Guarantee:
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
        return Guarantee("directional-snr", target.value, realised if private else None, assumes)

    def _with(self, facts: Facts, alpha: float, sigma: float) -> CalibratedSingular:
        amplitude, clip = facts["amplitude"], facts["clip"]
        check_noise(sigma)
        encoder = CalibratedSingular(
            alpha=alpha,
            noise=self.noise,
            fixed_points=self.fixed_points,
            sigma=sigma,
            centre=facts["centre"],
            clip=clip,
            amplitude=min(amplitude, clip),
            unit_rows=facts.unit_rows,
        )
        if encoder.index_bound is not None and encoder.index_bound >= 1 << 31:
            raise ArgumentError(
                f"sigma = {sigma:g} is too small beside values of up to {amplitude:g} to be released on its grid"
            )
        return encoder


@dataclass(frozen=True, kw_only=True)
class CalibratedSingular(Noisy):
    """`Singular` with its noise. sigma is that of one value of a partner, before it is weighed."""

    sources: ClassVar[int] = 2
    alpha: float
    noise: Literal["gaussian", "sphere"] = "gaussian"
    fixed_points: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.cap("alpha", self.alpha)
        _check_noise_name(self.noise)

    @property
    def name(self) -> str:
        return Singular.name

    @property
    def scheme(self) -> Singular:
        return Singular(self.alpha, self.noise, self.fixed_points)

    @property
    def law(self) -> NoiseLaw:
        return self.noise

    @property
    def tau_conditions(self) -> Mapping[str, str]:
        return {**AVERAGE_SNR_CONDITIONS, **(FIXED_POINTS if self.fixed_points else {})}

    def directional_snr(self, lambda_max: float) -> float:
        return snr.directional_snr(lambda_max, self.sigma, self.alpha)

    def claims(self) -> Mapping[str, Guarantee]:
        """For any records, once clipped: μ and the worst directional SNR. Nothing where the noise lies on a sphere
        or where fixed points are allowed, whose cost is not counted."""
        cost = self.cost()
        if cost is None:
            return {}
        mu = cost.of(self.unit_rows)
        tau = snr.worst_directional_snr(self.clip, self.sigma, self.alpha)
        return {
            "gdp": Guarantee("gdp", mu, mu, gdp_conditions(self.unit_rows)),
            "directional-snr": Guarantee("directional-snr", tau, tau, WORST_SNR_CONDITIONS),
        }

    def cost(self) -> Cost | None:
        if self.noise != "gaussian" or self.fixed_points:
            return None
        return Cost(
            gdp.mu_worst(self.clip, self.sigma, self.alpha), gdp.mu_together(self.clip, self.sigma, self.alpha), 0.5
        )

    def possible_labels(self, y: Tensor) -> Tensor:
        """One class, or two with both shares in [1 − α, α]: others would prove a weight beyond the cap."""
        shares = y.double()
        least = torch.where(shares > 0, shares, 1.0).amin(1)
        slack = 1e-6  # labels are float32
        two = ((y > 0).sum(1) == 2) & (shares.amax(1) <= self.alpha + slack) & (least >= 1 - self.alpha - slack)
        return two | ((y > 0).sum(1) == 1)

    @property
    def step(self) -> float | None:
        return self.sigma * GRID if self.noise == "gaussian" else None

    @property
    def index_bound(self) -> int | None:
        """(amplitude + α·9.35σ)/step: the mixed values, and the largest noise that a stream can draw."""
        if self.noise != "gaussian":
            return None
        return math.ceil((self.amplitude / self.sigma + self.alpha * NORMAL_BOUND) / GRID) + 1

    def plan(self, n: int, *, stream: Stream, units: Tensor | None = None) -> Trace:
        checks.enough_rows(n)
        self.check_units(n, units)
        pairing = stream.fork("pairing")
        if self.fixed_points:
            partner = pairing.permutation(n)
        else:
            partner = pairing.derangement(n) if units is None else pairing.derangement_across_units(units)
        weight = stream.fork("weights").capped_weights(n, self.alpha)
        return Trace(partner=partner[:, None], weight=weight)

    def encode(self, rows: Rows, index: Tensor, trace: Trace, *, stream: Stream) -> Batch:
        own, other = rows.take(index), rows.take(trace.partner[index, 0])
        weight = trace.weight[index]
        y = own.y * weight[:, :1] + other.y * weight[:, 1:]
        shares = weight.double().T.contiguous()
        if self.noise == "gaussian":
            most = max(self.alpha, 0.5)
            return Batch(on_grid(self, [own.x, other.x], list(shares), shares[1], most, stream), y)
        x = self._on_sphere(len(index), own.x[0].numel(), stream).mul_(shares[1][:, None])
        for source, share in ((other, shares[1]), (own, shares[0])):
            x.addcmul_(self.prepare(source.x), share[:, None])
        return Batch(x.float().view(own.x.shape), y)

    def deviation(self, weight: Tensor) -> Tensor:
        return weight.double()[:, 1] * self.sigma

    def _on_sphere(self, m: int, d: int, stream: Stream) -> Tensor:
        return stream.sphere(m, d, self.sigma * math.sqrt(d))


def _check_noise_name(noise: str) -> None:
    if noise not in ("gaussian", "sphere"):
        raise ArgumentError(f"noise must be gaussian or sphere, got {noise!r}")
