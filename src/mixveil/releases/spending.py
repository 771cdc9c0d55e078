"""Whose the rows of releases are, and what all releases together cost these owners. Numbers in, numbers out.

A row belongs to the unit that its release names for it; without a name, to every unit that was ever named for its
image. A row under the name of another unit counts only where a unit's image is in a release under other names alone:
then the unit was renamed. Where no unit is known an image is a unit by itself, with all its copies. A question about
some rows is answered for all units that their images were ever named as.

Costs add up as squares, but for releases whose noise several parties of one ledger share: a record of theirs may be in
one sum for each of them, under the noise of one sum. Those add up as they are over parties (`theory.shared_noise`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mixveil.core.types import Cost

Prints = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Owners:
    """Whose the rows of a data set are. records: (n,) fingerprints of images; units: (n,) fingerprints of units."""

    records: Prints = field(repr=False)
    units: Prints | None = field(default=None, repr=False)

    @property
    def copies(self) -> int:
        """How many rows hold an image that an earlier row holds."""
        return len(self.records) - len(np.unique(self.records))


class Made(NamedTuple):
    """A release: what it cost (None: no bound), the ε of its labels (None: shown; 0: covered), and who its rows are.
    shared_by: its party, where it shares its noise with others."""

    id: str
    cost: Cost | None
    label_epsilon: float | None
    owners: Owners
    shared_by: str | None = None


class Held(NamedTuple):
    """The μ that is held for releases that are not made yet. shared: the part of it that shares noise, by party."""

    mu: float
    shared: Mapping[str, float]


NOTHING_HELD = Held(0.0, {})


def composed(mu: Any, shared: Mapping[str, Any], cost: Any, by: str | None) -> tuple[Any, Mapping[str, Any]]:
    """What is spent after one cost more: √(Σμ² + (Σ s)²), where s is √Σμ² of what a party shares the noise of.

    Figures, or arrays of them by unit. mu: so far; shared: s by party; by: the party that shares the noise of this
    cost, None where it has noise of its own. s² grows by cost², and (Σ s)² by twice the other parties' s in addition.

    >>> [float(composed(4.0, {"a": 4.0}, 3.0, by)[0]) for by in (None, "a", "b")]
    [5.0, 5.0, 7.0]
    """
    if by is None:
        return np.hypot(mu, cost), shared
    before, others = shared.get(by, 0.0), sum(item for party, item in shared.items() if party != by)
    after = np.hypot(before, cost)
    return np.hypot(mu, np.sqrt(cost * cost + 2 * others * (after - before))), {**shared, by: after}


Releases = Callable[[], Iterable[Made]]
"""All releases, as often as they are asked for: they are read one by one, never held together."""


@dataclass(frozen=True)
class Total:
    """What all releases of a ledger cost together, as if every record were in each of them. No record, no fingerprint
    and no number of rows enters it: a decision that follows from it tells nothing of the data.

    Attributes:
        mu: What the releases promise a unit together (a record, where it names no units), `composed`.
        unbounded: Ids of the releases that promise nothing; where units are asked about, nothing to a unit.
        label_epsilon: Σε of one record's label; ∞ where any release shows labels as they are.
        releases: How many there are, finished or not.
        refused: Whether the figures also count releases that were refused because a record had spent its budget: their
            absence would tell of that record.
        reserved: The part of mu that is held for plans, and not spent yet.
        covered: Whether the μ of any release covers its labels too: label_epsilon says nothing of those.
        shared: The part of mu that shares noise, by party.
    """

    mu: float
    unbounded: tuple[str, ...]
    label_epsilon: float
    releases: int
    refused: bool = False
    reserved: float = 0.0
    covered: bool = False
    shared: Mapping[str, float] = field(default_factory=dict)

    def left(self, budget: float) -> float:
        """The largest μ that one release more can promise."""
        return 0.0 if self.unbounded else math.sqrt(max(0.0, budget**2 - self.mu**2))

    def plus(
        self, identity: str, stated: float | None, label_epsilon: float | None, shared_by: str | None = None
    ) -> Total:
        """The same with one release more. stated: its μ of a unit; label_epsilon: of a label (None: no bound);
        shared_by: its party, where it shares its noise."""
        mu, shared = composed(self.mu, self.shared, 0.0 if stated is None else stated, shared_by)
        return replace(
            self,
            mu=float(mu),
            shared={party: float(item) for party, item in shared.items()},
            unbounded=(*self.unbounded, identity) if stated is None else self.unbounded,
            label_epsilon=self.label_epsilon + (math.inf if label_epsilon is None else label_epsilon),
            releases=self.releases + 1,
            covered=self.covered or label_epsilon == 0,
        )


NO_COST = Total(0.0, (), 0.0, 0)


def within(spent: float, budget: float) -> bool:
    """Whether a budget holds, up to rounding. What is not a number is within none."""
    return spent <= budget * (1 + 1e-9)


@dataclass(frozen=True)
class Spent:
    """What releases cost some rows' units together.

    Attributes:
        mu: (units,) by the releases that promise something, and by what is reserved.
        unbounded: Ids of the releases that promise nothing.
        label_epsilon: The largest sum over a unit's labels; ∞ where a label was shown as it is.
        releases: How many hold any of these units' rows.
        named: Whether the owner named any of the units.
        reserved: The part of every mu that is held for plans, as if each of these rows were in all of them. It is the
            μ that a plan states; what an entry costs copies of an image is counted once it is entered.
        covered: Whether the μ of any of the releases covers its labels too: label_epsilon says nothing of those.
        shared: The part of mu that shares noise, by party: (units,) each.
    """

    mu: npt.NDArray[np.float64] = field(repr=False)
    unbounded: tuple[str, ...]
    label_epsilon: float
    releases: int
    named: bool
    reserved: float = 0.0
    covered: bool = False
    shared: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict, repr=False)

    @property
    def unit(self) -> str:
        return "unit" if self.named else "record"

    @property
    def most(self) -> float:
        return float(self.mu.max(initial=self.reserved))

    @property
    def worst(self) -> Total:
        """The figures of the unit that has spent most."""
        figures = (self.most, self.unbounded, self.label_epsilon, self.releases)
        return Total(*figures, reserved=self.reserved, covered=self.covered)

    @property
    def median(self) -> float:
        return float(np.median(self.mu)) if len(self.mu) else 0.0


@dataclass(frozen=True)
class Standing:
    """What a ledger says of some rows, as it is at one moment.

    Attributes:
        spent: What all releases cost these rows.
        after: The same with one release more, where one is planned.
        total: What all releases in the ledger cost together.
        budget, label_budget: The standing budgets of μ and of labels' ε, if there are any.
    """

    spent: Spent
    after: Spent | None
    total: Total
    budget: float | None
    label_budget: float | None


@dataclass(frozen=True)
class Units:
    """The units that a question is about. names: (units,) sorted; records, number: all images that were ever theirs, as
    pairs (image, number of the unit), each once and sorted by image."""

    names: Prints
    records: Prints
    number: Numbers
    named: bool


def spent(asked: Owners, releases: Releases, held: Held = NOTHING_HELD) -> Spent:
    """What all these releases cost the units of some rows. held: for other releases."""
    return spent_by(units_of(asked, releases), releases(), held)


def spent_by(units: Units, releases: Iterable[Made], held: Held = NOTHING_HELD) -> Spent:
    """What these releases cost some units."""
    count = len(units.names)
    shared = {party: np.full(count, mu) for party, mu in held.shared.items()}
    nothing = Spent(np.full(count, held.mu), (), 0.0, 0, units.named, held.mu, shared=shared)
    return reduce(lambda before, made: add(before, units, made), releases, nothing)


def units_of(asked: Owners, releases: Releases) -> Units:
    """The units of some rows: as they are named now, and as their images were ever named; else an image is a unit by
    itself. With all other images of the same units."""
    known = [] if asked.units is None else [asked.units]
    nameless = np.ones(len(asked.records), bool) if asked.units is None else np.zeros(len(asked.records), bool)
    for owners in _named(releases):
        known.append(_array(owners.units)[np.isin(owners.records, asked.records)])
        if asked.units is None:
            nameless &= ~np.isin(asked.records, owners.records)
    alone = asked.records[nameless]
    names = np.unique(np.concatenate([*known, alone]))
    pairs = [(alone, np.searchsorted(names, alone))]
    if asked.units is not None:
        pairs.append((asked.records, np.searchsorted(names, asked.units)))
    for owners in _named(releases):
        units = _array(owners.units)
        mine = np.isin(units, names)
        pairs.append((owners.records[mine], np.searchsorted(names, units[mine])))
    records, number = (np.concatenate(column) for column in zip(*pairs, strict=True))
    order = np.lexsort((number, records))
    records, number = records[order], number[order].astype(np.int64)
    first = np.ones(len(records), bool)
    first[1:] = (records[1:] != records[:-1]) | (number[1:] != number[:-1])
    return Units(names, records[first], number[first], any(len(units) for units in known))


def _named(releases: Releases) -> Iterator[Owners]:
    return (made.owners for made in releases() if made.owners.units is not None)


def add(before: Spent, units: Units, made: Made) -> Spent:
    """What is spent after one release more."""
    by_name, by_image = _rows(units, made.owners)
    rows = by_name + by_image
    if not rows.any():
        return before
    label = math.inf if made.label_epsilon is None else made.label_epsilon * int(rows.max())
    mu, shared, unbounded = before.mu, before.shared, before.unbounded
    if made.cost is None:
        unbounded = (*unbounded, made.id)
    else:
        apart = (by_image == 0) | (rows <= 1)  # only rows that were named as one unit were kept apart
        times = rows.astype(np.float64) ** made.cost.group_exponent
        if not made.cost.group_exponent:  # rows under one name were clipped together, those under others were not
            times = (by_name > 0).astype(np.float64) + by_image
        cost = np.where(apart, made.cost.mu, made.cost.mu_if_paired) * times
        mu, shared = composed(mu, shared, cost, made.shared_by)
    return replace(
        before,
        mu=mu,
        shared=shared,
        unbounded=unbounded,
        label_epsilon=before.label_epsilon + label,
        releases=before.releases + 1,
        covered=before.covered or made.label_epsilon == 0,
    )


def _rows(units: Units, owners: Owners) -> tuple[Numbers, Numbers]:
    """(units,) how many rows of a release are each unit's by name, and how many others are by their image."""
    count = len(units.names)
    if not count or not len(owners.records):
        return np.zeros(count, np.int64), np.zeros(count, np.int64)
    if owners.units is None:
        images, times = np.unique(owners.records, return_counts=True)
        return np.zeros(count, np.int64), _summed(units, _looked_up(units.records, images, times), count)
    place = np.searchsorted(units.names, owners.units)
    mine = (place < count) & (units.names[np.minimum(place, count - 1)] == owners.units)
    by_name = np.bincount(place[mine], minlength=count)
    # Of each image, the most rows under one name; and no image that the unit has here under its own.
    pairs, first, times = np.unique(paired(owners.records, owners.units), return_index=True, return_counts=True)
    images = owners.records[first]
    order = np.argsort(images)
    starts = np.flatnonzero(np.r_[True, images[order][1:] != images[order][:-1]])
    most = np.maximum.reduceat(times[order], starts)
    found = _looked_up(units.records, images[order][starts], most)
    here = np.isin(paired(units.records, units.names[units.number]), pairs)
    return by_name, _summed(units, np.where(here, 0, found), count)


def _looked_up(asked: Prints, known: Prints, values: Numbers) -> Numbers:
    """(asked,) the value of each in a sorted list; 0 where it is not in it."""
    place = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return np.where(known[place] == asked, values[place], 0)


def paired(records: Prints, units: Prints) -> Prints:
    """One number for an image and its unit. They are fingerprints already: two pairs coincide as rarely as those do."""
    return records ^ (units * np.uint64(0x9E3779B97F4A7C15))


def _summed(units: Units, values: Numbers, count: int) -> Numbers:
    return np.bincount(units.number, weights=values, minlength=count).astype(np.int64)


def _array(units: Prints | None) -> Prints:
    return np.empty(0, np.uint64) if units is None else units
