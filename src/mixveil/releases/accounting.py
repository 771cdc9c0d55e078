"""What a ledger says of some rows: notes for their owner, figures for programs, and refusals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from mixveil.core.errors import ArgumentError, PrivateFactError, WrongTruthError
from mixveil.core.watching import Watch, unwatched
from mixveil.core.wording.notes import Note, note
from mixveil.core.wording.sentences import plural
from mixveil.releases.ledger import Entry, Ledger
from mixveil.releases.spending import Owners, Standing, Total, within

if TYPE_CHECKING:
    from mixveil.core.types import Dataset, Release
    from mixveil.features.projection import Projection

CHALLENGE = "challenge"
"""The kind of an entry: images that are shown in the end."""

_NAMED = 5  # releases that a sentence names
_LEAST = 1e-3  # of μ, that a sentence calls left


def owners_of(ledger: Ledger, rows: Dataset, watch: Watch = unwatched) -> Owners:
    """The owners of rows, by the ledger's fingerprints of all their images."""
    with watch("reading", len(rows)) as step:
        return ledger.owners(rows, step)


def known_owners(ledger: Ledger, rows: Dataset, watch: Watch = unwatched) -> Owners | None:
    """The owners of rows, where there is a ledger; none is made for the question."""
    return owners_of(ledger, rows, watch) if ledger.exists() else None


@contextmanager
def private_projection(ledger: Ledger, features: Dataset, watch: Watch = unwatched) -> Iterator[None]:
    """Enter a projection of private features before it is made: it promises nothing, and may be sent. It is entered for
    the images that the features were computed from."""
    from mixveil.core import randomness  # slow to load

    identity, rows = randomness.release_id(), len(features)
    entry = Entry(identity, "projection", "party", None, "private-projection", None, None, None, None, rows)
    with ledger.making(entry, owners_of(ledger, features, watch)):
        yield


def check_never_released(ledger: Ledger, owners: Owners) -> None:
    """Refuse images of which the ledger has a release that is no challenge: their owner meant to keep them."""
    challenges = {entry.id for entry in ledger.entries() if entry.kind == CHALLENGE}
    spent = ledger.spent(owners)
    others = spent.releases - len(challenges & {*spent.unbounded})
    if others:
        raise PrivateFactError(
            f"your ledger has {plural(others, 'release')} of these images, and a challenge shows them in the end: give "
            f"images that may be shown, or, if these may, name another state folder (MIXVEIL_STATE)"
        )


# What the ledger says


def summary(standing: Standing) -> dict[str, Any]:
    """What these rows have spent, for JSON."""
    spent, total = standing.spent, standing.total
    return {
        "releases": spent.releases,
        "per": spent.unit,
        "total_mu": None if spent.unbounded else spent.most,
        "median_mu": None if spent.unbounded else spent.median,
        "without_promise": list(spent.unbounded),
        "labels_shown": math.isinf(spent.label_epsilon),
        "label_epsilon": _finite(spent.label_epsilon),
        "labels_covered": spent.covered,
        "reserved": spent.reserved,
        "budget": standing.budget,
        "label_budget": standing.label_budget,
        "left": None if standing.budget is None else spent.worst.left(standing.budget),
        "everything": {
            "releases": total.releases,
            "total_mu": None if total.unbounded else total.mu,
            "label_epsilon": _finite(total.label_epsilon),
        },
    }


def spent_note(standing: Standing, whose: str = "these-records") -> Note:
    """What all releases so far cost some records, and one more where one is planned."""
    spent = standing.spent
    if not spent.releases:
        return note("ledger-no-release", whose=note(whose))
    if spent.unbounded:
        more = len(spent.unbounded) - _NAMED
        names = ", ".join(identity[:8] for identity in spent.unbounded[:_NAMED]) + (f" and {more}" if more > 0 else "")
        return note("ledger-unbounded", releases=spent.releases, whose=note(whose), names=names)
    labels = _labels(spent.worst, note("ledger-labels-of-unit", unit=spent.unit, epsilon=spent.label_epsilon))
    figures = {"releases": spent.releases, "whose": note(whose), "unit": spent.unit, "mu": spent.most}
    told = _resting(note("ledger-spent", **figures, left=_left(standing), labels=labels), spent.shared)
    return told if standing.after is None else note("with-one-more", spent=told, mu=standing.after.most)


def total_note(total: Total) -> Note:
    """What all releases cost together, with which a budget is compared where a server asks."""
    if total.unbounded:
        return note("total-unbounded")
    labels = _labels(total, note("label-of-record", epsilon=total.label_epsilon))
    code = "total-spent-with-refused" if total.refused else "total-spent"
    return _resting(note(code, mu=total.mu, releases=total.releases, labels=labels), total.shared)


def _resting(told: Note, shared: Mapping[str, Any]) -> Note:
    """With the condition that shared noise has. shared: a figure of each party, or those of units."""
    return note("resting-on-others", spent=told) if any(np.any(mu) for mu in shared.values()) else told


def _labels(total: Total, randomised: Note) -> Note:
    """What is known of labels. randomised: what their ε says."""
    if math.isinf(total.label_epsilon):
        return note("labels-shown-before")
    if not total.covered:
        return randomised
    return note("labels-partly-covered", labels=randomised) if total.label_epsilon else note("labels-covered-before")


def _left(standing: Standing) -> Note:
    left, reserved = _left_of_budget(standing), standing.spent.reserved
    return note("with-reserved", mu=reserved, left=left) if reserved else left


def _left_of_budget(standing: Standing) -> Note:
    spent, budget = standing.spent, standing.budget
    if budget is None:
        return note("no-budget")
    if not within(spent.most, budget):
        return note("budget-exceeded", budget=budget)
    left = spent.worst.left(budget)
    if left < _LEAST:
        return note("budget-used-up", budget=budget)
    more = math.floor(left**2 + 1e-9)  # costs add up as squares
    if more < 1:
        return note("budget-left", budget=budget, left=left)
    return note("budget-left-for-several", budget=budget, left=left, more=more)


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value


# What an owner should know before something is released


def copies(owners: Owners) -> list[Note]:
    """Data that hold an image several times."""
    return [note("copies-in-data", rows=owners.copies)] if owners.copies else []


def labels_were_shown(ledger: Ledger, owners: Owners, label_epsilon: float | None) -> list[Note]:
    """Labels that are randomised now, and were shown before."""
    if label_epsilon is None or math.isfinite(ledger.spent(owners).label_epsilon):
        return []
    return [note("labels-were-shown")]


def public_was_released(ledger: Ledger, public: Dataset, watch: Watch = unwatched) -> list[Note]:
    """Public data that hold records of earlier releases: those are hardly public."""
    owners = known_owners(ledger, public, watch)
    known = 0 if owners is None else int(np.isin(owners.records, ledger.everyone().records).sum())
    return [note("public-was-released", known=known, rows=len(public))] if known else []


def earlier_statistics(ledger: Ledger, projection: Projection, party: str) -> list[Note]:
    """The statistics that found a projection's directions: their cost adds up to what is sent now, under one name."""
    if not projection.spent:
        return []
    asked = {used.id for used in projection.spent}
    made = [entry for entry in ledger.entries() if entry.id in asked]
    if not made:
        return [note("statistics-not-in-ledger")]
    if party not in {entry.party for entry in made}:
        names = ", ".join(sorted({repr(entry.party) for entry in made}))
        raise ArgumentError(f"party = {party!r}: the statistics made here were sent as {names}; give the same name")
    return []


def check_made_of(ledger: Ledger, releases: tuple[Release, ...], owners: Owners | None) -> None:
    """Refuse an audit of other data than those that a release was made of: it would say that all is well."""
    if owners is None:
        return
    for release in releases:
        if (made_of := ledger.owners_of(release.id)) is None:
            continue
        if len(made_of.records) != len(owners.records) or not np.array_equal(made_of.records, owners.records):
            same = int(np.isin(owners.records, made_of.records).sum())
            raise WrongTruthError(
                f"release {release.id[:8]} was made of other data, or in another order: {same:,} of these "
                f"{len(owners.records):,} images are among its {len(made_of.records):,}"
            )
        if owners.units is not None and made_of.units is not None and not np.array_equal(made_of.units, owners.units):
            raise ArgumentError(f"release {release.id[:8]} was made for other units than these")
