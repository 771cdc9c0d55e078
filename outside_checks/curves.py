"""(ε, δ) of a μ: `theory.gdp` against dp-accounting and OpenDP.

- dp-accounting's closed form of the Gaussian mechanism is exact: ours must equal it.
- Its privacy-loss distributions are discretised: rounded up they are upper bounds, rounded down lower bounds, and ours
  must lie between them. They compose by convolution, not by a formula.
- OpenDP's curve comes from zero-concentrated DP, ρ = μ²/2: an upper bound for all mechanisms of that ρ, with a gap.
- The mechanism that is released rounds to integers. Its privacy loss is computed from its exact cells: rounding is
  post-processing, so ours must be at least that.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import opendp.prelude as opendp
from dp_accounting import get_epsilon_gaussian
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
from scipy.special import ndtr

from mixveil.core.types import Mu
from mixveil.encoders.gaussian import Gaussian
from mixveil.encoders.noisy import EXAMPLE
from mixveil.theory import gdp
from outside_checks.lines import Fault, Line, fault

_MUS = (0.1, 0.5, 1.0, 2.0, 5.0)
_DELTAS = (1e-3, 1e-5, 1e-9)
_PARTS = ((1.0,) * 16, (0.3, 0.4, 1.2), (0.1,) * 100)
_EXACT = 1e-9  # relative: both sides round
_WIDTH = 1e-4  # of a cell of privacy losses
_STEPS = 1024  # grid steps in one σ


@dataclass(frozen=True)
class Formulas:
    """What is checked; a planted fault puts another one in."""

    epsilon: Callable[[float, float], float] = gdp.epsilon
    delta: Callable[[float, float], float] = gdp.delta
    compose: Callable[[Iterable[float]], float] = gdp.compose
    taken_out: Callable[[float, float], float] = gdp.taken_out
    replaced: Callable[[float, float], tuple[float, float]] = gdp.replaced


OURS = Formulas()


def lines(formulas: Formulas = OURS) -> list[Line]:
    logging.getLogger().setLevel(logging.ERROR)  # dp-accounting says which of its two roundings cannot be used
    return [
        *_closed_forms(formulas),
        *_composed(formulas),
        *_taken_out(formulas),
        *_replaced(formulas),
        *_concentrated(formulas),
        *_rounded(formulas),
    ]


def faults() -> list[Fault]:
    planted = {
        "epsilon of 0.999 μ": replace(OURS, epsilon=lambda mu, delta: gdp.epsilon(0.999 * mu, delta)),
        "delta with its second term doubled": replace(
            OURS, delta=lambda mu, epsilon: float(ndtr(-epsilon / mu + mu / 2) - 2 * _second_term(mu, epsilon))
        ),
        "composition by the largest μ": replace(OURS, compose=lambda mus: max(mus)),
        "one record out at half of μ, whatever the share": replace(OURS, taken_out=lambda mu, share: mu / 2),
        "one record replaced at (2ε, 2δ)": replace(OURS, replaced=lambda epsilon, delta: (2 * epsilon, 2 * delta)),
    }
    return [fault(case, lambda formulas=formulas: lines(formulas)) for case, formulas in planted.items()]  # type: ignore[misc]


def _second_term(mu: float, epsilon: float) -> float:
    """e^ε Φ(−ε/μ − μ/2)."""
    return math.exp(epsilon) * float(ndtr(-epsilon / mu - mu / 2))


def _closed_forms(formulas: Formulas) -> list[Line]:
    found = []
    for mu in _MUS:
        loss = GaussianPrivacyLoss(1 / mu)
        for delta in _DELTAS:
            exact = get_epsilon_gaussian(1 / mu, delta)
            slack = _EXACT * max(1.0, exact)
            ours = formulas.epsilon(mu, delta)
            found.append(Line(f"ε of μ = {mu:g}, δ = {delta:g}", ours, "=", exact, slack, "dp-accounting, exact"))
        for epsilon in (0.5 * mu, 3 * mu):
            exact = loss.get_delta_for_epsilon(epsilon)
            ours = formulas.delta(mu, epsilon)
            case = f"δ of μ = {mu:g}, ε = {epsilon:g}"
            found.append(Line(case, ours, "=", exact, _EXACT * exact, "dp-accounting, exact"))
    return found


def _composed(formulas: Formulas) -> list[Line]:
    found = []
    for parts in _PARTS:
        name = f"{len(parts)} × {parts[0]:g}" if len({*parts}) == 1 else ", ".join(f"{mu:g}" for mu in parts)
        ours = formulas.epsilon(formulas.compose(parts), 1e-5)
        found += _between(f"ε of μ = {name} together", ours, parts)
    return found


def _between(case: str, ours: float, parts: Sequence[float], delta: float = 1e-5) -> list[Line]:
    """Ours between the two roundings of a composed privacy-loss distribution."""
    bounds = {}
    for upper in (False, True):
        kinds = {
            mu: pld.from_gaussian_mechanism(
                1 / mu, value_discretization_interval=_WIDTH, pessimistic_estimate=upper, use_connect_dots=upper
            ).self_compose(parts.count(mu))
            for mu in {*parts}
        }
        whole, *others = kinds.values()
        for other in others:
            whole = whole.compose(other)
        bounds[upper] = whole.get_epsilon_for_delta(delta)
    return [
        Line(case, ours, ">=", bounds[False], 0.0, "dp-accounting PLD, lower bound"),
        Line(case, ours, "<=", bounds[True], 1e-6, "dp-accounting PLD, upper bound"),
    ]


def _taken_out(formulas: Formulas) -> list[Line]:
    """Class sums at s of μ² and residual sums at the rest, each calibrated for a replacement: noise 2C/μ. Taking a
    record out moves a class sum by √2 C and a residual sum by C."""
    found = []
    for mu, share in ((1.0, 0.2), (2.0, 0.7)):
        first, second = mu * math.sqrt(share), mu * math.sqrt(1 - share)
        parts = [math.sqrt(2) / (2 / first), 1 / (2 / second)]
        ours = formulas.epsilon(formulas.taken_out(mu, share), 1e-5)
        found += _between(f"ε of one record out, μ = {mu:g}, share {share:g}", ours, parts)
    return found


def _replaced(formulas: Formulas) -> list[Line]:
    """A conversion for any mechanism: ours is an upper bound of what the Gaussian one really has, twice the μ."""
    found = []
    for mu in (0.3, 0.6, 1.5):
        for delta in (1e-3, 1e-5):
            epsilon, converted = formulas.replaced(gdp.epsilon(mu, delta), delta)
            exact = GaussianPrivacyLoss(1 / (2 * mu)).get_delta_for_epsilon(epsilon)
            case = f"δ of one record replaced, μ = {mu:g} for one out, ε = {epsilon:.3g}"
            found.append(Line(case, converted, ">=", exact, 0.0, "dp-accounting, exact; ours is an upper bound"))
    return found


def _concentrated(formulas: Formulas) -> list[Line]:
    opendp.enable_features("contrib")
    found = []
    space = opendp.vector_domain(opendp.atom_domain(T=int)), opendp.l2_distance(T=float)
    for mu in _MUS:
        encoder, _ = Gaussian().calibrate(Mu(mu), EXAMPLE)
        noise = space >> opendp.m.then_gaussian(scale=encoder.sigma / encoder.step)
        moved = 2 * encoder.clip / encoder.step  # by one record replaced, in steps of the grid
        rho = noise.map(moved)
        found.append(Line(f"ρ of records at μ = {mu:g}", mu**2 / 2, "=", rho, _EXACT * rho, "OpenDP, exact"))
        curve = opendp.c.make_zCDP_to_approxDP(noise).map(moved)
        for delta in _DELTAS:
            ours = formulas.epsilon(mu, delta)
            case = f"ε of μ = {mu:g}, δ = {delta:g}"
            found.append(Line(case, ours, "<=", curve.epsilon(delta), 0.0, "OpenDP from zCDP, upper bound"))
    return found


def _rounded(formulas: Formulas) -> list[Line]:
    """Integers of σ = 1,024 steps, moved by whole steps, as dp-accounting computes the loss of any two laws."""
    found = []
    for mu in (0.5, 1.0, 2.0):
        shift = round(mu * _STEPS)
        here = _log_cells(_STEPS, 14 * _STEPS)
        laws = [{i: here[abs(i - move)] for i in range(-8 * _STEPS, 8 * _STEPS + shift)} for move in (0, shift)]
        whole = pld.from_two_probability_mass_functions(
            *laws, value_discretization_interval=_WIDTH, pessimistic_estimate=False
        )
        theirs = whole.get_epsilon_for_delta(1e-5)
        case = f"ε of rounded integers, μ = {mu:g}, δ = 1e-05"
        found.append(Line(case, formulas.epsilon(mu, 1e-5), ">=", theirs, 0.0, "dp-accounting PLD, lower bound"))
    return found


def _log_cells(scale: float, largest: int) -> list[float]:
    """log P(round(scale · N) = i) for i = 0 … largest, by the upper tails, which lose nothing."""
    tails = ndtr(-(np.arange(largest + 2) - 0.5) / scale)
    found: list[float] = np.log(tails[:-1] - tails[1:]).tolist()
    return found
