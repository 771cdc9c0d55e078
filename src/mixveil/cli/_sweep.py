"""Sweeps of `mixveil audit`: what they cost, how they go, and what came out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mixveil.cli._common import err, number, out

if TYPE_CHECKING:
    from mixveil.audit.sweep import Ready, Sweep, Swept
    from mixveil.core.types import Dataset, Release

SweepOption = Annotated[
    str | None,
    typer.Option(
        "--sweep",
        help="Curves: the same attacks on the data encoded anew, in memory, at tau=1,0.1 or mu=1,2 or releases=1,4.",
        show_default=False,
    ),
]


def parsed(text: str | None) -> Sweep | None:
    """What is asked for; refused before anything is opened."""
    from mixveil.audit.sweep import Sweep

    return None if text is None else Sweep.parse(text)


def prepared(sweep: Sweep, opened: tuple[Release, ...], data: Dataset, profile: str, seed: int) -> Ready:
    """The encoders of all values; says what the sweep will cost."""
    from mixveil.audit.auditing import PROFILES, most_rows
    from mixveil.audit.sweep import calibrated
    from mixveil.core.errors import ArgumentError

    if len(opened) != 1:
        raise ArgumentError(f"a sweep varies one release, got {len(opened)}")
    ready = calibrated(sweep, opened[0], data, seed=seed)
    rows = min(len(data), most_rows(data, PROFILES[profile]))
    encodings = f" and {int(sum(sweep.values))} encodings" if sweep.name == "releases" else ""
    err.print(f"sweep: {len(sweep.values)} audits{encodings} of {rows:,} rows, beside that of the release itself")
    return ready


def show(swept: Swept) -> None:
    """A line an attack: its main figure at every value."""
    from rich.table import Table

    from mixveil.audit.figures import attack_title
    from mixveil.audit.sweep import table
    from mixveil.core.wording.sentences import sentence

    values = (f"{point.value:g}" for point in swept.points)
    shown = Table("attack", "figure", *values, title=f"Sweep over {swept.sweep.symbol}")
    for name, metric, means in table(swept):
        shown.add_row(attack_title(name), sentence(f"metric-{metric}"), *map(number, means))
    out.print(shown)
    out.print("No encoding of the sweep was written, left or entered in the ledger.", soft_wrap=True)
