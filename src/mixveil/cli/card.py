"""`mixveil card`: one page about a release, to read and to sign."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mixveil.cli import _release
from mixveil.cli._common import AsJson, escape, look_at, print_json, say, warn_of_others

Out = Annotated[
    Path | None,
    typer.Option("--out", help="The folder to make. Default: DIR.card; with --json nothing is written without it."),
]
Recipient = Annotated[
    str | None, typer.Option("--recipient", help="Who is to get the release. Default: a line to fill in.")
]
NoteOption = Annotated[
    str | None, typer.Option("--note", help="A line to add, such as where an audit of public data is kept.")
]
WithLedger = Annotated[
    bool,
    typer.Option(
        "--ledger", help="Add what all releases in your ledger cost together. Such a card is for your eyes only."
    ),
]


def card(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a release, or of statistics.")],
    out: Out = None,
    recipient: Recipient = None,
    note: NoteOption = None,
    ledger: WithLedger = False,
    as_json: AsJson = False,
) -> None:
    """Check a release as `verify` does, and write a card of it: what leaves, what is promised and what is not, what it
    cost, how it was checked, what is assumed, and lines to sign. No figure on it is computed from the
    records, but for their number and for how many rows a screen dropped."""
    look_at(folder / "manifest.json", "a release")
    import mixveil

    where = Path(f"{folder}.card") if out is None and not as_json else out
    made = mixveil.card(folder, where, recipient=recipient, note=note, ledger=mixveil.Ledger() if ledger else None)
    if as_json:
        print_json(made.whole)
        return
    _release.show(folder, made.checked.stated)
    warn_of_others(made.checked.others, "release")
    say(f"Card, to print and sign: {escape(str(made.page))}")
