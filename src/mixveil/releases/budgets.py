"""Whether a release is within its owner's budgets, by all that the ledger has: releases, refusals, reservations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from mixveil.core import checks
from mixveil.core.errors import ArgumentError, BudgetError
from mixveil.core.wording.sentences import plural
from mixveil.releases import reservations, spending
from mixveil.releases.ledger_file import Entry, Tables
from mixveil.releases.spending import Made, Owners, Spent, Total

# Stand for refused releases, and for reservations, among the ids of releases that promise nothing.
_REFUSED, _RESERVED = "refused", "reserved"

Against = Literal["records", "everything"]
"""What a budget is compared with: `records`, what all releases cost any of the rows at hand; `everything`, what all
releases in the ledger cost together (`Total`), of any rows. Where a server learns of the decision only the second is
safe: the first depends on which records the data hold."""

Limits = Mapping[str, float | None]
"""Budgets by their names, `budget` and `label_budget`; None: there is none."""


@dataclass(frozen=True)
class Asked:
    """A release that is about to be made.

    Attributes:
        given: The budgets that were given for it, beside the standing ones.
        plan: Whose reservation pays for it; other plans' reservations count as spent.
    """

    entry: Entry
    owners: Owners
    given: Limits
    against: Against = "records"
    plan: str | None = None

    def __post_init__(self) -> None:
        if self.against not in ("records", "everything"):
            raise ArgumentError(f"against must be records or everything, got {self.against!r:.60}")

    @property
    def named(self) -> bool:
        """Whether it names units."""
        return self.owners.units is not None


class Refusal(NamedTuple):
    """Why a release is refused. counts: whether the attempt counts as a release where a server asks."""

    error: BudgetError
    counts: bool


def given(budget: float | None, label_budget: float | None = None) -> Limits:
    """Budgets that a caller gives, checked."""
    limits = {"budget": budget, "label_budget": label_budget}
    for name, value in limits.items():
        if value is not None:
            checks.finite_positive(name, value)
    return limits


def decide(tables: Tables, asked: Asked) -> tuple[Spent, Refusal | None]:
    """What all releases cost its rows with this one; and why it is refused, where it is beyond a budget."""
    entry, owners = asked.entry, asked.owners
    limits = {name: _stricter(value, tables.limit(name)) for name, value in asked.given.items()}
    held = reservations.held(reserved for plan, reserved in tables.plans().items() if plan != asked.plan)
    units = spending.units_of(owners, tables.made)
    before = spending.spent_by(units, tables.made(), held)
    after = spending.add(before, units, Made(entry.id, entry.cost, entry.label_epsilon, owners, entry.shared_by))
    try:
        if asked.against == "records":
            who = f"a {after.unit} would have", " of these records"
            _check_budgets(limits, before.worst, after.worst, entry, *who)
        else:
            so_far = total(tables, units=asked.named, but=asked.plan)
            both = so_far, so_far.plus(entry.id, stated(entry), entry.label_epsilon, entry.shared_by)
            _check_budgets(limits, *both, entry, "all releases in your ledger would have", "")
    except BudgetError as error:
        if asked.against == "everything" or not _possible(limits, entry, held.mu):
            return after, Refusal(error, False)
        counts = "For jobs with a server this attempt counts as a release, because a refusal would tell of a record"
        return after, Refusal(BudgetError(f"{error}. {counts}"), True)
    return after, None


def total(tables: Tables, *, units: bool, but: str | None = None) -> Total:
    """What all releases cost together. units: what they cost a unit; but: a plan whose reservation does not count.

    All kinds of entry count alike: each holds labels. A projection is entered where it was fitted on private data,
    and then shows their classes' means; rounds of updates show gradients by label. A release that was refused because a
    record had spent its budget counts as if it had been made: whether it was made would tell of that record. So does
    what is held for a plan."""
    found, nameless = spending.NO_COST, tables.nameless() if units else set()
    for entry in tables.entries():
        promised = None if entry.id in nameless else stated(entry)
        found = found.plus(entry.id, promised, entry.label_epsilon, entry.shared_by)
    tried = tables.refused()
    plans = [reserved for plan, reserved in tables.plans().items() if plan != but]
    mu, shared = math.hypot(found.mu, tried.mu), found.shared
    for reserved in plans:
        mu, shared = spending.composed(mu, shared, reserved.left, reserved.shared_by)
    without = {
        _RESERVED: units and any(reserved.left and not reserved.named for reserved in plans),
        _REFUSED: tried.unbounded or (units and tried.nameless),
    }
    return replace(
        found,
        mu=float(mu),
        shared={party: float(item) for party, item in shared.items()},
        unbounded=(*found.unbounded, *(name for name, unbounded in without.items() if unbounded)),
        label_epsilon=found.label_epsilon + (math.inf if tried.shown else tried.labels),
        refused=any(tried),
        reserved=reservations.held(plans).mu,
    )


def stated(entry: Entry) -> float | None:
    """The μ that a release promises a unit; None where it promises nothing, or no cost is known."""
    return None if entry.cost is None else entry.stated


def _possible(limits: Limits, entry: Entry, held: float) -> bool:
    """Whether the release would be within these budgets of other records: then its refusal tells of these. held: what
    is reserved, and counts for every record."""
    mu = stated(entry)
    costs = {"budget": None if mu is None else math.hypot(mu, held), "label_budget": entry.label_epsilon}
    bounded = [(costs[name], limit) for name, limit in limits.items() if limit is not None]
    return all(cost is not None and spending.within(cost, limit) for cost, limit in bounded)


def _stricter(*limits: float | None) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _check_budgets(limits: Limits, before: Total, after: Total, entry: Entry, subject: str, whose: str) -> None:
    """Refuse a release beyond a budget. subject, whose: who spends, and the releases that count, for the message."""
    budget, label_budget = limits["budget"], limits["label_budget"]
    if budget is not None and after.unbounded:
        first = after.unbounded[0]
        what = "this release" if first == entry.id else f"the release {first[:8]}{whose}"
        if first == _REFUSED:
            what = "a release that was refused because a record had spent its budget"
        if first == _RESERVED:
            what = "what is reserved for releases that name no units"
        raise BudgetError(f"{what} promises nothing, so no budget can hold: it is {budget:g}, and nothing was released")
    if budget is not None and not spending.within(after.mu, budget):
        reserved = " or reserved" if before.reserved else ""
        raise BudgetError(
            f"{subject} spent μ = {after.mu:.4g} of a budget of {budget:g}: {before.mu:.4g} is spent in "
            f"{plural(before.releases, 'release')}{reserved}, {before.left(budget):.4g} is left; nothing was released"
        )
    covered = entry.label_epsilon == 0  # its μ pays for its labels, whatever others showed of them
    if label_budget is None or covered or spending.within(after.label_epsilon, label_budget):
        return
    if entry.kind in ("representations", "updates"):
        raise BudgetError(
            f"what this release sends may show labels, so no label budget can hold: it is {label_budget:g}, and "
            f"nothing was released"
        )
    if entry.label_epsilon is None or math.isinf(before.label_epsilon):
        what = "this release shows" if entry.label_epsilon is None else f"an earlier release{whose} shows"
        raise BudgetError(
            f"{what} labels as they are, so no label budget can hold: it is {label_budget:g}, and nothing was "
            f"released. Protect labels with --label-epsilon"
        )
    raise BudgetError(
        f"{subject} spent ε = {after.label_epsilon:.4g} of a label budget of {label_budget:g}: "
        f"{before.label_epsilon:.4g} is spent in {plural(before.releases, 'release')}; nothing was released"
    )
