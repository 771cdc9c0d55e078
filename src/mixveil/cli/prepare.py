"""`mixveil prepare`: the public projection that all parties share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mixveil.cli import _common
from mixveil.cli._common import escape
from mixveil.data.opening import DataOptions

if TYPE_CHECKING:
    from mixveil.features.network_choice import Comparison

Backbone = Annotated[
    str,
    typer.Option(
        "--backbone",
        help="Public network, several with + between; best: compare those at hand (`mixveil data list`) on PUBLIC, and "
        "take the best; or none: the pixels themselves.",
    ),
]


@_common.data_options()
def prepare(
    public: Annotated[str, typer.Argument(metavar="PUBLIC", help="PUBLIC data: " + _common.DATA_HELP)],
    out: _common.NewFile,
    *,
    backbone: Backbone = "efficientnet_lite0",
    stage: _common.Stage = None,
    mirror: _common.Mirror = False,
    whitening: Annotated[
        Literal["within", "total"], typer.Option("--whitening", help="By which covariance.")
    ] = "within",
    directions: Annotated[
        int | None, typer.Option("--directions", help="How many to keep. Default: by the rule, or all.")
    ] = None,
    mu: Annotated[float | None, typer.Option("--mu", help="Total μ of the two-step job, for the rule.")] = None,
    parties: Annotated[int | None, typer.Option("--parties", help="Parties of the job, for the rule.")] = None,
    rows: Annotated[int | None, typer.Option("--rows", help="Records of all parties, for the rule.")] = None,
    num_classes: Annotated[int | None, typer.Option("--num-classes", help="Classes of the job, for the rule.")] = None,
    private: Annotated[
        bool, typer.Option("--private", help="These are PRIVATE data: the projection says so, and certifies nothing.")
    ] = False,
    options: DataOptions,
    cache: _common.Cache = None,
    as_json: _common.AsJson = False,
) -> None:
    """Fit mean, whitening and directions on PUBLIC data, find settings for rounds of sums on tasks that its classes
    make, and write both as a projection that every party uses.

    With --mu, --parties, --rows and --num-classes the number of directions follows from public figures alone.
    """
    asked = _common.asked(locals())
    import mixveil
    from mixveil.learn import public_tasks

    made = mixveil.prepare(**asked, watch=_common.progress)
    fitted = made.projection
    if as_json:
        told = {
            "projection": str(out),
            "sha256": made.sha256,
            "backbone": str(fitted.extractor),
            "features": int(fitted.mean.numel()),
            "directions": fitted.dimension,
            "clip": fitted.clip,
            "origin": fitted.origin,
            **fitted.about,
            "settings": public_tasks.shown(fitted.rounds),
            "comparison": None if made.comparison is None else asdict(made.comparison),
        }
        _common.print_json({**told, "warnings": _common.plain(made.warnings)})
        return
    if made.comparison is not None:
        _print(made.comparison)
    _print_settings(public_tasks.shown(fitted.rounds))
    what = f"features of {escape(str(fitted.extractor))}" if fitted.extractor.names else "pixel values"
    _common.say(
        f"[bold]{escape(str(out))}[/]: {fitted.mean.numel():,} {what} → "
        f"{fitted.dimension:,} directions, clipped to norm {fitted.clip:.4g}; fitted on {made.images:,} "
        f"{fitted.origin} images\n  sha256 {made.sha256}"
    )
    for item in made.warnings:
        _common.warn(item)


def _print_settings(settings: Sequence[Mapping[str, float]]) -> None:
    """The settings of rounds, by what a job has to learn from; levels with the same settings are one line."""
    from rich.table import Table

    if not settings:
        _common.say("No settings for rounds of sums: they are found on public data of four classes or more.")
        return
    table = Table("n·μ/√P, ten classes", "directions", "rounds", "rate", "accuracy on public tasks")
    alike = groupby(reversed(settings), key=lambda item: (item["directions"], item["rounds"], item["rate"]))
    for (directions, rounds, rate), group in alike:
        levels = list(group)
        sizes = _span([f"{item['units_mu']:,.0f}" for item in levels])
        reached = _span([f"{100 * item['accuracy']:.1f}" for item in levels])
        table.add_row(sizes, f"{directions:,}", str(rounds), f"{rate:g}", f"{reached} %")
    _common.out.print(table)
    _common.say(
        "A job of n records (or units) and P parties takes the settings next to its n·μ/√P, times 10/C with C classes. "
        "With secure sums P is divided by the number of honest parties."
    )


def _span(values: Sequence[str]) -> str:
    return values[0] if values[0] == values[-1] else f"{values[0]} to {values[-1]}"


def _print(comparison: Comparison) -> None:
    from rich.table import Table

    table = Table("networks", "features", "accuracy", "seconds an image", "taken")
    for found in comparison.candidates:
        figures = f"{found.features:,}", f"{100 * found.accuracy:.1f} %", f"{found.seconds:.3f}"
        table.add_row(escape("+".join(found.names)), *figures, "yes" if found is comparison.best else "")
    _common.out.print(table)
    _common.say(
        f"A linear discriminant learnt from {comparison.learnt:,} of the images. Its accuracy on {comparison.tested:,} "
        f"others has a standard error of {100 * comparison.error:.1f} %. A network that adds no more is left out."
    )
