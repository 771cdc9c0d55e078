"""`mixveil audit` and `mixveil report`: look at what an attacker gets."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mixveil.cli import _common
from mixveil.cli._common import AsJson, Cache, ProjectionFile, err, escape, number, out, print_json, say
from mixveil.data.opening import DataOptions

if TYPE_CHECKING:
    from rich.table import Table

    from mixveil.audit.found import Audit
    from mixveil.audit.sweep import Swept

Releases = Annotated[list[Path], typer.Argument(metavar="RELEASE…", help="One release, or several of the same data.")]
Truth = Annotated[str, typer.Option("--truth", help="The data that the releases were made of: as DATA of encode.")]
PublicData = Annotated[
    str | None,
    typer.Option(
        "--public", help="Similar data that an attacker may hold; of records, half of them are the non-members."
    ),
]
Names = Annotated[
    str | None,
    typer.Option(
        "--attacks",
        help="Attacks to run, with commas between. Default: all; those that train a network only with --profile full.",
    ),
]
Covers = Annotated[
    str | None,
    typer.Option(
        "--covers", help="The public images that mixup or instahide mixed in (--public of encode): needed if they did."
    ),
]
Client = Annotated[
    Path | None,
    typer.Option("--client", help="The folder of the client half that made representations: needed for such releases."),
]
SweepOption = Annotated[
    str | None,
    typer.Option(
        "--sweep",
        help="Curves: the same attacks on the data encoded in memory at tau=1,0.1 or mu=1,2 or releases=1,4.",
    ),
]
OutDir = Annotated[Path, typer.Option("--out", help="The folder to make, for your eyes only. It must not exist.")]


@_common.data_options("unit", "classes")
def audit(
    releases: Releases,
    truth: Truth,
    out_dir: OutDir,
    *,
    public: PublicData = None,
    client: Client = None,
    attacks: Names = None,
    profile: Annotated[
        Literal["quick", "full"], typer.Option("--profile", help="full tries more, and trains networks.")
    ] = "quick",
    sweep: SweepOption = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the attacks' own draws, and of a sweep's encodings.")] = 0,
    steps: Annotated[
        int | None,
        typer.Option("--steps", help="At most so many steps for each network that attacks train: without a GPU."),
    ] = None,
    options: DataOptions,
    projection: ProjectionFile = None,
    covers: Covers = None,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Attack your own release in every way known here, and write a report that only you should see.

    Of a certified release (--mu) this is for knowing, not for choosing: to decide by it whether to send, or at which μ,
    would tell of the records, and void the certificate. To choose, audit and sweep public data, in another
    state folder (MIXVEIL_STATE). A release for --tau is not certified: look first, then decide.
    """
    asked = _common.asked(locals(), "out_dir")
    asked["attacks"] = None if attacks is None else [name.strip() for name in attacks.split(",")]
    import mixveil
    from mixveil.core.files import check_new
    from mixveil.core.memory import keep_freed
    from mixveil.report.audit_page import plain, write_report

    check_new(out_dir)
    keep_freed()
    with _common.observing() as watch:
        found = mixveil.audit(**asked, watch=watch, tell=lambda told: err.print(escape(str(told)), soft_wrap=True))
    command = shlex.join(["mixveil", *sys.argv[1:]])
    page = write_report(out_dir, found, command=command)
    if as_json:
        print_json({**plain(found, command=command), "report": str(page)})
        return
    show(found.audit, page)
    if found.swept is not None:
        _show_sweep(found.swept)


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR…", help="The folder of an audit, or of several.")],
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Of several audits: the page to make. It must not exist.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the page of an audit again from its figures and pictures; of several, one page with all side by side."""
    for folder in folders:
        _common.look_at(folder / "audit.json", "an audit")
    from mixveil.core.errors import ArgumentError

    if (len(folders) > 1) != (out_file is not None):
        raise ArgumentError("--out names the page of several audits, and goes with several")
    if out_file is None:
        from mixveil.report.audit_page import render

        page = render(folders[0])
    else:
        from mixveil.report.beside_page import write_beside

        page = write_beside(folders, out_file)
    if as_json:
        print_json({"report": str(page)})
    else:
        say(escape(str(page)))


def show(found: Audit, page: Path) -> None:
    """The verdict, the main figure of each attack, and where the rest is."""
    for told in found.verdict:
        first = told.code.startswith("answer-")
        say(f"[bold]{escape(str(told))}[/]" if first else f"• {escape(str(told))}")
    out.print(_main_figures(found))
    missing = [run.attack for run in found.attacks if run.status == "skipped"]
    if missing:
        say(f"[dim]Not run: {escape(', '.join(missing))}. The report says why.[/]")
    for warning in found.warnings:
        _common.warn(warning)
    say(f"Report, private, for your eyes only: {escape(str(page))}")


def _main_figures(found: Audit) -> Table:
    from rich.table import Column, Table

    from mixveil.audit.figures import attack_title, caption
    from mixveil.audit.metrics.catalogue import BY_CODE
    from mixveil.core.wording.sentences import plural

    table = Table(Column("attack", no_wrap=True), "figure", "mean", "worst", "knowing nothing", "ceiling")
    for row in found.figures:
        if not (row.beaten or (row.metric in BY_CODE and BY_CODE[row.metric].main)):
            continue
        mean = f"[bold red]{number(row.mean)}[/]" if row.beaten else number(row.mean)
        figure = escape(str(caption(row.metric, row.of, row.know_nothing, found.unit)))
        figure += "" if row.records is None else f" of {plural(row.records, 'record')}"
        cells = (number(value) for value in (row.worst, row.know_nothing, row.ceiling))
        table.add_row(attack_title(row.attack), figure, mean, *cells)
    return table


def _show_sweep(swept: Swept) -> None:
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
    say("No encoding of the sweep was written, left or entered in the ledger.")
