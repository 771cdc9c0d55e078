"""What the verbs say of the ledger, and the options that concern it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mixveil.cli import _common
from mixveil.errors import ArgumentError

if TYPE_CHECKING:
    from mixveil.ledger import Owners, Spent
    from mixveil.projection import Projection

Budget = Annotated[
    float | None,
    typer.Option(
        "--budget",
        help="Refuse if any record would have spent more than this μ in all its releases.",
        show_default=False,
    ),
]
To = Annotated[str | None, typer.Option("--to", help="To whom it goes, for your ledger.", show_default=False)]
LabelEpsilon = Annotated[
    float | None,
    typer.Option("--label-epsilon", help="Randomise the labels first: each is ε-DP. Else all are shown."),
]


def owners_of(rows: Any) -> Owners:
    """Who the rows are, by the ledger's fingerprints of all their images."""
    from mixveil.ledger import Ledger

    with _common.progress("reading", len(rows)) as step:
        return Ledger().owners(rows, step)


def summary(owners: Owners) -> dict[str, object]:
    """What these rows have spent, for `--json`."""
    from mixveil.ledger import Ledger

    book = Ledger()
    spent, budget = book.spent(owners), book.budget
    return {
        "releases": spent.releases,
        "total_mu": None if spent.unbounded else spent.most,
        "median_mu": None if spent.unbounded else spent.median,
        "without_promise": list(spent.unbounded),
        "label_epsilon": finite(spent.label_epsilon),
        "budget": budget,
        "left": None if budget is None else spent.left(budget),
    }


def finite(value: float) -> float | None:
    return value if value < float("inf") else None


def in_words(spent: Spent, budget: float | None, unit: str) -> str:
    """What all releases so far cost some records, in a sentence. unit: what it is counted for."""
    if not spent.releases:
        return "Your ledger has no release of these records."
    count = f"{spent.releases} release{'s' if spent.releases > 1 else ''}"
    if spent.unbounded:
        names = ", ".join(identity[:8] for identity in spent.unbounded[:5])
        more = f" and {len(spent.unbounded) - 5} more" if len(spent.unbounded) > 5 else ""
        return (
            f"Your ledger has {count} of these records, of which {names}{more} promise nothing: whoever got all is "
            f"bound by no μ."
        )
    labels = "" if math.isinf(spent.label_epsilon) else f", its label {spent.label_epsilon:.4g}-DP"
    left = "" if budget is None else f"; of a budget of {budget:g}, {spent.left(budget):.4g} is left"
    return f"Your ledger has {count} of these records: together {unit} is {spent.most:.4g}-GDP{labels}{left}."


def known_owners(rows: Any) -> Owners | None:
    """The same, where there is a ledger: to look at it makes none."""
    from mixveil.ledger import Ledger

    return owners_of(rows) if Ledger().path.exists() else None


def sentence(owners: Owners, more: float | None = None) -> str:
    """What the ledger says of these rows. more: the μ of a release that their owner thinks of."""
    from mixveil.ledger import Ledger
    from mixveil.theory import gdp

    book = Ledger()
    spent, unit = book.spent(owners), "a record" if owners.units is None else "a unit"
    said = in_words(spent, book.budget, unit)
    if more is None or spent.unbounded or not spent.releases:
        return said
    return f"{said} With μ = {more:g} more it would be {gdp.compose([spent.most, more]):.4g}."


def shown_labels(owners: Owners, label_epsilon: float | None) -> list[str]:
    """What the owner must be told who randomises labels that were shown before."""
    from mixveil.ledger import Ledger

    if label_epsilon is None or math.isfinite(Ledger().spent(owners).label_epsilon):
        return []
    return ["labels of these records were shown in an earlier release: whoever has that learns nothing less by ε now"]


def earlier_statistics(projection: Projection, party: str) -> list[str]:
    """What the owner must be told of the statistics that found a projection's directions, before more is sent."""
    from mixveil.ledger import Ledger

    if not projection.spent:
        return []
    asked = {identity for identity, _, _ in projection.spent}
    made = [entry for entry in Ledger().entries() if entry.id in asked]
    if not made:
        return ["none of the statistics that found these directions are in your ledger: if you sent any, they add up"]
    if party not in {entry.party for entry in made}:
        names = ", ".join(sorted({repr(entry.party) for entry in made}))
        raise ArgumentError(f"the statistics made here were sent as {names}, not as {party!r}: give the same --party")
    return []
