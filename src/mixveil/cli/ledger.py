"""`mixveil ledger`: what was released, what it cost, and what is left."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from mixveil.cli import _common
from mixveil.cli._common import DATA_HELP, AsJson, escape, number, out, print_json, say
from mixveil.core.wording.notes import note
from mixveil.data.opening import DataOptions
from mixveil.theory.shared_noise import alone

if TYPE_CHECKING:
    from rich.table import Table

    from mixveil.releases.ledger import Entry

Some = Annotated[str | None, typer.Argument(metavar="[DATA]", help=f"Only of these records. {DATA_HELP}")]
Standing = Annotated[
    float | None,
    typer.Option("--budget", help="From now on, refuse what would bring any record beyond this μ."),
]
StandingLabels = Annotated[
    float | None,
    typer.Option(
        "--label-budget",
        help="From now on, refuse what would bring any record's labels beyond this ε, or shows labels as they are.",
    ),
]


@_common.data_options("unit")
def ledger(
    data: Some = None,
    budget: Standing = None,
    label_budget: StandingLabels = None,
    *,
    options: DataOptions,
    as_json: AsJson = False,
) -> None:
    """Show what was released from this machine, what all of it cost any record, and what is left of the budget.

    A release counts from the moment it was begun, whether or not it was finished or sent.
    """
    from mixveil.releases import accounting
    from mixveil.releases.ledger import Ledger

    book = Ledger()
    if budget is not None:
        book.set_budget(budget)
    if label_budget is not None:
        book.set_label_budget(label_budget)
    entries = book.entries()
    some = data is not None and bool(entries)
    owners = accounting.owners_of(book, options.open(data), _common.progress) if data and some else book.everyone()
    standing, reserved = book.standing(owners), book.reservations()
    if as_json:
        spent = accounting.summary(standing)
        shown = {"ledger": str(book.path), "entries": [_plain(entry) for entry in entries], "reserved": reserved}
        print_json({**shown, "spent": spent})
        return
    out.print(entries_table(entries) if entries else "Nothing was released yet.")
    if entries:
        say(accounting.spent_note(standing, "these-records" if data else "all-records"))
    if entries and data is None:
        say(accounting.total_note(standing.total))
    for plan, mu in reserved.items():
        say(note("ledger-reserved", plan=plan, mu=mu))
    if standing.budget is not None:
        what = "A release is refused if any record or unit would exceed it."
        say(f"The standing budget is μ = {standing.budget:g}. {what}")
    if standing.label_budget is not None:
        say(
            f"The standing label budget is ε = {standing.label_budget:g}. A release is refused if the labels of any "
            f"record or unit would exceed it, or if it shows labels as they are."
        )


def entries_table(entries: list[Entry]) -> Table:
    from rich.table import Column, Table

    right = [Column(name, justify="right", no_wrap=True) for name in ("rows", "μ", "label ε")]
    done = all(entry.finished for entry in entries)
    told = [] if done else ["* not known to be finished: it counts all the same"]
    if any(_alone(entry) for entry in entries):
        told.append("alone: μ whatever other parties do; the μ before it needs honest ones, and is what adds up here")
    caption = "\n".join(told) or None
    fixed = [Column(name, no_wrap=True) for name in ("begun (UTC)", "release")]
    table = Table(*fixed, "from → to", "what", *right, caption=caption)
    for entry in entries:
        table.add_row(
            entry.started[:16].replace("T", " "),
            entry.id[:8] + ("" if entry.finished else "*"),
            escape(f"{entry.party} → {entry.recipient or '?'}"),
            entry.encoder,
            f"{entry.rows:,}",
            "[red]none[/]" if entry.stated is None else number(entry.stated) + _alone(entry),
            _labels(entry.label_epsilon),
        )
    return table


def _alone(entry: Entry) -> str:
    """The μ of a release whose noise parties share, whatever the others do."""
    found = re.search(r"-shared-([0-9]+)$", entry.encoder)
    return "" if found is None or entry.stated is None else f" (alone {number(alone(entry.stated, int(found[1])))})"


def _labels(epsilon: float | None) -> str:
    if epsilon is None:
        return "shown"
    return number(epsilon) if epsilon else "covered"


def _plain(entry: Entry) -> dict[str, object]:
    return {**asdict(entry), "cost": None if entry.cost is None else asdict(entry.cost)}
