"""DP-SGD: the noise that mixveil takes from Opacus's accountant, counted again by dp-accounting.

Both compose privacy losses of the Poisson-subsampled Gaussian mechanism, for one record taken out or put in. Opacus may
err by a tolerance; dp-accounting's losses are rounded down, a lower bound of ε, and up, an upper bound. The stated ε
must be at least the lower bound, or the claim is false; where it is at least the upper bound too, dp-accounting would
have certified it.
"""

from __future__ import annotations

from collections.abc import Callable

from dp_accounting.pld import privacy_loss_distribution as pld

from mixveil.federated.dpsgd import noise_multiplier
from outside_checks.lines import Fault, Line, fault

Multiplier = Callable[[float, float, float, int], float]
_CASES = ((1.0, 256 / 20_000, 800), (4.0, 256 / 5_000, 400), (8.0, 256 / 1_000, 60), (2.0, 1.0, 10))
_DELTA = 1e-5
_ROUNDED_UP = 1e-6  # by which the upper bound may be too large: where all rows are in a step, ours is exact


def lines(multiplier: Multiplier = noise_multiplier) -> list[Line]:
    found = []
    for epsilon, share, steps in _CASES:
        noise = multiplier(epsilon, _DELTA, share, steps)
        case = f"ε of {steps} steps, share {share:.3g}, noise {noise:.4g}"
        for upper, kind, slack in ((False, "lower", 0.0), (True, "upper", _ROUNDED_UP)):
            theirs = _epsilon(noise, share, steps, upper=upper)
            found.append(Line(case, epsilon, ">=", theirs, slack, f"dp-accounting PLD, {kind} bound"))
    return found


def faults() -> list[Fault]:
    return [fault("0.97 of the noise", lambda: lines(lambda *settings: 0.97 * noise_multiplier(*settings)))]


def _epsilon(noise: float, share: float, steps: int, *, upper: bool) -> float:
    whole = pld.from_gaussian_mechanism(
        noise,
        sampling_prob=share,
        value_discretization_interval=1e-4,
        pessimistic_estimate=upper,
        use_connect_dots=upper,
    ).self_compose(steps)
    return float(whole.get_epsilon_for_delta(_DELTA))
