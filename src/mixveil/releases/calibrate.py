"""What a release would promise and cost, before there is one, as a whole job. Only features are kept on disk, and
nothing is entered in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from mixveil.core import checks
from mixveil.core.errors import ArgumentError, MissingFactError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Cost, Mu
from mixveil.core.watching import Watch, unwatched
from mixveil.core.wording.notes import Note, note
from mixveil.data.images import Images
from mixveil.data.opening import DataOptions, DataSpec, open_both
from mixveil.encoders import calibration, calibration_report
from mixveil.encoders.calibration_report import Choice, Figures
from mixveil.encoders.singular import PAPER_ALPHA, Singular
from mixveil.features.cache import Features
from mixveil.features.displacement import Displacement, Normalisation
from mixveil.features.extractor import Extractor
from mixveil.features.opening import FeatureOptions, chosen_extractor
from mixveil.releases import accounting
from mixveil.releases.encode import displacement_fact, measured
from mixveil.releases.ledger import Ledger
from mixveil.releases.spending import Standing
from mixveil.theory import gdp
from mixveil.theory.snr import amplification, directional_snr


@dataclass(frozen=True)
class CalibrationReport:
    """What releases of some data would promise and cost, for their owner's eyes.

    Attributes:
        rows: What would be released: the images, or features of them.
        choices: What a certified release at each μ would promise and cost; from μ and public figures alone.
        figures: Every figure of every calibration; those for τ depend on the records.
        displacements: How far image noise moves features, each with the directional SNR that the features realise.
        standing: What the ledger says of these records, with one more release where one μ is asked for; None where
            there is no ledger.
    """

    images: Images
    rows: Images | Features
    extractor: Extractor | None
    choices: tuple[Choice, ...]
    figures: tuple[Figures, ...]
    displacements: tuple[dict[str, float], ...]
    standing: Standing | None
    warnings: tuple[Note, ...]


def calibrate(
    data: DataSpec,
    *,
    mu: float | Sequence[float] | None = None,
    tau: float | None = None,
    alpha: float | None = None,
    noise: Literal["gaussian", "sphere"] | None = None,
    clip: float | None = None,
    public: DataSpec | None = None,
    seed: int = 0,
    backbone: str | None = None,
    stage: str | None = None,
    mirror: bool = False,
    normalisation: Normalisation | None = None,
    figures: bool = False,
    options: DataOptions | None = None,
    cache: Path | str | None = None,
    ledger: Ledger | None = None,
    watch: Watch = unwatched,
) -> CalibrationReport:
    """What a release would promise and cost, before there is one. For the owner of the data alone.

    Args:
        mu: Certified guarantees to choose from; what is said of them does not depend on a record.
        tau: Theorem 2's directional SNR, with every figure of every calibration. With neither: μ = 1 and τ = 0.1.
        seed: Of the example pairing that the figures are shown for.
        figures: Compute the figures for μ alone too, which depend on the records.

    The others are those of `mixveil.encode`.
    """
    options, ledger = options or DataOptions(), ledger or Ledger()
    extractor = chosen_extractor(backbone, stage, mirror)
    if normalisation is not None and extractor is None:
        raise ArgumentError(f"normalisation = {normalisation} is of the noise behind features: name a backbone")
    mus = _several(mu)
    unbounded = extractor is not None and clip is None and public is None
    if unbounded and mus:
        raise MissingFactError(calibration.UNBOUNDED)
    left_out = unbounded and tau is None and noise != "sphere"
    if not mus and tau is None:
        mus, tau = ([] if noise == "sphere" or unbounded else [1.0]), 0.1
    wanted = [*calibration_report.targets(None, tau, features=extractor is not None), *map(Mu, mus)]
    encoder = Singular(alpha=alpha, noise=noise or "gaussian")
    images, known = open_both(data, public, options)
    rows: Images | Features = images
    others: Images | Features | None = known
    moved: list[Displacement] = []
    if extractor is not None:
        features = FeatureOptions(options, cache, watch)
        loaded = features.load(extractor)
        if tau is not None:
            noisy, taus = images if known is None else known, _compared(tau, alpha)
            moved = measured(noisy, loaded, taus, alpha, normalisation, stream=SeededStream(seed), watch=watch)
        rows = features.of(images, loaded)
        others = None if known is None else features.of(known, loaded)
    choices = calibration_report.choices(rows, encoder, mus, public=others, clip=clip, watch=watch)
    found: list[Figures] = []
    if figures or tau is not None:  # for μ alone no record is looked at
        far = displacement_fact(moved[-1] if moved else None, known)
        found = calibration_report.survey(
            rows, encoder, wanted, public=others, clip=clip, displacement=far, seed=seed, watch=watch
        )
    warnings = [*rows.warnings(), *calibration_report.warnings_of(found)]
    if left_out:
        warnings.append(note("certified-left-out"))
    drowned = [
        note("at-mu", mu=choice.mu, what=told)
        for choice in choices
        for told in calibration.drowned(choice.sigma, choice.clip, rows)
    ]
    owners = accounting.known_owners(ledger, images, watch)
    standing = None if owners is None else ledger.standing(owners, _planned(choices))
    beside, told = tuple(_side_by_side(moved, found)), (*warnings, *drowned[-1:])
    return CalibrationReport(images, rows, extractor, tuple(choices), tuple(found), beside, standing, told)


def displacement_notes(side: Sequence[dict[str, Any]], alpha: float | None) -> list[Note]:
    """What the image noise of each τ does to features, and why that is nearly the same."""
    first, last = side[0], side[-1]
    told = []
    if len(side) > 1:
        stronger, larger = (last[key] / first[key] for key in ("image_radius", "radius"))
        saturates = last["clamped"] > 0.5 and larger < 0.5 * stronger
        code = "image-noise-saturates" if saturates else "image-noise-grows"
        told.append(note(code, stronger=stronger, larger=larger))
    without = amplification(PAPER_ALPHA if alpha is None else alpha)
    return [*told, note("displaced-snr", realised=last["realised_snr"], without_noise=without)]


def _several(mu: float | Sequence[float] | None) -> list[float]:
    given = [] if mu is None else [mu] if isinstance(mu, int | float) else list(mu)
    return [checks.finite_positive("mu", value) for value in dict.fromkeys(given)]


def _compared(tau: float, alpha: float | None) -> list[float]:
    """τ = 1 beside the τ that was asked for, where 1 needs any noise at all."""
    needed = amplification(PAPER_ALPHA if alpha is None else alpha) > 1
    return [1.0, tau] if tau != 1 and needed else [tau]


def _side_by_side(moved: list[Displacement], found: list[Figures]) -> list[dict[str, float]]:
    """The displacements, each with the directional SNR that the records' features realise under it."""
    return [
        {
            **asdict(item),
            "realised_snr": directional_snr(shown.lambda_max, item.radius * shown.sigma / shown.radius, shown.alpha),
        }
        for shown in found
        if shown.calibration == "displacement"
        for item in moved
    ]


def _planned(choices: list[Choice]) -> Cost | None:
    """What a release at the only μ that was asked for would cost."""
    if len(choices) != 1:
        return None
    settings = (choices[0].clip, choices[0].sigma, choices[0].alpha)
    return Cost(gdp.mu_worst(*settings), gdp.mu_together(*settings), 0.5)
