"""`mixveil calibrate`: what each calibration would give away, before anything is encoded."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from mixveil.cli import _common, _spending
from mixveil.cli._common import (
    Alpha,
    AsJson,
    Clip,
    Data,
    DataDir,
    Depth,
    Grey,
    Noise,
    Public,
    Size,
    Unit,
    number,
    out,
    print_json,
)

if TYPE_CHECKING:
    from rich.table import Table

    from mixveil.calibration import Figures
    from mixveil.types import Cost

Mu = Annotated[float | None, typer.Option("--mu", help="Certified: every record μ-GDP. Default: 1.")]
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
    as_json: AsJson = False,
) -> None:
    """Show, for each calibration, its noise and what an attacker could get: for the owner's eyes only.

    Nothing is written. With neither --mu nor --tau, both are shown at their defaults.
    """
    from mixveil import calibration
    from mixveil.encoders.singular import Singular

    if mu is None and tau is None:
        mu, tau = (None if noise == "sphere" else 1.0), 0.1
    wanted = calibration.targets(mu, tau)
    encoder = Singular(alpha=alpha, noise=noise or "gaussian")
    rows, known = _common.open_both(data, public, data_dir=data_dir, size=size, grey=grey, depth=depth, unit=unit)
    found = calibration.survey(rows, encoder, wanted, public=known, clip=clip, seed=seed, watch=_common.progress)
    warnings = [*rows.warnings(), *calibration.warnings_of(found)]
    owners = _spending.known_owners(rows)
    if as_json:
        about = {"name": rows.name, "rows": len(rows), "shape": list(rows.shape), "classes": list(rows.classes)}
        spent = None if owners is None else _spending.summary(owners)
        shown = [asdict(item) for item in found]
        print_json({"data": about, "calibrations": shown, "spent": spent, "warnings": warnings})
        return
    out.print(f"{rows.name}: {len(rows):,} rows of {'×'.join(str(s) for s in rows.shape)}, {len(rows.classes)} classes")
    out.print(figures_table(found))
    out.print("Errors are mean squared errors a pixel value. These figures are for the owner: do not send them.")
    if owners is not None:
        out.print(_spending.sentence(owners, _planned(found)), soft_wrap=True)
    for text in warnings:
        _common.warn(text)


def _planned(found: list[Figures]) -> Cost | None:
    """What the certified calibration would cost, if one was asked for."""
    from mixveil.theory import gdp
    from mixveil.types import Cost

    for item in found:
        if item.certified:
            settings = (item.clip, item.sigma, item.alpha)
            return Cost(gdp.mu_worst(*settings), gdp.mu_together(*settings), 0.5)
    return None


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
        ("… mean image included, ≤", [number(f.realised_snr_with_mean) for f in found]),
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
        ("C and centre from", [_origin(f, "clip") for f in found]),
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
