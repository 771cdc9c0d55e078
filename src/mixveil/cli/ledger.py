"""`mixveil ledger`: what was released, what it cost, and what is left."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from mixveil.cli import _spending
from mixveil.cli._common import DATA_HELP, AsJson, DataDir, Depth, Grey, Size, Unit, escape, number, out, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from mixveil.releases.ledger import Entry

Some = Annotated[
    str | None, typer.Argument(metavar="[DATA]", help=f"Only of these records. {DATA_HELP}", show_default=False)
]
Standing = Annotated[
    float | None,
    typer.Option("--budget", help="From now on, refuse what would bring any record beyond this μ.", show_default=False),
]
StandingLabels = Annotated[
    float | None,
    typer.Option(
        "--label-budget",
        help="From now on, refuse what would bring any record's labels beyond this ε, or shows labels as they are.",
        show_default=False,
    ),
]


def ledger(
    data: Some = None,
    budget: Standing = None,
    label_budget: StandingLabels = None,
    data_dir: DataDir = None,
    size: Size = None,
    grey: Grey = False,
    depth: Depth = None,
    unit: Unit = None,
    as_json: AsJson = False,
) -> None:
    """Show what was released from this machine, what all of it cost any record, and what is left of the budget.

    A release counts from the moment it was begun, whether or not it was finished or sent.
    """
    from mixveil.data.opening import open_data
    from mixveil.releases.ledger import Ledger

    book = Ledger()
    if budget is not None:
        book.set_budget(budget)
    if label_budget is not None:
        book.set_label_budget(label_budget)
    entries = book.entries()
    if data is not None and entries:
        owners = _spending.owners_of(open_data(data, data_dir=data_dir, size=size, grey=grey, depth=depth, unit=unit))
    else:
        owners = book.everyone()
    if as_json:
        spent = _spending.summary(owners)
        print_json({"ledger": str(book.path), "entries": [_plain(entry) for entry in entries], "spent": spent})
        return
    out.print(entries_table(entries) if entries else "Nothing was released yet.")
    if entries:
        out.print(_spending.sentence(owners, what="these records" if data else "all its records"), soft_wrap=True)
    if entries and data is None:
        out.print(_spending.everything(book.total()), soft_wrap=True)
    if book.budget is not None:
        out.print(
            f"The standing budget is μ = {book.budget:g}: what would exceed it for any record or unit is refused."
        )
    if book.label_budget is not None:
        out.print(
            f"The standing label budget is ε = {book.label_budget:g}: a release that would exceed it for the labels of "
            f"any record or unit is refused, and so is one that shows labels as they are.",
            soft_wrap=True,
        )


def entries_table(entries: list[Entry]) -> Table:
    from rich.table import Column, Table

    right = [Column(name, justify="right", no_wrap=True) for name in ("rows", "μ", "label ε")]
    caption = (
        "* not known to be finished: it counts all the same" if not all(entry.finished for entry in entries) else None
    )
    fixed = [Column(name, no_wrap=True) for name in ("begun (UTC)", "release")]
    table = Table(*fixed, "from → to", "what", *right, caption=caption)
    for entry in entries:
        table.add_row(
            entry.started[:16].replace("T", " "),
            entry.id[:8] + ("" if entry.finished else "*"),
            escape(f"{entry.party} → {entry.recipient or '?'}"),
            entry.encoder,
            f"{entry.rows:,}",
            "[red]none[/]" if entry.stated is None else number(entry.stated),
            "shown" if entry.label_epsilon is None else number(entry.label_epsilon),
        )
    return table


def _plain(entry: Entry) -> dict[str, object]:
    return {**asdict(entry), "cost": None if entry.cost is None else asdict(entry.cost)}
