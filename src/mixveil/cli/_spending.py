"""What the verbs say of the ledger, and the options that concern it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mixveil.cli import _common
from mixveil.core.errors import ArgumentError

if TYPE_CHECKING:
    from mixveil.core.types import Cost
    from mixveil.data.opening import Images
    from mixveil.features.cache import Features
    from mixveil.features.projection import Projection
    from mixveil.releases.spending import Owners, Spent, Total

Budget = Annotated[
    float | None,
    typer.Option(
        "--budget",
        help="Refuse if any record would have spent more than this μ in all its releases.",
        show_default=False,
    ),
]
LabelBudget = Annotated[
    float | None,
    typer.Option(
        "--label-budget",
        help="Refuse if any record's labels (a unit's, with --unit) would have spent more than this ε in all releases, "
        "or if labels are shown as they are.",
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
    from mixveil.releases.ledger import Ledger

    with _common.progress("reading", len(rows)) as step:
        return Ledger().owners(rows, step)


@contextmanager
def counted() -> Iterator[None]:
    """Whoever stops a release that was begun is told what that means."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        _common.warn("stopped: nothing is left of a release that was begun, but it counts in your ledger")
        raise


def entered(features: Features) -> AbstractContextManager[None]:
    """Something is made of these features that promises their images nothing, and may be sent: it is entered first.
    They are entered as the images that they were computed from."""
    from mixveil.core import randomness
    from mixveil.releases.ledger import Entry, Ledger

    identity, rows = randomness.release_id(), len(features)
    entry = Entry(identity, "projection", "party", None, "private-projection", None, None, None, None, rows)
    return Ledger().making(entry, owners_of(features))


def summary(owners: Owners) -> dict[str, object]:
    """What these rows have spent, for `--json`."""
    from mixveil.releases.ledger import Ledger

    book = Ledger()
    spent, budget, total = book.spent(owners), book.budget, book.total()
    return {
        "releases": spent.releases,
        "per": spent.unit,
        "total_mu": None if spent.unbounded else spent.most,
        "median_mu": None if spent.unbounded else spent.median,
        "without_promise": list(spent.unbounded),
        "labels_shown": math.isinf(spent.label_epsilon),
        "label_epsilon": None if math.isinf(spent.label_epsilon) else spent.label_epsilon,
        "budget": budget,
        "label_budget": book.label_budget,
        "left": None if budget is None else spent.left(budget),
        "everything": {
            "releases": total.releases,
            "total_mu": None if total.unbounded else total.mu,
            "label_epsilon": None if math.isinf(total.label_epsilon) else total.label_epsilon,
        },
    }


def known_owners(rows: Any) -> Owners | None:
    """Who the rows are, where there is a ledger: to look at it makes none."""
    from mixveil.releases.ledger import Ledger

    return owners_of(rows) if Ledger().exists() else None


def in_words(spent: Spent, budget: float | None, what: str = "these records") -> str:
    """What all releases so far cost some records, in a sentence."""
    if not spent.releases:
        return f"Your ledger has no release of {what}."
    count = f"{spent.releases} release{'s' if spent.releases > 1 else ''}"
    if spent.unbounded:
        names = ", ".join(identity[:8] for identity in spent.unbounded[:5])
        more = f" and {len(spent.unbounded) - 5} more" if len(spent.unbounded) > 5 else ""
        verb = "promises" if len(spent.unbounded) == 1 else "promise"
        whole = f"Your ledger has {count} of {what}, of which {names}{more} {verb} nothing"
        return f"{whole}: whoever got all is bound by no μ."
    shown = math.isinf(spent.label_epsilon)
    labels = "labels are shown" if shown else f"the labels of a {spent.unit} together are {spent.label_epsilon:.4g}-DP"
    return (
        f"Your ledger has {count} of {what}: together a {spent.unit} is {spent.most:.4g}-GDP"
        f"{_left(spent, budget)}; {labels}."
    )


def everything(total: Total) -> str:
    """What all releases cost together, in a sentence: what a budget is compared with where a server asks."""
    if total.unbounded:
        return "Where a server asks, everything counts, and something promises nothing: no budget holds there."
    shown = math.isinf(total.label_epsilon)
    labels = "labels are shown" if shown else f"a record's label is {total.label_epsilon:.4g}-DP"
    count = "1 release" if total.releases == 1 else f"all {total.releases} releases"
    tried = ", and of what was refused for a record's sake" if total.refused else ""
    return f"Where a server asks, everything counts: μ = {total.mu:.4g} of {count}{tried}; {labels}."


def _left(spent: Spent, budget: float | None) -> str:
    from mixveil.releases.spending import within

    if budget is None:
        return ""
    if not within(spent.most, budget):
        return f", beyond the budget of {budget:g}"
    return f"; of a budget of {budget:g}, {spent.left(budget):.4g} is left"


def sentence(owners: Owners, planned: Cost | None = None, what: str = "these records") -> str:
    """What the ledger says of these rows. planned: the cost of a release that their owner thinks of."""
    from mixveil.releases.ledger import Ledger

    book = Ledger()
    spent = book.spent(owners)
    said = in_words(spent, book.budget, what)
    if planned is None or spent.unbounded or not spent.releases:
        return said
    return f"{said} With one more at this μ it would be {book.spent(owners, planned).most:.4g}."


def copies(owners: Owners) -> list[str]:
    """What the owner must be told whose data hold an image several times."""
    if not owners.copies:
        return []
    return [
        f"{owners.copies} row(s) hold an image that another row holds too (see `mixveil data check`): what is promised "
        f"covers one row, or the rows that you named as one person's; not copies that are named as others'"
    ]


def released_before(public: Images) -> list[str]:
    """What to say of public data that hold records of earlier releases: the ledger's images are hardly public."""
    import numpy as np

    from mixveil.releases.ledger import Ledger

    owners = known_owners(public)
    known = 0 if owners is None else int(np.isin(owners.records, Ledger().everyone().records).sum())
    if not known:
        return []
    return [
        f"{known:,} of these {len(public):,} images are records of releases in your ledger: are they public? A "
        f"projection is sent to everybody, and shows what it was fitted on without any noise"
    ]


def shown_labels(owners: Owners, label_epsilon: float | None) -> list[str]:
    """What the owner must be told who randomises labels that were shown before."""
    from mixveil.releases.ledger import Ledger

    if label_epsilon is None or math.isfinite(Ledger().spent(owners).label_epsilon):
        return []
    return ["labels of these records were shown in an earlier release: whoever has that learns nothing less by ε now"]


def earlier_statistics(projection: Projection, party: str) -> list[str]:
    """What the owner must be told of the statistics that found a projection's directions, before more is sent."""
    from mixveil.releases.ledger import Ledger

    if not projection.spent:
        return []
    asked = {used.id for used in projection.spent}
    made = [entry for entry in Ledger().entries() if entry.id in asked]
    if not made:
        return ["none of the statistics that found these directions are in your ledger: if you sent any, they add up"]
    if party not in {entry.party for entry in made}:
        names = ", ".join(sorted({repr(entry.party) for entry in made}))
        raise ArgumentError(f"the statistics made here were sent as {names}, not as {party!r}: give the same --party")
    return []
