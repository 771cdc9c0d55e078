"""`mixveil statistics` and `mixveil directions`: the first step of the certified protocol, a party's side and the
server's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mixveil.cli import _common, _release
from mixveil.cli._common import escape, print_json
from mixveil.core.wording.sentences import plural
from mixveil.data.opening import DataOptions


@_common.data_options("unit", "classes")
def statistics(
    data: _common.Data,
    projection: _common.SharedProjection,
    mu: Annotated[
        float,
        typer.Option("--mu", help="Certified: every record, its label with it, is μ-GDP; with --unit, every unit."),
    ],
    out: _common.NewFolder,
    *,
    party: _common.Party = "party",
    recipient: _common.Recipient = None,
    budget: _common.Budget = None,
    seed: _common.Seed = None,
    options: DataOptions,
    cache: _common.Cache = None,
    as_json: _common.AsJson = False,
) -> None:
    """Release the noisy class sums of DATA: what a server needs to find the directions in which the classes differ.

    The noise covers labels too: counts of classes leave under noise of about 2/μ records. The list of classes is
    public. Name all classes with
    --classes where it would be taken from the labels.
    """
    asked = _common.asked(locals())
    _common.look_at_projection(projection)
    import mixveil
    from mixveil.releases import accounting

    made = mixveil.statistics(**asked, watch=_common.progress, warn=_common.warning(quiet=as_json))
    if as_json:
        told = {"statistics": str(out), **_release.summary(made.sums), "spent": accounting.summary(made.standing)}
        print_json({**told, "warnings": _common.plain(made.warnings)})
        return
    _release.show(out, made.sums)
    _common.say(accounting.spent_note(made.standing))


def directions(
    folders: Annotated[list[Path], typer.Argument(metavar="STATISTICS…", help="Statistics of all parties.")],
    projection: _common.SharedProjection,
    out: _common.NewFile,
    as_json: _common.AsJson = False,
) -> None:
    """Find the directions in which the classes differ, from all parties' statistics: a projection for their records."""
    for folder in folders:
        _common.look_at(folder / "manifest.json", "a release")
    _common.look_at_projection(projection)
    import mixveil

    made = mixveil.directions(folders, out, projection=projection)
    dimension, clip = made.projection.dimension, made.projection.clip
    if as_json:
        print_json({"projection": str(out), "sha256": made.sha256, "directions": dimension, "clip": clip})
        return
    _common.say(
        f"[bold]{escape(str(out))}[/]: {dimension} directions of {made.base:,}, clipped to norm {clip:.4g}, from the "
        f"statistics of {plural(len(folders), 'party', 'parties')}\n  sha256 {made.sha256}"
    )
