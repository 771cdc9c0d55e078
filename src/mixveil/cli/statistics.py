"""`mixveil statistics` and `mixveil directions`: the first step of the certified protocol, a party's side and the
server's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mixveil.cli import _common, _spending
from mixveil.cli._common import (
    AsJson,
    Cache,
    Classes,
    Data,
    DataDir,
    Depth,
    Grey,
    Seed,
    Size,
    Unit,
    escape,
    out,
    print_json,
)
from mixveil.cli._release import show, summary
from mixveil.cli._spending import Budget, LabelBudget, LabelEpsilon, To

NeededProjection = Annotated[Path, typer.Option("--projection", help="The public projection that all parties share.")]


def statistics(
    data: Data,
    projection: NeededProjection,
    mu: Annotated[
        float, typer.Option("--mu", help="Certified: every record (every unit, with --unit) μ-GDP, labels excluded.")
    ],
    out_dir: Annotated[Path, typer.Option("--out", help="The folder to make. It must not exist.")],
    party: Annotated[str, typer.Option("--party", help="The party's name, as the manifest shows it.")] = "party",
    to: To = None,
    budget: Budget = None,
    label_epsilon: LabelEpsilon = None,
    label_budget: LabelBudget = None,
    seed: Seed = None,
    data_dir: DataDir = None,
    size: Size = None,
    grey: Grey = False,
    depth: Depth = None,
    unit: Unit = None,
    classes: Classes = None,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Release the noisy class sums of DATA: what a server needs to find the directions in which the classes differ."""
    _common.look_at_projection(projection)
    from mixveil.data.opening import open_data
    from mixveil.encoders.calibration import MEANINGLESS_MU, meaningless
    from mixveil.releases.sums import write_statistics
    from mixveil.releases.writing import check_output

    check_output(out_dir, party)
    stream = _common.stream_for(seed)
    images = open_data(
        data, data_dir=data_dir, size=size, grey=grey, depth=depth, unit=unit, classes=_common.class_names(classes)
    )
    owners = _spending.owners_of(images)
    rows, digest = _common.open_projected(images, projection, data_dir, cache, certified=True, seeded=seed is not None)
    told = _spending.earlier_statistics(rows.projection, party)
    told += _spending.copies(owners) + _spending.shown_labels(owners, label_epsilon)
    warnings = rows.warnings() + told + ([meaningless(mu)] if mu >= MEANINGLESS_MU else [])
    if not as_json:  # before anything is entered or written
        for text in warnings:
            _common.warn(text)
    with _spending.counted(), _common.progress("sums", len(rows)) as step:
        written = write_statistics(
            out_dir,
            rows,
            digest,
            mu,
            party=party,
            stream=stream,
            label_epsilon=label_epsilon,
            recipient=to,
            budget=budget,
            label_budget=label_budget,
            owners=owners,
            progress=step,
        )
    spent = _spending.summary(owners)
    if as_json:
        print_json({"statistics": str(out_dir), **summary(written), "spent": spent, "warnings": warnings})
        return
    show(out_dir, written)
    out.print(_spending.sentence(owners), soft_wrap=True)


def directions(
    folders: Annotated[list[Path], typer.Argument(metavar="STATISTICS…", help="Statistics of all parties.")],
    projection: NeededProjection,
    path: Annotated[Path, typer.Option("--out", help="The file to make. It must not exist.")],
    as_json: AsJson = False,
) -> None:
    """Find the directions in which the classes differ, from all parties' statistics: a projection for their records."""
    for folder in folders:
        _common.look_at_json(folder / "manifest.json", "a release")
    _common.look_at_projection(projection)
    from mixveil.core import files
    from mixveil.features import projection_file
    from mixveil.learn.class_means import directions as find
    from mixveil.releases.reading import read_release

    files.check_new(path)
    base, digest = projection_file.read(projection)
    found = find([read_release(folder, "sums") for folder in folders], base, digest)
    written = projection_file.write(path, found)
    if as_json:
        print_json({"projection": str(path), "sha256": written, "directions": found.dimension, "clip": found.clip})
        return
    out.print(
        f"[bold]{escape(str(path))}[/]: {found.dimension} directions of {base.dimension:,}, clipped to norm "
        f"{found.clip:.4g}, from the statistics of {len(folders)} part(ies)",
        soft_wrap=True,
    )
    out.print(f"  sha256 {written}")
