"""`mixveil calibrate`: what each calibration would give away, before anything is encoded."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mixveil.cli import _common
from mixveil.cli._common import number, out, say
from mixveil.core.wording.sentences import plural
from mixveil.data.opening import DataOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from mixveil.encoders.calibration_report import Figures
    from mixveil.releases.calibrate import CalibrationReport

Mu = Annotated[
    str | None,
    typer.Option(
        "--mu", help="Certified: every record μ-GDP, labels excluded; several with commas between. Default: 1."
    ),
]
Tau = Annotated[float | None, typer.Option("--tau", help="Theorem 2's directional SNR, in (0, 1]. Default: 0.1.")]


@_common.data_options("unit")
def calibrate(
    data: _common.Data,
    *,
    mu: Mu = None,
    tau: Tau = None,
    alpha: _common.Alpha = None,
    noise: _common.Noise = None,
    clip: _common.Clip = None,
    public: _common.Public = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the example pairing that the figures are shown for.")] = 0,
    options: DataOptions,
    backbone: _common.Backbone = None,
    stage: _common.Stage = None,
    mirror: _common.Mirror = False,
    normalisation: _common.Normalisation = None,
    cache: _common.Cache = None,
    as_json: _common.AsJson = False,
) -> None:
    """Show what a release would promise and cost, before there is one. For your eyes only.

    [bold]--mu 0.5,1,2,4[/]: what an attacker could get at most, in words, from μ and public figures alone: choose μ by
    this. [bold]--tau[/]: every figure of every calibration, in a table; they depend on your records. Nothing is written
    but features that are kept, and nothing is entered in the ledger. With neither, both are shown at their defaults.
    """
    asked = _common.asked(locals()) | {"mu": None if mu is None else _common.several_mus(mu)}
    import mixveil

    found = mixveil.calibrate(**asked, figures=as_json, watch=_common.progress)
    if as_json:
        _common.print_json(_plain(found))
        return
    _show(found, alpha)
    for told in found.warnings:
        _common.warn(told)


def _plain(found: CalibrationReport) -> dict[str, Any]:
    from mixveil.releases.accounting import summary

    rows = found.rows
    about = {"name": found.images.name, "rows": len(rows), "shape": list(rows.shape), "classes": list(rows.classes)}
    about["extractor"] = None if found.extractor is None else found.extractor.plain()
    return {
        "data": about,
        "choices": [asdict(choice) for choice in found.choices],
        "calibrations": [asdict(item) for item in found.figures],
        "displacement": list(found.displacements),
        "spent": None if found.standing is None else summary(found.standing),
        "warnings": _common.plain(found.warnings),
    }


def _show(found: CalibrationReport, alpha: float | None) -> None:
    from mixveil.encoders.calibration_report import told
    from mixveil.releases.accounting import spent_note
    from mixveil.releases.calibrate import displacement_notes

    shape = "×".join(str(s) for s in found.rows.shape)
    classes = plural(len(found.rows.classes), "class", "classes")
    out.print(f"{found.images.name}: {plural(len(found.rows), 'row')} of {shape}, {classes}")
    if found.extractor is not None:
        out.print(f"features of {found.extractor}", markup=False)
    for choice in found.choices:
        say(f"• {told(choice)}")
    if found.figures:
        out.print(figures_table(found.figures))
        kind = "pixel" if found.extractor is None else "feature"
        out.print(
            f"Errors are mean squared errors per {kind} value. These figures are for the owner: do not send them."
        )
    if found.displacements:
        out.print(_displacement_table(found.displacements))
        for said in displacement_notes(found.displacements, alpha):
            say(said)
    if found.standing is not None:
        say(spent_note(found.standing))


def _displacement_table(side: Sequence[dict[str, float]]) -> Table:
    """What the image noise of each τ does to features."""
    from rich.table import Column, Table

    table = Table(Column("displacement", no_wrap=True), *(f"τ = {item['tau']:g}" for item in side))
    for name, key in (
        ("image noise radius", "image_radius"),
        ("pixel values clamped", "clamped"),
        ("feature noise radius", "radius"),
        ("mean feature norm", "feature_norm"),
        ("realised sup SNR", "realised_snr"),
    ):
        table.add_row(name, *(f"{item[key]:.1%}" if key == "clamped" else number(item[key]) for item in side))
    return table


def figures_table(found: Sequence[Figures]) -> Table:
    """The figures side by side, a column a calibration."""
    from rich.table import Column, Table

    table = Table(Column("", no_wrap=True), *(item.calibration for item in found))
    lines: list[tuple[str, list[str]]] = [
        ("weights at most α", [number(f.alpha) for f in found]),
        ("clip norm C", [number(f.clip) for f in found]),
        ("noise radius r", [number(f.radius) for f in found]),
        ("noise of a value σ", [number(f.sigma) for f in found]),
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
