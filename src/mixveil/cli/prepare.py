"""`mixveil prepare`: the public projection that all parties share."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from mixveil.cli import _common
from mixveil.cli._common import escape
from mixveil.data.opening import DataOptions

Backbone = Annotated[
    str, typer.Option("--backbone", help="Public network, several with + between, or none: the pixels themselves.")
]


@_common.data_options()
def prepare(
    public: Annotated[str, typer.Argument(metavar="PUBLIC", help="PUBLIC data: " + _common.DATA_HELP)],
    out: _common.NewFile,
    *,
    backbone: Backbone = "mobilenet_v2",
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
    """Fit mean, whitening and directions on PUBLIC data, and write them as a projection that every party uses.

    With --mu, --parties, --rows and --num-classes the number of directions follows from public figures alone.
    """
    asked = _common.asked(locals())
    import mixveil

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
        }
        _common.print_json({**told, "warnings": _common.plain(made.warnings)})
        return
    _common.say(
        f"[bold]{escape(str(out))}[/]: {fitted.mean.numel():,} features of {escape(str(fitted.extractor))} → "
        f"{fitted.dimension:,} directions, clipped to norm {fitted.clip:.4g}; fitted on {made.images:,} "
        f"{fitted.origin} images\n  sha256 {made.sha256}"
    )
    for item in made.warnings:
        _common.warn(item)
