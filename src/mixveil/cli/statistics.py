"""`mixveil statistics` and `mixveil directions`: the first step of the certified protocol, a party's side and the
server's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mixveil.cli import _common
from mixveil.cli._common import (
    AsJson,
    Budget,
    Cache,
    Data,
    LabelBudget,
    LabelEpsilon,
    NewFile,
    NewFolder,
    Party,
    Recipient,
    Seed,
    escape,
    out,
    plain,
    print_json,
)
from mixveil.cli._release import show, summary
from mixveil.core.wording.sentences import plural

if TYPE_CHECKING:
    from mixveil.data.options import DataOptions

NeededProjection = Annotated[Path, typer.Option("--projection", help="The public projection that all parties share.")]


@_common.data_options("unit", "classes")
def statistics(
    data: Data,
    projection: NeededProjection,
    mu: Annotated[
        float, typer.Option("--mu", help="Certified: every record (every unit, with --unit) μ-GDP, labels excluded.")
    ],
    out_dir: NewFolder,
    *,
    party: Party = "party",
    recipient: Recipient = None,
    budget: Budget = None,
    label_epsilon: LabelEpsilon = None,
    label_budget: LabelBudget = None,
    seed: Seed = None,
    options: DataOptions,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Release the noisy class sums of DATA: what a server needs to find the directions in which the classes differ."""
    _common.look_at_projection(projection)
    import mixveil
    from mixveil.releases import accounting

    made = mixveil.statistics(
        data,
        out_dir,
        projection=projection,
        mu=mu,
        party=party,
        recipient=recipient,
        budget=budget,
        label_epsilon=label_epsilon,
        label_budget=label_budget,
        seed=seed,
        options=options,
        cache=cache,
        watch=_common.progress,
        warn=_common.warning(quiet=as_json),
    )
    if as_json:
        spent = accounting.summary(made.standing)
        told = {"statistics": str(out_dir), **summary(made.sums), "spent": spent}
        print_json({**told, "warnings": plain(made.warnings)})
        return
    show(out_dir, made.sums)
    out.print(str(accounting.spent_note(made.standing)), soft_wrap=True)


def directions(
    folders: Annotated[list[Path], typer.Argument(metavar="STATISTICS…", help="Statistics of all parties.")],
    projection: NeededProjection,
    path: NewFile,
    as_json: AsJson = False,
) -> None:
    """Find the directions in which the classes differ, from all parties' statistics: a projection for their records."""
    for folder in folders:
        _common.look_at_json(folder / "manifest.json", "a release")
    _common.look_at_projection(projection)
    import mixveil

    made = mixveil.directions(folders, path, projection=projection)
    dimension, clip = made.projection.dimension, made.projection.clip
    if as_json:
        print_json({"projection": str(path), "sha256": made.sha256, "directions": dimension, "clip": clip})
        return
    out.print(
        f"[bold]{escape(str(path))}[/]: {dimension} directions of {made.base:,}, clipped to norm {clip:.4g}, from the "
        f"statistics of {plural(len(folders), 'party', 'parties')}",
        soft_wrap=True,
    )
    out.print(f"  sha256 {made.sha256}")
