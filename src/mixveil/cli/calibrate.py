"""`mixveil calibrate`: what each calibration would give away, before anything is encoded."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from mixveil.cli import _common, _displacement, _spending
from mixveil.cli._common import (
    Alpha,
    AsJson,
    Backbone,
    Cache,
    Clip,
    Data,
    DataDir,
    Depth,
    Grey,
    Mirror,
    Noise,
    Public,
    Size,
    Stage,
    Unit,
    number,
    out,
    print_json,
)
from mixveil.cli._displacement import Normalisation

if TYPE_CHECKING:
    from rich.table import Table

    from mixveil.core.types import Cost
    from mixveil.data.opening import Images
    from mixveil.encoders.calibration_report import Choice, Figures
    from mixveil.features.cache import Features
    from mixveil.features.displacement import Displacement

Mu = Annotated[
    str | None,
    typer.Option("--mu", help="Certified: every record μ-GDP; several to choose from with commas between. Default: 1."),
]
Tau = Annotated[float | None, typer.Option("--tau", help="Theorem 2's directional SNR, in (0, 1]. Default: 0.1.")]


def calibrate(
    data: Data,
    mu: Mu = None,
    tau: Tau = None,
    alpha: Alpha = None,
    noise: Noise = None,
    clip: Clip = None,
    public: Public = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the example pairing that the figures are shown for.")] = 0,
    data_dir: DataDir = None,
    size: Size = None,
    grey: Grey = False,
    depth: Depth = None,
    unit: Unit = None,
    backbone: Backbone = None,
    stage: Stage = None,
    mirror: Mirror = False,
    normalisation: Normalisation = None,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Show what a release would promise and cost, before there is one. For your eyes only.

    [bold]--mu 0.5,1,2,4[/]: what an attacker could get at most, in words, from μ and public figures alone: choose μ by
    this. [bold]--tau[/]: every figure of every calibration, in a table; they depend on your records. Nothing is written
    but features that are kept, and nothing is entered in the ledger. With neither, both are shown at their defaults.
    """
    from mixveil.core.errors import ArgumentError, MissingFactError
    from mixveil.core.randomness import SeededStream
    from mixveil.core.types import Mu as Certified
    from mixveil.encoders import calibration, calibration_report
    from mixveil.encoders.singular import Singular

    extractor = _common.chosen_extractor(backbone, stage, mirror)
    if normalisation is not None and extractor is None:
        raise ArgumentError(f"--normalisation {normalisation} is of the noise behind features: name a --backbone")
    mus = [] if mu is None else _common.several_mus(mu)
    unbounded = extractor is not None and clip is None and public is None
    if unbounded and mus:
        raise MissingFactError(calibration.UNBOUNDED)
    left_out = unbounded and tau is None and noise != "sphere"
    if not mus and tau is None:
        mus, tau = ([] if noise == "sphere" or unbounded else [1.0]), 0.1
    wanted = [*calibration_report.targets(None, tau, features=extractor is not None), *map(Certified, mus)]
    encoder = Singular(alpha=alpha, noise=noise or "gaussian")
    images, known = _common.open_both(data, public, data_dir=data_dir, size=size, grey=grey, depth=depth, unit=unit)
    rows: Images | Features = images
    others: Images | Features | None = known
    moved: list[Displacement] = []
    if extractor is not None:
        loaded = _common.load_extractor(extractor, data_dir)
        if tau is not None:
            seen, taus = images if known is None else known, _displacement.compared(tau, alpha)
            moved = _displacement.displacements(seen, loaded, taus, alpha, normalisation, SeededStream(seed))
        rows = _common.features_of(images, loaded, cache)
        others = None if known is None else _common.features_of(known, loaded, cache)
    promised = calibration_report.choices(rows, encoder, mus, public=others, clip=clip, watch=_common.progress)
    found: list[Figures] = []
    if as_json or tau is not None:  # for μ alone no record is looked at
        found = calibration_report.survey(
            rows,
            encoder,
            wanted,
            public=others,
            clip=clip,
            displacement=_displacement.as_fact(moved, private=known is None),
            seed=seed,
            watch=_common.progress,
        )
    shared = [] if mus else _common.shared_images(images, known)  # with μ they are refused
    warnings = [*rows.warnings(), *shared, *calibration_report.warnings_of(found)]
    if left_out:
        warnings.append(f"the certified calibration is left out: {calibration.UNBOUNDED}")
    said = [(choice.mu, text) for choice in promised for text in calibration.drowned(choice.sigma, choice.clip, rows)]
    warnings += [f"at μ = {mu:g} {text}" for mu, text in said[-1:]]
    owners = _spending.known_owners(images)
    side = _displacement.side_by_side(moved, found)
    if as_json:
        about = {"name": images.name, "rows": len(rows), "shape": list(rows.shape), "classes": list(rows.classes)}
        about["extractor"] = None if extractor is None else extractor.plain()
        spent = None if owners is None else _spending.summary(owners)
        shown = [asdict(item) for item in found]
        told = {"choices": [asdict(choice) for choice in promised], "calibrations": shown, "displacement": side}
        print_json({"data": about, **told, "spent": spent, "warnings": warnings})
        return
    shape, kind = "×".join(str(s) for s in rows.shape), "pixel" if extractor is None else "feature"
    out.print(f"{images.name}: {len(rows):,} rows of {shape}, {len(rows.classes)} classes")
    if extractor is not None:
        out.print(f"features of {extractor}", markup=False)
    for choice in promised:
        out.print(f"• {calibration_report.in_words(choice)}", soft_wrap=True)
    if found:
        out.print(figures_table(found))
        out.print(f"Errors are mean squared errors a {kind} value. These figures are for the owner: do not send them.")
    if side:
        _displacement.show(side, alpha)
    if owners is not None:
        out.print(_spending.sentence(owners, _planned(promised)), soft_wrap=True)
    for text in warnings:
        _common.warn(text)


def _planned(promised: list[Choice]) -> Cost | None:
    """What a release at the only μ that was asked for would cost."""
    from mixveil.core.types import Cost
    from mixveil.theory import gdp

    if len(promised) != 1:
        return None
    settings = (promised[0].clip, promised[0].sigma, promised[0].alpha)
    return Cost(gdp.mu_worst(*settings), gdp.mu_together(*settings), 0.5)


def figures_table(found: list[Figures]) -> Table:
    """The figures side by side, a column a calibration."""
    from rich.table import Column, Table

    table = Table(Column("", no_wrap=True), *(item.calibration for item in found))
    lines: list[tuple[str, list[str]]] = [
        ("weights at most α", [number(f.alpha) for f in found]),
        ("clip norm C", [number(f.clip) for f in found]),
        ("noise radius r", [number(f.radius) for f in found]),
        ("noise a value σ", [number(f.sigma) for f in found]),
        ("r / mean distance D", [number(f.radius_multiple) for f in found]),
        ("nominal τ", [number(f.nominal_tau) for f in found]),
        ("realised sup SNR", [_realised(f) for f in found]),
        ("… mean record included, ≤", [number(f.realised_snr_with_mean) for f in found]),
        ("… of the average row", [number(f.mean_snr) for f in found]),
        ("μ of a record" if found[0].unit_rows == 1 else "μ of a unit", [number(f.mu) for f in found]),
        ("… of the median record", [number(f.mu_median) for f in found]),
        (f"ε at δ = {found[0].delta:g}", [number(f.epsilon) for f in found]),
        (f"member TPR at {found[0].member_fpr:.0%} FPR", [number(f.member_tpr) for f in found]),
        ("minimax error, 5 %", [_minimax(f, "q05") for f in found]),
        ("… median", [_minimax(f, "q50") for f in found]),
        ("… 95 %", [_minimax(f, "q95") for f in found]),
        ("… all other records known", [number(f.minimax_known_others["q50"]) for f in found]),
        ("Bayes error, all rows", [number(f.bayes_mse) for f in found]),
        ("Bayes error, one row", [number(f.bayes_mse_single_row) for f in found]),
        ("know-nothing error", [number(f.know_nothing_mse) for f in found]),
        ("centre from", [_origin(f, "centre") for f in found]),
        ("C from", [_origin(f, "clip") for f in found]),
        ("V and λ from", [_origin(f, "lambda_max") for f in found]),
        ("certified", ["[green]yes[/]" if f.certified else "no" for f in found]),
    ]
    for name, cells in lines:
        table.add_row(name, *cells)
    return table


def _realised(figure: Figures) -> str:
    text = number(figure.realised_snr)
    return f"[bold red]{text}[/]" if figure.realised_snr > figure.nominal_tau * 1.0001 else text


def _minimax(figure: Figures, name: str) -> str:
    """Theorem 1's numbers reach 10³³² and more: as powers of ten."""
    log = figure.minimax_log10[name]
    if log is None:
        return "∞"
    return f"{10**log:.4g}" if log < 5 else f"10^{log:.0f}"


def _origin(figure: Figures, name: str) -> str:
    return figure.facts[name].origin if name in figure.facts else "not used"
