"""The ledger: what was released before, and what it cost each record. It stays with the owner of the data.

Every release is entered before its bytes exist and completed after: a try that died counts. A record is known by an
HMAC of its image under a key that never leaves the state folder, a unit (a patient) by an HMAC of its name; so one
image more or less resets nothing, and the file shows no image. Costs add up per record, or per unit where units are
named: √Σμ². A retouched image counts as a new record; named units do not have this gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from mixveil.core import checks
from mixveil.core.errors import (
    ArgumentError,
    BudgetError,
    LedgerError,
    MismatchError,
    OutputError,
    StateError,
    UnreadableImageError,
)
from mixveil.core.types import Cost, Dataset, Progress
from mixveil.core.wording.sentences import plural
from mixveil.releases import spending, traces
from mixveil.releases.ledger_file import CODE, Entry, LedgerFile, Tables, mac64
from mixveil.releases.spending import Made, Owners, Prints, Spent, Standing, Total

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
_REFUSED = "refused"  # stands for refused releases among the ids of releases that promise nothing

__all__ = ["Against", "Entry", "Ledger"]

Against = Literal["records", "everything"]
"""What a budget is compared with: `records`, what all releases cost any of the rows at hand; `everything`, what all
releases in the ledger cost together (`Total`), of any rows. Where a server learns of the decision only the second is
safe: the first depends on which records the data hold."""

_BLOCK_ROWS = 16  # images are read at their own size, which may be large whatever the rows are


class Ledger:
    """The ledger of a state folder. It is made when something is entered for the first time."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = traces.state_folder() if folder is None else folder
        self._file = LedgerFile(self.folder)
        self.path = self._file.path

    def owners(self, rows: Dataset, progress: Progress = lambda _: None) -> Owners:
        """The owners of a data set's rows, by all its images. Images that cannot be read are all named in one error."""
        self._file.make()
        key, old = self._prints()
        records: list[Prints] = []
        broken: list[str] = []
        for index in _blocks(rows):
            try:
                records.append(_fingerprints(key, old, rows.originals(index)))
            except UnreadableImageError as error:
                broken += error.files
            progress(len(index))
        if broken:
            raise UnreadableImageError(*broken)
        units = None
        if rows.units is not None:
            from mixveil.data.privacy_units import normalised

            names = (normalised(name).encode("utf-8", "surrogatepass") for name in rows.units)
            units = np.array([mac64(key, b"unit", name) for name in names], np.uint64)
        return Owners(np.concatenate([np.empty(0, np.uint64), *records]), units)

    def confirm(self, rows: Dataset, owners: Owners) -> None:
        """Read all images again, before a release of them can leave, and refuse those that are not the images that were
        entered: another program may have changed the files meanwhile."""
        key, old = self._prints()
        for index in _blocks(rows):
            now = _fingerprints(key, old, rows.originals(index))
            changed = np.flatnonzero(now != owners.records[index.numpy()])
            if len(changed):
                raise MismatchError(
                    f"row {int(index[changed[0]])} is not the image that was entered in your ledger: the data changed "
                    f"while they were encoded. Leave them unchanged, and try again"
                )

    def _prints(self) -> tuple[bytes, Prints]:
        """The key of fingerprints, and the fingerprints that version 1 made."""
        with self._file.reading() as tables:
            return tables.key, tables.old_prints()

    @contextmanager
    def making(
        self,
        entry: Entry,
        owners: Owners,
        budget: float | None = None,
        *,
        label_budget: float | None = None,
        against: Against = "records",
    ) -> Iterator[None]:
        """Enter a release, make it in the block, and complete the entry. A try that fails counts, and its error says
        so."""
        self.enter(entry, owners, budget, label_budget=label_budget, against=against)
        try:
            yield
        except (OutputError, StateError, MismatchError) as error:
            raise type(error)(f"{error}. Nothing is left of it, but the try counts in your ledger") from None
        with suppress(LedgerError):  # it is entered: only the time of its completion would be missing
            self.finish(entry.id)

    def enter(
        self,
        entry: Entry,
        owners: Owners,
        budget: float | None = None,
        *,
        label_budget: float | None = None,
        against: Against = "records",
    ) -> Spent:
        """Enter a release that is about to be made, and return what all releases cost its rows then, this one included.
        A release beyond a budget of μ or of its labels' ε, the given one or the standing one, is refused."""
        _check_entry(entry, owners)
        if against not in ("records", "everything"):
            raise ArgumentError(f"against must be records or everything, got {against!r:.60}")
        given = {"budget": budget, "label_budget": label_budget}
        for name, value in given.items():
            if value is not None:
                checks.finite_positive(name, value)
        new = Made(entry.id, entry.cost, entry.label_epsilon, owners)
        refused: BudgetError | None = None
        with self._file.transaction() as tables:
            self._check_traces(tables)
            limits = {name: _stricter(value, tables.limit(name)) for name, value in given.items()}
            units = spending.units_of(owners, tables.made)
            before = spending.spent_by(units, tables.made())
            after = spending.add(before, units, new)
            try:
                if against == "records":
                    who = f"a {after.unit} would have", " of these records"
                    _check_budgets(limits, before.worst, after.worst, entry, *who)
                else:
                    total = _total(tables, owners.units is not None)
                    both = total, total.plus(entry.id, _stated(entry), entry.label_epsilon)
                    _check_budgets(limits, *both, entry, "all releases in your ledger would have", "")
            except BudgetError as error:
                refused = error
                if against == "records" and _possible(limits, entry):
                    tables.refuse(_stated(entry), entry.label_epsilon, named=owners.units is not None)
                    refused = BudgetError(
                        f"{error}. For jobs with a server this attempt counts as a release, because a refusal would "
                        f"tell of a record"
                    )
            else:
                tables.write(entry, owners)
        if refused is not None:
            raise refused
        return after

    def finish(self, release_id: str) -> None:
        """The release is there, whole."""
        with self._file.transaction() as tables:
            tables.finish(release_id)

    def spent(self, owners: Owners) -> Spent:
        """What all releases so far cost these rows."""
        return self._read(lambda: spending.spent(owners, list), lambda tables: spending.spent(owners, tables.made))

    def standing(self, owners: Owners, planned: Cost | None = None) -> Standing:
        """What the ledger says of these rows, read once. planned: the cost of a release that their owner thinks of."""

        def read(tables: Tables) -> Standing:
            spent, after = spending.spent(owners, tables.made), None
            if planned is not None and spent.releases:
                more = Made("planned", planned, None, owners)
                after = spending.spent(owners, lambda: chain(tables.made(), [more]))
            return Standing(spent, after, _total(tables, False), tables.limit("budget"), tables.limit("label_budget"))

        return self._read(lambda: Standing(spending.spent(owners, list), None, spending.NO_COST, None, None), read)

    def total(self, *, units: bool = False) -> Total:
        """What all releases cost together, as if every record were in each of them. Nothing in it depends on a record.
        units: what they cost a unit of several records; a release that names no units has no bound for those."""
        return self._read(lambda: spending.NO_COST, lambda tables: _total(tables, units))

    def everyone(self) -> Owners:
        """All rows of all releases, each image of each unit once."""
        nothing: list[Owners] = []
        owners = self._read(lambda: nothing, lambda tables: [made.owners for made in tables.made()])
        if not owners:
            return Owners(np.empty(0, np.uint64))
        records = np.concatenate([o.records for o in owners])
        units = np.concatenate([o.records if o.units is None else o.units for o in owners])
        first = np.unique(spending.paired(records, units), return_index=True)[1]
        records, units = records[first], units[first]
        named = records != units
        kept = named | ~np.isin(records, records[named])  # an image that has a unit somewhere is that unit's
        return Owners(records[kept], units[kept] if named.any() else None)

    def owners_of(self, release_id: str) -> Owners | None:
        """The owners of the rows of a release that was made here."""
        return self._read(lambda: None, lambda tables: tables.owners_of(release_id))

    def entries(self) -> list[Entry]:
        """All releases, in the order in which they were begun."""
        return self._read(list, lambda tables: tables.entries())

    @property
    def budget(self) -> float | None:
        """The standing budget, if the owner set one."""
        return self._read(lambda: None, lambda tables: tables.limit("budget"))

    def set_budget(self, budget: float) -> None:
        """From now on refuse what would bring any record beyond this μ in all."""
        self._set("budget", budget)

    @property
    def label_budget(self) -> float | None:
        """The standing budget of labels, if the owner set one."""
        return self._read(lambda: None, lambda tables: tables.limit("label_budget"))

    def set_label_budget(self, label_budget: float) -> None:
        """From now on refuse what would bring any label beyond this ε in all, and what shows labels as they are."""
        self._set("label_budget", label_budget)

    def _read(self, without: Callable[[], T], read: Callable[[Tables], T]) -> T:
        """What is read from the ledger; where there is none, what `without` says."""
        if not self.exists():
            return without()
        with self._file.reading() as tables:
            return read(tables)

    def _set(self, name: str, value: float) -> None:
        checked = checks.finite_positive(name, value)
        with self._file.transaction() as tables:
            tables.set(name, checked)

    def exists(self) -> bool:
        return self._file.exists()

    def _check_traces(self, tables: Tables) -> None:
        """Refuse an older copy of the ledger: releases were made here that it does not know."""
        known = {entry.id for entry in tables.entries()}
        for path in sorted((self.folder / "traces").glob("*.safetensors")):
            if path.stem not in known:
                raise LedgerError(
                    f"{self.path} may be an older copy: it does not know the release {path.stem[:8]}, whose trace is "
                    f"here. Restore the last copy; or move {path} away, if the release was not made here"
                )


def _total(tables: Tables, units: bool) -> Total:
    """All kinds of entry count alike: each holds labels. A projection is entered where it was fitted on private data,
    and then shows their classes' means; rounds of updates show gradients by label. A release that was refused because a
    record had spent its budget counts as if it had been made: whether it was made would tell of that record."""
    found, nameless = spending.NO_COST, tables.nameless() if units else set()
    for entry in tables.entries():
        found = found.plus(entry.id, None if entry.id in nameless else _stated(entry), entry.label_epsilon)
    tried = tables.refused()
    unbounded = tried.unbounded or (units and tried.nameless)
    return replace(
        found,
        mu=math.hypot(found.mu, tried.mu),
        unbounded=(*found.unbounded, *((_REFUSED,) if unbounded else ())),
        label_epsilon=found.label_epsilon + (math.inf if tried.shown else tried.labels),
        refused=any(tried),
    )


def _possible(limits: dict[str, float | None], entry: Entry) -> bool:
    """Whether the release would be within these budgets of other records: then its refusal tells of these."""
    costs = {"budget": _stated(entry), "label_budget": entry.label_epsilon}
    bounded = [(costs[name], limit) for name, limit in limits.items() if limit is not None]
    return all(cost is not None and spending.within(cost, limit) for cost, limit in bounded)


def _stated(entry: Entry) -> float | None:
    """The μ that a release promises a unit; None where it promises nothing, or no cost is known."""
    return None if entry.cost is None else entry.stated


def _check_entry(entry: Entry, owners: Owners) -> None:
    """Refuse what could not be counted."""
    for name, text in (("recipient", entry.recipient), ("party", entry.party), ("encoder", entry.encoder)):
        if text is not None and not (text.isprintable() and 0 < len(text) <= 1000):
            raise ArgumentError(f"{name} must be a printable name of at most 1000 characters, got {text!r:.60}")
    if not CODE.fullmatch(entry.kind):
        raise ArgumentError(f"kind must be a code of lower-case letters, digits and hyphens, got {entry.kind!r:.60}")
    if entry.sigma is not None and not (math.isfinite(entry.sigma) and entry.sigma >= 0):
        raise ArgumentError(f"sigma must be finite and not negative, got {entry.sigma}")
    if len(owners.records) != entry.rows:
        raise ArgumentError(f"{len(owners.records)} owners are given for {entry.rows} rows")
    figures = {"stated": entry.stated, "label_epsilon": entry.label_epsilon}
    if entry.cost is not None:
        figures |= {f"cost.{name}": value for name, value in asdict(entry.cost).items()}
        figures["cost.group_exponent"] = entry.cost.group_exponent or 1.0  # 0: a unit pays once
    for name, value in figures.items():
        if value is not None:
            checks.finite_positive(name, value)


def _stricter(*limits: float | None) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _check_budgets(
    limits: dict[str, float | None], before: Total, after: Total, entry: Entry, subject: str, whose: str
) -> None:
    """Refuse a release beyond a budget. subject, whose: who spends, and the releases that count, for the message."""
    budget, label_budget = limits["budget"], limits["label_budget"]
    if budget is not None and after.unbounded:
        first = after.unbounded[0]
        what = "this release" if first == entry.id else f"the release {first[:8]}{whose}"
        if first == _REFUSED:
            what = "a release that was refused because a record had spent its budget"
        raise BudgetError(f"{what} promises nothing, so no budget can hold: it is {budget:g}, and nothing was released")
    if budget is not None and not spending.within(after.mu, budget):
        raise BudgetError(
            f"{subject} spent μ = {after.mu:.4g} of a budget of {budget:g}: {before.mu:.4g} is "
            f"spent in {plural(before.releases, 'release')}, {before.left(budget):.4g} is left; nothing was released"
        )
    if label_budget is None or spending.within(after.label_epsilon, label_budget):
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


def _blocks(rows: Dataset) -> Iterator[Tensor]:
    import torch  # what a ledger says is shown without it

    yield from torch.split(torch.arange(len(rows)), _BLOCK_ROWS)


def _fingerprints(key: bytes, old: Prints, images: Sequence[Tensor]) -> Prints:
    """The fingerprints of images; of images that version 1 entered, those that it made."""
    from mixveil.data.fingerprint import old_pixels, pixels

    found = np.array([mac64(key, b"image", pixels(image)) for image in images], np.uint64)
    if len(old):
        before = np.array([mac64(key, b"image", old_pixels(image)) for image in images], np.uint64)
        found = np.where(np.isin(before, old), before, found)
    return found
