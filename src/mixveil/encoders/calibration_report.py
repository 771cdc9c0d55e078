"""What each calibration of the same data would give away: the figures that their owner should see before encoding.

They are for the owner: those computed from private records never enter a certified manifest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mixveil.core import checks
from mixveil.core.randomness import SeededStream, Stream
from mixveil.core.types import Calibration, Dataset, Fact, Facts, Mu, Target, Tau
from mixveil.core.watching import Watch, unwatched
from mixveil.core.wording.notes import Note, note
from mixveil.data import privacy_units
from mixveil.encoders.calibration import (
    DELTA,
    MEANINGLESS_MU,
    Learnt,
    check_apart,
    exceeded,
    facts_for,
    learnt,
    meaningless,
    noise_between_classes,
    settled_facts,
    watched_moments,
)
from mixveil.encoders.singular import CalibratedSingular, Singular
from mixveil.theory import bayes, gdp, minimax, snr
from mixveil.theory.moments import Moments

FPR = 0.01
_BAYES_ROWS = 1024
_BAYES_DIRECTIONS = 512
_QUANTILES = {"min": 0.0, "q05": 0.05, "q50": 0.5, "q95": 0.95, "max": 1.0}


@dataclass(frozen=True)
class Figures:
    """What one calibration gives, for its owner's eyes. Errors are squared errors a value; know-nothing is V/d.

    realised_snr: of deviations from the mean record; …_with_mean: a bound on it with the mean counted as signal too;
    mean_snr: of the average row instead of the one with the largest weight; lambda_max: the records' own; mu: of a unit
    of unit_rows rows, mu_median: of the median record; minimax: quantiles over records of σ²T_i (Theorem 1), none
    beyond 1e308; …_known_others: against an attacker who knows all other records; bayes_mse: of the best linear
    attacker with the pairing known."""

    calibration: str
    certified: bool
    alpha: float
    clip: float
    radius: float
    radius_multiple: float | None
    sigma: float
    nominal_tau: float
    realised_snr: float
    realised_snr_with_mean: float
    mean_snr: float
    lambda_max: float
    unit_rows: int
    mu: float | None
    mu_median: float | None
    epsilon: float | None
    delta: float
    member_tpr: float
    member_fpr: float
    minimax: dict[str, float | None]
    minimax_log10: dict[str, float | None]
    minimax_known_others: dict[str, float]
    bayes_mse: float
    bayes_mse_single_row: float
    know_nothing_mse: float
    facts: Mapping[str, Fact]


@dataclass(frozen=True)
class Choice:
    """What a certified release at one μ would promise and cost. All of it follows from μ and public figures.

    unit_rows: the most rows that a unit has: μ speaks of all of them; together: the μ of 2, 4 and 10 such releases;
    noise_between_classes: see there; learnt: how much such a release can teach."""

    mu: float
    epsilon: float
    delta: float
    member_tpr: float
    member_fpr: float
    alpha: float
    clip: float
    sigma: float
    unit_rows: int
    together: dict[str, float]
    noise_between_classes: float
    learnt: Learnt


def choices(
    data: Dataset,
    encoder: Singular,
    mus: Sequence[float],
    *,
    public: Dataset | None,
    clip: float | None,
    watch: Watch = unwatched,
) -> list[Choice]:
    """What certified releases at each μ would promise and cost."""
    if not mus:
        return []
    checks.enough_rows(len(data))
    check_apart(data, public)
    facts = settled_facts(data, certified=True, public=public, clip=clip, watch=watch)
    found = []
    for mu in mus:
        ready, _ = encoder.calibrate(Mu(mu), facts)
        sigma, bound = ready.sigma, ready.clip
        found.append(
            Choice(
                mu=mu,
                epsilon=gdp.epsilon(mu, DELTA),
                delta=DELTA,
                member_tpr=gdp.member_tpr(mu, FPR),
                member_fpr=FPR,
                alpha=ready.alpha,
                clip=bound,
                sigma=sigma,
                unit_rows=ready.unit_rows,
                together={str(times): gdp.compose([mu] * times) for times in (2, 4, 10)},
                noise_between_classes=noise_between_classes(sigma, bound, data),
                learnt=learnt(sigma, bound, data),
            )
        )
    return found


def told(choice: Choice) -> Note:
    """A choice, for people to read."""
    units = choice.unit_rows > 1
    figures = {"mu": choice.mu, "epsilon": choice.epsilon, "delta": choice.delta}
    figures |= {"sigma": choice.sigma, "clip": choice.clip, "noise": choice.noise_between_classes}
    together = dict(zip(("two", "four", "ten"), choice.together.values(), strict=True))
    return note(
        "choice-of-mu",
        **figures,
        **together,
        members=note("members-with-units", rows=choice.unit_rows) if units else note("members"),
        alike=note("with-same-labels" if units else "of-same-label"),
        found=100 * choice.member_tpr,
        alarms=100 * choice.member_fpr,
        weak=note("meaningful" if choice.mu < MEANINGLESS_MU else "no-meaningful-guarantee"),
        learnt=note(choice.learnt),
    )


def survey(
    data: Dataset,
    encoder: Singular,
    wanted: Sequence[Target],
    *,
    public: Dataset | None,
    clip: float | None,
    displacement: Fact | None = None,
    seed: int,
    watch: Watch = unwatched,
) -> list[Figures]:
    """The figures of several calibrations of the same data, for an example pairing drawn from the seed."""
    check_apart(data, public)
    moments_of = watched_moments(SeededStream(seed), watch)
    settled: dict[bool, Facts] = {}  # rows without a range are read for it, and only once
    found = []
    for target in wanted:
        certified = isinstance(target, Mu)
        if certified not in settled:
            settled[certified] = settled_facts(data, certified=certified, public=public, clip=clip, watch=watch)
        facts = facts_for(
            target, data, public=public, moments_of=moments_of, displacement=displacement, settled=settled[certified]
        )
        private = moments_of(data, facts)
        found.append(
            figures(encoder, target, facts, len(data), private, privacy_units.numbered(data), stream=SeededStream(seed))
        )
    return found


def figures(
    encoder: Singular,
    target: Target,
    facts: Facts,
    n: int,
    private: Moments,
    belong: Tensor | None = None,
    *,
    stream: Stream,
) -> Figures:
    """Calibrate for a target and compute everything that the owner of n rows should see.

    private: moments of the rows as they enter the mixture (`watched_moments`); belong: (n,) the rows' units."""
    ready, guarantees = encoder.calibrate(target, facts)
    sigma, alpha, clip = ready.sigma, ready.alpha, ready.clip
    radius = sigma * math.sqrt(facts["dimension"])
    trace = ready.plan(n, stream=stream.fork("plan"), units=belong)
    log_minimax = minimax.log_minimax_factors(trace.partner[:, 0], trace.weight) + 2 * math.log(sigma)
    logs = _quantiles(log_minimax)
    claim = ready.claims().get("gdp")
    mu = None if claim is None else claim.nominal
    single, whole = _bayes(ready, private, sigma, n, stream.fork("bayes"))
    return Figures(
        calibration="certified" if isinstance(target, Mu) else target.calibration,
        certified=isinstance(target, Mu),
        alpha=alpha,
        clip=clip,
        radius=radius,
        radius_multiple=snr.radius_multiple(radius, private.distance) if private.distance > 0 else None,
        sigma=sigma,
        nominal_tau=next(g.nominal for g in guarantees if g.name == "directional-snr"),
        realised_snr=ready.directional_snr(private.lambda_max),
        realised_snr_with_mean=ready.directional_snr(private.lambda_max + float(private.mean.square().sum())),
        mean_snr=snr.mean_directional_snr(private.lambda_max, sigma, trace.weight),
        lambda_max=private.lambda_max,
        unit_rows=ready.unit_rows,
        mu=mu,
        mu_median=None if mu is None else float(gdp.mu_records(clip, sigma, trace.weight).median()),
        epsilon=None if mu is None else gdp.epsilon(mu, DELTA),
        delta=DELTA,
        member_tpr=1.0 if mu is None else gdp.member_tpr(mu, FPR),
        member_fpr=FPR,
        minimax={name: math.exp(log) if log < 709 else None for name, log in logs.items()},
        minimax_log10={name: log / math.log(10) if math.isfinite(log) else None for name, log in logs.items()},
        minimax_known_others=_quantiles(minimax.known_others_factors(trace.weight) * sigma**2),
        bayes_mse=whole,
        bayes_mse_single_row=single,
        know_nothing_mse=private.energy / len(private.mean),
        facts=facts.known,
    )


def targets(mu: float | None, tau: float | None, *, features: bool = False) -> list[Target]:
    """What `calibrate` shows: the certified calibration for μ and all three of Theorem 2 for τ; of features also the
    noise that the paper's experiments give them."""
    names: tuple[Calibration, ...] = ("theorem", "spectral", "energy")
    taus: list[Target] = [] if tau is None else [Tau(tau, name) for name in names]
    if tau is not None and features:
        taus.append(Tau(tau, "displacement"))
    return taus + ([] if mu is None else [Mu(mu)])


def _bayes(encoder: CalibratedSingular, found: Moments, sigma: float, n: int, stream: Stream) -> tuple[float, float]:
    """Mean squared error a value of the linear attacker: from one row, and from all with the pairing known.

    Over a plan of up to 1,024 rows: the average row hardly depends on how many there are."""
    trace = encoder.plan(min(n, _BAYES_ROWS), stream=stream)
    single = found.average(bayes.single_row_risk(found.eigenvalues, trace.weight, sigma))
    chunks = [
        bayes.whole_release_risk(part, trace.partner[:, 0], trace.weight, sigma).mean(0)
        for part in torch.split(found.eigenvalues, _BAYES_DIRECTIONS)
    ]
    return single, found.average(torch.cat(chunks)[None])


def _quantiles(values: Tensor) -> dict[str, float]:
    ranked = values.sort().values
    return {name: float(ranked[round(q * (len(ranked) - 1))]) for name, q in _QUANTILES.items()}


def warnings_of(found: list[Figures]) -> list[Note]:
    """What the figures say that an owner could overlook."""
    said = [note("labels-not-protected")]
    for item in found:
        said += exceeded(item.calibration, item.realised_snr, item.nominal_tau, item.alpha)
        if item.certified:
            said += meaningless(item.mu or 0.0)
            continue
        what: list[Note] = []
        if item.mu is None:
            what = [note("sphere-has-no-mu")]
        elif not (what := meaningless(item.mu)) and item.facts["lambda_max"].origin == "private":
            what = [note("noise-from-private-moments", mu=item.mu)]
        said += [note("by-calibration", calibration=item.calibration, what=of) for of in what]
    return said
