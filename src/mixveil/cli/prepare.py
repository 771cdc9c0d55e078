"""`mixveil prepare`: the public projection that all parties share."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Literal

import typer

from mixveil.cli import _common, _spending
from mixveil.cli._common import AsJson, Cache, DataDir, Depth, Grey, Mirror, Size, Stage, escape, out, print_json
from mixveil.core.errors import ArgumentError

Backbone = Annotated[
    str,
    typer.Option("--backbone", help="Public network, several with + between, or none: the pixels themselves."),
]


def prepare(
    public: Annotated[str, typer.Argument(metavar="PUBLIC", help="PUBLIC data: " + _common.DATA_HELP)],
    path: Annotated[Path, typer.Option("--out", help="The file to make. It must not exist.")],
    backbone: Backbone = "mobilenet_v2",
    stage: Stage = None,
    mirror: Mirror = False,
    whitening: Annotated[
        Literal["within", "total"], typer.Option("--whitening", help="By which covariance.")
    ] = "within",
    k: Annotated[int | None, typer.Option("--k", help="Directions to keep. Default: by the rule, or all.")] = None,
    mu: Annotated[float | None, typer.Option("--mu", help="Total μ of the two-step job, for the rule.")] = None,
    parties: Annotated[int | None, typer.Option("--parties", help="Parties of the job, for the rule.")] = None,
    rows: Annotated[int | None, typer.Option("--rows", help="Records of all parties, for the rule.")] = None,
    classes: Annotated[int | None, typer.Option("--classes", help="Classes of the job, for the rule.")] = None,
    private: Annotated[
        bool, typer.Option("--private", help="These are PRIVATE data: the projection says so, and certifies nothing.")
    ] = False,
    data_dir: DataDir = None,
    size: Size = None,
    grey: Grey = False,
    depth: Depth = None,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Fit mean, whitening and directions on PUBLIC data, and write them as a projection that every party uses.

    With --mu, --parties, --rows and --classes the number of directions follows from public figures alone.
    """
    from mixveil.core import checks, files
    from mixveil.data.opening import open_data
    from mixveil.features import projection_file, projection_fit
    from mixveil.features.extractor import Extractor

    files.check_new(path)
    job = [mu, parties, rows, classes]
    if any(item is not None for item in job) and (None in job or k is not None):
        raise ArgumentError("the rule needs --mu, --parties, --rows and --classes, all four, and no --k")
    extractor = Extractor.parse(backbone, stage=stage, mirror=mirror)
    images = open_data(public, data_dir=data_dir, size=size, grey=grey, depth=depth)
    features, weights = _common.open_features(images, extractor, data_dir, cache)
    origin: Literal["public", "private"] = "private" if private else "public"
    found = projection_fit.fit(features, weights, whitening=whitening, origin=origin)
    if mu is not None and parties is not None and rows is not None and classes is not None:
        for name, value in (("rows", rows), ("classes", classes)):
            checks.at_least(name, value, 2)
        first = mu / 2**0.5
        k = projection_fit.directions_for_sums(found, parties=parties, rows=rows, classes=classes, mu=first)
    if k is not None:
        found = found.first(k)
    with _spending.entered(features) if private else nullcontext():
        digest = projection_file.write(path, found)
    told = {
        "projection": str(path),
        "sha256": digest,
        "backbone": str(extractor),
        "features": int(found.mean.numel()),
        "directions": found.dimension,
        "clip": found.clip,
        "origin": origin,
        **found.about,
    }
    warnings = [] if private else _spending.released_before(images)
    if as_json:
        print_json({**told, "warnings": warnings})
        return
    out.print(
        f"[bold]{escape(str(path))}[/]: {found.mean.numel():,} features of {escape(str(extractor))} → "
        f"{found.dimension:,} directions, clipped to norm {found.clip:.4g}; fitted on {len(images):,} {origin} images",
        soft_wrap=True,
    )
    out.print(f"  sha256 {digest}")
    for text in warnings:
        _common.warn(text)
    if private:
        _common.warn(
            "it holds the mean and the covariance of private images: send it only if you may show those. Your "
            "ledger counts it as a release of them that promises nothing"
        )
