"""The ledger: what was released before, and what it cost each record. It stays with the owner of the data.

Every release is entered before its bytes exist and completed after: a try that died counts. A record is known by an
HMAC of its image under a key that never leaves the state folder, a unit (a patient) by an HMAC of its name; so one
image more or less resets nothing, and the file shows no image. Costs add up per record, or per unit where units are
named: √Σμ²; what several parties of one ledger send to secure sums adds up as Σμ over these parties. A retouched image
counts as a new record; named units do not have this gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from mixveil.core import checks
from mixveil.core.errors import (
    ArgumentError,
    LedgerError,
    MismatchError,
    OutputError,
    StateError,
    UnreadableImageError,
)
from mixveil.core.types import Cost, Dataset, Progress
from mixveil.releases import budgets, reservations, spending, traces
from mixveil.releases.budgets import Against, Asked, given
from mixveil.releases.ledger_file import CODE, Entry, LedgerFile, Tables, mac64
from mixveil.releases.reservations import Reserved
from mixveil.releases.spending import Held, Made, Owners, Prints, Spent, Standing, Total

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

__all__ = ["Against", "Entry", "Ledger"]

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
        records = np.empty(len(rows), np.uint64)
        broken: list[str] = []
        for index in _blocks(rows):
            try:
                records[index.numpy()] = _fingerprints(key, old, rows.originals(index))
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
        return Owners(records, units)

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
        plan: str | None = None,
    ) -> Iterator[None]:
        """Enter a release, make it in the block, and complete the entry. A try that fails counts, and its error says
        so."""
        self.enter(entry, owners, budget, label_budget=label_budget, against=against, plan=plan)
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
        plan: str | None = None,
    ) -> Spent:
        """Enter a release that is about to be made, and return what all releases cost its rows then, this one and what
        is held for other plans included. A release beyond a budget of μ or of its labels' ε, the given one or the
        standing one, is refused. plan: what was reserved for it pays; a release beyond that is refused too."""
        _check_entry(entry, owners)
        asked = Asked(entry, owners, given(budget, label_budget), against, plan)
        with self._file.transaction() as tables:
            self._check_traces(tables)
            stated, plans = budgets.stated(entry), tables.plans()
            paid = {} if plan is None else {plan: reservations.paying(plans, plan, stated, asked.named)}
            after, refusal = budgets.decide(tables, asked)
            if refusal is None:
                tables.write(entry, owners)
            elif refusal.counts:
                tables.refuse(stated, entry.label_epsilon, named=asked.named)
            if refusal is None or refusal.counts:
                for name, reserved in paid.items():
                    tables.hold(name, reserved)
        if refusal is not None:
            raise refusal.error
        return after

    # Plans of several releases

    def reserve(
        self,
        plan: str,
        mu: float,
        owners: Owners,
        budget: float | None = None,
        *,
        against: Against = "records",
        shared_by: str | None = None,
    ) -> None:
        """Hold the μ of all releases of a plan, before the first is made: it counts as spent until they are entered or
        the plan is freed. Refused where a budget forbids one release of this μ. A plan that is held already stays.
        shared_by: its party, where its releases share their noise with others."""
        reservations.check_plan(plan)
        mu = checks.finite_positive("mu", mu)
        cost = Cost(mu, mu, 0.0)  # promised to a unit, whatever rows it has
        party, encoder = (plan, "reservation") if shared_by is None else (shared_by, "reservation-shared")
        entry = Entry(plan, "reservation", party, None, encoder, None, cost, mu, 0.0, len(owners.records))
        asked = Asked(entry, owners, given(budget), against)
        with self._file.transaction() as tables:
            self._check_traces(tables)
            if (before := tables.plans().get(plan)) is not None:
                reservations.check_same(plan, before, mu, asked.named)
                return
            _, refusal = budgets.decide(tables, asked)
            if refusal is None:
                tables.hold(plan, Reserved(mu, 0.0, asked.named, shared_by))
            elif refusal.counts:
                tables.refuse(mu, 0.0, named=asked.named)
        if refusal is not None:
            raise refusal.error

    def free(self, plan: str) -> float:
        """Hold nothing more for a plan; the μ that was left of it. What was released stays entered."""
        if not self.exists():
            return 0.0
        with self._file.transaction() as tables:
            reserved = tables.plans().get(plan)
            tables.drop(plan)
        return 0.0 if reserved is None else reserved.left

    def reservations(self) -> dict[str, float]:
        """The μ that is left of each plan."""
        nothing: dict[str, float] = {}
        return self._read(lambda: nothing, lambda tables: {plan: held.left for plan, held in tables.plans().items()})

    # What was released

    def finish(self, release_id: str) -> None:
        """The release is there, whole."""
        with self._file.transaction() as tables:
            tables.finish(release_id)

    def spent(self, owners: Owners) -> Spent:
        """What all releases so far cost these rows."""
        return self._read(lambda: spending.spent(owners, list), lambda tables: _spent(tables, owners))

    def standing(self, owners: Owners, planned: Cost | None = None) -> Standing:
        """What the ledger says of these rows, read once. planned: the cost of a release that their owner thinks of."""

        def read(tables: Tables) -> Standing:
            spent, after = _spent(tables, owners), None
            if planned is not None and spent.releases:
                more = Made("planned", planned, None, owners)
                after = spending.spent(owners, lambda: chain(tables.made(), [more]), _held(tables))
            return Standing(
                spent, after, budgets.total(tables, units=False), tables.limit("budget"), tables.limit("label_budget")
            )

        return self._read(lambda: Standing(spending.spent(owners, list), None, spending.NO_COST, None, None), read)

    def total(self, *, units: bool = False) -> Total:
        """What all releases cost together, and what is held for plans, as if every record were in each of them. Nothing
        in it depends on a record. units: what they cost a unit of several records; a release that names no units has
        no bound for those."""
        return self._read(lambda: spending.NO_COST, lambda tables: budgets.total(tables, units=units))

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


def _spent(tables: Tables, owners: Owners) -> Spent:
    return spending.spent(owners, tables.made, _held(tables))


def _held(tables: Tables) -> Held:
    return reservations.held(tables.plans().values())


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
    covered = entry.label_epsilon == 0
    if covered and budgets.stated(entry) is None:
        raise ArgumentError("label_epsilon must be positive where no μ is stated that could cover the labels, got 0")
    figures = {"stated": entry.stated, "label_epsilon": None if covered else entry.label_epsilon}
    if entry.cost is not None:
        figures |= {f"cost.{name}": value for name, value in asdict(entry.cost).items()}
        figures["cost.group_exponent"] = entry.cost.group_exponent or 1.0  # 0: a unit pays once
    for name, value in figures.items():
        if value is not None:
            checks.finite_positive(name, value)


def _blocks(rows: Dataset) -> Iterator[Tensor]:
    import torch  # what a ledger says is shown without it

    for start in range(0, len(rows), _BLOCK_ROWS):
        yield torch.arange(start, min(start + _BLOCK_ROWS, len(rows)))


def _fingerprints(key: bytes, old: Prints, images: Sequence[Tensor]) -> Prints:
    """The fingerprints of images; of images that version 1 entered, those that it made."""
    from mixveil.data.fingerprint import old_pixels, pixels

    found = np.array([mac64(key, b"image", pixels(image)) for image in images], np.uint64)
    if len(old):
        before = np.array([mac64(key, b"image", old_pixels(image)) for image in images], np.uint64)
        found = np.where(np.isin(before, old), before, found)
    return found
