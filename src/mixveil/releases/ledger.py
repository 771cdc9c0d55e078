"""What was released before, of which records, and what it cost them: a file that stays with its owner.

Every release is entered before its bytes exist and completed after: a try that died counts. A record is known by an
HMAC of its image under a key that never leaves the state folder, a unit (a patient) by one of its name; so one image
more or less resets nothing, and the file shows no image. Costs add up per record, or per unit where units are
named: √Σμ². An image that was retouched is a new one here; units are what is not fooled by that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

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
from mixveil.releases import spending, traces
from mixveil.releases.ledger_file import CODE, Entry, LedgerFile, Tables, mac64
from mixveil.releases.spending import Made, Owners, Prints, Spent, Standing, Total

if TYPE_CHECKING:
    from torch import Tensor

_REFUSED = "refused"  # stands for what was refused, among the ids of what promises nothing

__all__ = ["Against", "Entry", "Ledger"]

Against = Literal["records", "everything"]
"""What a budget is compared with: `records`, what all releases cost any of the rows at hand; `everything`, what all
releases in the ledger cost together (`Total`), of whichever rows. Where a server learns of the decision only the second
is safe: the first depends on which records the data hold."""

_BLOCK_ROWS = 16  # images are read at their own size, which may be large whatever the rows are


class Ledger:
    """The ledger of a state folder. It is made when something is entered for the first time."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = traces.state_folder() if folder is None else folder
        self._file = LedgerFile(self.folder)
        self.path = self._file.path

    def owners(self, rows: Dataset, progress: Progress = lambda _: None) -> Owners:
        """Read all images of a data set, and say who they are here. All that cannot be read are named at once."""
        self._file.make()
        with self._file.reading() as tables:
            key, old = tables.key, tables.old_prints()
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

            units = np.array(
                [mac64(key, b"unit", name.encode("utf-8", "surrogatepass")) for name in map(normalised, rows.units)],
                np.uint64,
            )
        return Owners(np.concatenate([np.empty(0, np.uint64), *records]), units)

    def confirm(self, rows: Dataset, owners: Owners) -> None:
        """Read all images again, after something was made of them and before it can leave: what was made must be of
        the images that were entered. Another program may have changed the files meanwhile."""
        with self._file.reading() as tables:
            key, old = tables.key, tables.old_prints()
        for index in _blocks(rows):
            now = _fingerprints(key, old, rows.originals(index))
            changed = np.flatnonzero(now != owners.records[index.numpy()])
            if len(changed):
                raise MismatchError(
                    f"row {int(index[changed[0]])} is not the image that was entered in your ledger: the data were "
                    f"changed while they were encoded. Leave them alone, and try again"
                )

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
        """Enter a release, make it in the block, and complete the entry. What fails on the way counts, and says so."""
        self.enter(entry, owners, budget, label_budget=label_budget, against=against)
        try:
            yield
        except (OutputError, StateError, MismatchError) as error:
            raise type(error)(f"{error}. Nothing is left of it, but the try counts in your ledger") from None
        with suppress(LedgerError):  # it is entered: all that would be missing is that it was finished
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
        """Enter a release that is about to be made; what all releases cost its rows then, this one included. Refused
        if that is beyond a budget, the given one or the standing one: of μ, or of its labels' ε. against: what budgets
        are compared with."""
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
            before = Spent(np.zeros(len(units.names)), (), 0.0, 0, units.named)
            for made in tables.made():
                before = spending.add(before, units, made)
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
                    refused = BudgetError(f"{error}; where a server asks, this try counts as if it had been made")
            else:
                tables.write(entry, owners)
        if refused is not None:
            raise refused
        return after

    def finish(self, release_id: str) -> None:
        """The release is there, whole."""
        with self._file.transaction() as tables:
            tables.finish(release_id)

    def spent(self, owners: Owners, planned: Cost | None = None) -> Spent:
        """What all releases so far cost these rows; with `planned`, one more of them too."""
        more = [] if planned is None else [Made("planned", planned, None, owners)]
        if not self.exists():
            return spending.spent(owners, lambda: more)
        with self._file.reading() as tables:
            return spending.spent(owners, lambda: chain(tables.made(), more))

    def standing(self, owners: Owners, planned: Cost | None = None) -> Standing:
        """What the ledger says of these rows, read once. planned: the cost of a release that their owner thinks of."""
        if not self.exists():
            return Standing(spending.spent(owners, list), None, Total(0.0, (), 0.0, 0), None, None)
        more = [] if planned is None else [Made("planned", planned, None, owners)]
        with self._file.reading() as tables:
            spent = spending.spent(owners, tables.made)
            after = spending.spent(owners, lambda: chain(tables.made(), more)) if more and spent.releases else None
            limits = tables.limit("budget"), tables.limit("label_budget")
            return Standing(spent, after, _total(tables, False), *limits)

    def total(self, *, units: bool = False) -> Total:
        """What all releases cost together, as if every record were in each of them. Nothing in it depends on a record.
        units: what they cost a unit of several records; a release that names no units has no bound for those."""
        if not self.exists():
            return Total(0.0, (), 0.0, 0)
        with self._file.reading() as tables:
            return _total(tables, units)

    def everyone(self) -> Owners:
        """All rows of all releases, each image of each unit once."""
        found = []
        if self.exists():
            with self._file.reading() as tables:
                found = [made.owners for made in tables.made()]
        if not found:
            return Owners(np.empty(0, np.uint64))
        records = np.concatenate([o.records for o in found])
        units = np.concatenate([o.records if o.units is None else o.units for o in found])
        first = np.unique(spending.paired(records, units), return_index=True)[1]
        records, units = records[first], units[first]
        named = records != units
        kept = named | ~np.isin(records, records[named])  # an image that is named somewhere is whose it is named
        return Owners(records[kept], units[kept] if named.any() else None)

    def owners_of(self, release_id: str) -> Owners | None:
        """Whose the rows of a release are that was made here."""
        if not self.exists():
            return None
        with self._file.reading() as tables:
            return tables.owners_of(release_id)

    def entries(self) -> list[Entry]:
        """All releases, in the order in which they were begun."""
        if not self.exists():
            return []
        with self._file.reading() as tables:
            return tables.entries()

    @property
    def budget(self) -> float | None:
        """The standing budget, if the owner set one."""
        return self._standing("budget")

    def set_budget(self, budget: float) -> None:
        """From now on refuse what would bring any record beyond this μ in all."""
        self._set("budget", budget)

    @property
    def label_budget(self) -> float | None:
        """The standing budget of labels, if the owner set one."""
        return self._standing("label_budget")

    def set_label_budget(self, label_budget: float) -> None:
        """From now on refuse what would bring any label beyond this ε in all, and what shows labels as they are."""
        self._set("label_budget", label_budget)

    def _standing(self, name: str) -> float | None:
        if not self.exists():
            return None
        with self._file.reading() as tables:
            return tables.limit(name)

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
                    f"{self.path} does not know the release {path.stem[:8]}, whose trace is here: an older copy? "
                    f"Restore the last one; or move {path} away, if it was not made here"
                )


def _total(tables: Tables, units: bool) -> Total:
    """All kinds of entry count alike: each holds labels. A projection is entered where it was fitted on private data,
    and then shows their classes' means; rounds of updates show gradients by label. What was refused for a record's sake
    counts as if it had been made: whether it was would tell of that record."""
    found, nameless = Total(0.0, (), 0.0, 0), tables.nameless() if units else set()
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
    """Whether other records could have had this release: then that it was refused tells of these."""
    mu = math.inf if _stated(entry) is None else entry.stated or 0.0
    labels = math.inf if entry.label_epsilon is None else entry.label_epsilon
    budget, label_budget = limits["budget"], limits["label_budget"]
    fits = (mu, budget), (labels, label_budget)
    return all(limit is None or spending.within(value, limit) for value, limit in fits)


def _stated(entry: Entry) -> float | None:
    """The μ of a unit that a release promises; None where it promises nothing, or it is not known what follows."""
    return None if entry.cost is None else entry.stated


def _check_entry(entry: Entry, owners: Owners) -> None:
    """Refuse what could not be counted."""
    if entry.recipient is not None and not (entry.recipient.isprintable() and 0 < len(entry.recipient) <= 1000):
        raise ArgumentError(f"to whom it goes must be a printable name, got {entry.recipient!r:.60}")
    for name, text in (("party", entry.party), ("encoder", entry.encoder)):
        if not text.isprintable() or not text:
            raise ArgumentError(f"{name} must be a printable name, got {text!r:.60}")
    if not CODE.fullmatch(entry.kind):
        raise ArgumentError(f"kind must be a code of lower-case letters, digits and hyphens, got {entry.kind!r:.60}")
    if entry.sigma is not None and not (math.isfinite(entry.sigma) and entry.sigma >= 0):
        raise ArgumentError(f"sigma must be finite and not negative, got {entry.sigma}")
    if len(owners.records) != entry.rows:
        raise ArgumentError(f"{len(owners.records)} owners are given for {entry.rows} rows")
    figures = {"stated": entry.stated, "label_epsilon": entry.label_epsilon}
    if entry.cost is not None:
        figures |= {
            "cost.mu": entry.cost.mu,
            "cost.mu_if_paired": entry.cost.mu_if_paired,
            "cost.group_exponent": entry.cost.group_exponent,
        }
    for name, value in figures.items():
        if value is not None:
            checks.finite_positive(name, value)


def _stricter(*limits: float | None) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _check_budgets(
    limits: dict[str, float | None], before: Total, after: Total, entry: Entry, subject: str, whose: str
) -> None:
    """Refuse what is beyond a budget. subject: who spends, for the message; whose: of which releases it speaks."""
    budget, label_budget = limits["budget"], limits["label_budget"]
    if budget is not None and after.unbounded:
        first = after.unbounded[0]
        what = "this release" if first == entry.id else f"the release {first[:8]}{whose}"
        if first == _REFUSED:
            what = "a release that was refused for a record's sake"
        raise BudgetError(f"{what} promises nothing, so no budget can hold: it is {budget:g}, and nothing was released")
    if budget is not None and not spending.within(after.mu, budget):
        raise BudgetError(
            f"{subject} spent μ = {after.mu:.4g} of a budget of {budget:g}: {before.mu:.4g} is "
            f"spent in {before.releases} release(s), {before.left(budget):.4g} is left; nothing was released"
        )
    if label_budget is None or spending.within(after.label_epsilon, label_budget):
        return
    if entry.label_epsilon is None or math.isinf(before.label_epsilon):
        what = "this release shows" if entry.label_epsilon is None else f"an earlier release{whose} shows"
        raise BudgetError(
            f"{what} labels as they are, so no label budget can hold: it is {label_budget:g}, and nothing was "
            f"released. Labels are protected with --label-epsilon"
        )
    raise BudgetError(
        f"{subject} spent ε = {after.label_epsilon:.4g} of a label budget of {label_budget:g}: "
        f"{before.label_epsilon:.4g} is spent in {before.releases} release(s); nothing was released"
    )


def _blocks(rows: Dataset) -> Iterator[Tensor]:
    import torch  # what a ledger says is shown without it

    yield from torch.split(torch.arange(len(rows)), _BLOCK_ROWS)


def _fingerprints(key: bytes, old: Prints, images: Sequence[Tensor]) -> Prints:
    """Of images, as this ledger knows them: those that version 1 entered by what it knew them by."""
    from mixveil.data.fingerprint import old_pixels, pixels

    found = np.array([mac64(key, b"image", pixels(image)) for image in images], np.uint64)
    if len(old):
        before = np.array([mac64(key, b"image", old_pixels(image)) for image in images], np.uint64)
        found = np.where(np.isin(before, old), before, found)
    return found
