"""What was released before, of which records, and what it cost them.

Every release is entered before its bytes exist and completed after: a try that died counts. A record is known by an
HMAC of its image under a key that never leaves the state folder, a unit (a patient) by one of its name; so one image
more or less resets nothing, and the file shows nobody's image. Costs add up per record, or per unit where units are
named: √Σμ². An image that was changed by one pixel is a new one here; units are what is not fooled by that.
"""

from __future__ import annotations

import hmac
import math
import os
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mixveil import checks, files, keys, state
from mixveil.errors import BudgetError, LedgerBusyError, LedgerError, OutputError, UnreadableImageError
from mixveil.types import Cost, Dataset, Progress

PATIENCE = 30.0
"""Seconds to wait for another process that is at the ledger."""

_VERSION = 1
_BLOCK_VALUES = 1 << 20
_SCHEMA = """
CREATE TABLE releases (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, party TEXT NOT NULL, recipient TEXT, encoder TEXT NOT NULL, sigma REAL,
    mu REAL, together REAL, power REAL, stated REAL, label_epsilon REAL, rows INTEGER NOT NULL,
    started TEXT NOT NULL, finished TEXT, records BLOB NOT NULL, units BLOB
);
CREATE TABLE settings (name TEXT PRIMARY KEY, value);
"""

Prints = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Owners:
    """Who the rows of a data set are. records: (n,) fingerprints of their images; units: (n,) of whose they are."""

    records: Prints = field(repr=False)
    units: Prints | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Entry:
    """A release. stated: the μ that it promises every unit, and cost what follows for any number of rows; both None
    where it promises nothing. finished: None for a try that died, or is under way."""

    id: str
    kind: Literal["records", "statistics"]
    party: str
    recipient: str | None
    encoder: str
    sigma: float | None
    cost: Cost | None
    stated: float | None
    label_epsilon: float | None
    rows: int
    started: str = ""
    finished: str | None = None


@dataclass(frozen=True)
class Spent:
    """What the releases so far cost some rows' units together. mu: (units,) of those that promise something;
    unbounded: ids of those that promise nothing; label_epsilon: the largest sum over a unit's releases, ∞ where a label
    was shown as it is; releases: how many hold any of these rows."""

    mu: npt.NDArray[np.float64] = field(repr=False)
    unbounded: tuple[str, ...]
    label_epsilon: float
    releases: int

    @property
    def most(self) -> float:
        return float(self.mu.max(initial=0.0))

    @property
    def median(self) -> float:
        return float(np.median(self.mu)) if len(self.mu) else 0.0

    def left(self, budget: float) -> float:
        """The largest μ that all of these rows can still afford."""
        return 0.0 if self.unbounded else math.sqrt(max(0.0, budget**2 - self.most**2))


class Ledger:
    """The ledger of a state folder. It is made when something is entered for the first time."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = state.state_folder() if folder is None else folder
        self.path, self.key_path = self.folder / "ledger.sqlite", self.folder / "ledger.key"

    def owners(self, rows: Dataset, progress: Progress = lambda _: None) -> Owners:
        """Read all images of a data set, and say who they are here. All that cannot be read are named at once."""
        key = self._key()
        records: list[int] = []
        broken: list[str] = []
        size = max(1, _BLOCK_VALUES // math.prod(rows.shape))
        for index in torch.split(torch.arange(len(rows)), size):
            try:
                records += [_fingerprint(key, image) for image in rows.originals(index)]
            except UnreadableImageError as error:
                broken += error.files
            progress(len(index))
        if broken:
            raise UnreadableImageError(*broken)
        units = None if rows.units is None else _array([_mac(key, b"unit", name.encode()) for name in rows.units])
        return Owners(_array(records), units)

    def enter(self, entry: Entry, owners: Owners, budget: float | None = None) -> Spent:
        """Enter a release that is about to be made; what all releases cost its rows then, this one included. Refused
        if that is beyond the budget, the given one or the standing one."""
        with self._transaction() as db:
            standing = _setting(db, "budget")
            limits = [limit for limit in (budget, standing) if limit is not None]
            before = _spent(db, owners)
            after = _with(before, owners, entry)
            if limits:
                _check_budget(min(limits), before, after, entry)
            cost = entry.cost
            db.execute(
                "INSERT INTO releases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    entry.id,
                    entry.kind,
                    entry.party,
                    entry.recipient,
                    entry.encoder,
                    entry.sigma,
                    cost and cost.mu,
                    cost and cost.together,
                    cost and cost.power,
                    entry.stated,
                    entry.label_epsilon,
                    entry.rows,
                    _now(),
                    None,
                    owners.records.tobytes(),
                    None if owners.units is None else owners.units.tobytes(),
                ),
            )
        return after

    def finish(self, release_id: str) -> None:
        """The release is there, whole."""
        with self._transaction() as db:
            db.execute("UPDATE releases SET finished = ? WHERE id = ?", (_now(), release_id))

    def spent(self, owners: Owners, planned: Entry | None = None) -> Spent:
        """What all releases so far cost these rows; with `planned`, that one too."""
        if not self.path.exists():
            return _with(_nothing(owners), owners, planned)
        with self._reading() as db:
            return _with(_spent(db, owners), owners, planned)

    def everyone(self) -> Owners:
        """All rows of all releases."""
        found = []
        if self.path.exists():
            with self._reading() as db:
                found = [_owners(row) for row in db.execute("SELECT records, units FROM releases")]
        if not found:
            return Owners(_array([]))
        units = None
        if any(item.units is not None for item in found):  # a row without a unit is one by itself
            units = np.concatenate([item.records if item.units is None else item.units for item in found])
        return Owners(np.concatenate([item.records for item in found]), units)

    def entries(self) -> list[Entry]:
        """All releases, in the order in which they were begun."""
        if not self.path.exists():
            return []
        with self._reading() as db:
            found = db.execute(
                "SELECT id, kind, party, recipient, encoder, sigma, mu, together, power, stated, label_epsilon, rows, "
                "started, finished FROM releases ORDER BY rowid"
            ).fetchall()
        return [Entry(*row[:6], _cost(row[6:9]), *row[9:]) for row in found]  # type: ignore[call-arg]

    @property
    def budget(self) -> float | None:
        """The standing budget, if the owner set one."""
        if not self.path.exists():
            return None
        with self._reading() as db:
            found: float | None = _setting(db, "budget")
            return found

    def set_budget(self, budget: float) -> None:
        """From now on refuse what would bring any record beyond this μ in all."""
        with self._transaction() as db:
            values = ("budget", checks.positive("budget", budget))
            db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", values)

    # The file

    def _key(self) -> bytes:
        """The key of the fingerprints; made, with the ledger, where there is none."""
        with self._transaction():
            return self._read_key()

    def _read_key(self) -> bytes:
        try:
            key = self.key_path.read_bytes()
        except OSError as error:
            raise LedgerError(
                f"the key of the ledger cannot be read: {error}; without it nobody can tell what was released before"
            ) from None
        return key

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Alone at the ledger: all of it is kept, durably, or none."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise LedgerError(f"the ledger cannot be written: {error}; MIXVEIL_STATE names another folder") from None
        with self._connected(f"{self.path.resolve().as_uri()}?mode=rw") as db:
            db.execute("BEGIN IMMEDIATE")
            self._prepare(db)
            yield db
            db.execute("COMMIT")

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._connected(f"{self.path.resolve().as_uri()}?mode=rw") as db:
            self._check(db)
            yield db

    @contextmanager
    def _connected(self, uri: str) -> Iterator[sqlite3.Connection]:
        db = None
        try:
            db = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)
            db.execute("PRAGMA synchronous = FULL")
            yield db
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise LedgerBusyError(
                    f"{self.path}: another process has held the ledger for {PATIENCE:g} s; nothing was released"
                ) from None
            raise LedgerError(f"{self.path}: the ledger cannot be used: {error}") from None
        finally:
            if db is not None:
                db.close()  # what was not committed is undone

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Make the tables and the key where there are none yet."""
        if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return self._check(db)
        try:
            if not self.key_path.exists():
                files.write_whole(self.key_path, keys.local_key(), 0o600)
        except OutputError as error:
            raise LedgerError(f"the key of the ledger cannot be written: {error}") from None
        for statement in _SCHEMA.split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {_VERSION}")
        db.execute("INSERT INTO settings VALUES ('key', ?)", (_key_check(self._read_key()),))
        return None

    def _check(self, db: sqlite3.Connection) -> None:
        """Refuse a ledger of another version, and a key that is not its own."""
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version != _VERSION:
            raise LedgerError(f"{self.path} has the version {version}, this mixveil keeps version {_VERSION}")
        if _setting(db, "key") != _key_check(self._read_key()):
            raise LedgerError(f"{self.key_path} is not the key of this ledger: restore the right one")


# Who is who


def _fingerprint(key: bytes, image: Tensor) -> int:
    """Of an image by its pixels. Grey that is stored as colour is the same image."""
    pixels = image.float().contiguous().numpy()
    if pixels.ndim == 3 and len(pixels) == 3 and (pixels[0] == pixels[1]).all() and (pixels[0] == pixels[2]).all():
        pixels = pixels[:1]
    return _mac(key, repr(pixels.shape).encode(), pixels.tobytes())


def _mac(key: bytes, kind: bytes, data: bytes) -> int:
    """64 bits: two of ten million records coincide once in 300,000 ledgers, and then one counts too much."""
    found: int = struct.unpack("<Q", hmac.digest(key, kind + b"\0" + data, "sha256")[:8])[0]
    return found


def _key_check(key: bytes) -> int:
    return _mac(key, b"key", b"") >> 1  # SQLite's integers have a sign


def _array(values: list[int]) -> Prints:
    return np.array(values, np.uint64)


def _owners(row: tuple[Any, ...]) -> Owners:
    records, units = row
    return Owners(np.frombuffer(records, np.uint64), None if units is None else np.frombuffer(units, np.uint64))


# What it cost


def _cost(row: tuple[Any, ...]) -> Cost | None:
    return None if row[0] is None else Cost(*row)


def _nothing(owners: Owners) -> Spent:
    return Spent(np.zeros(len(_units(owners)[0])), (), 0.0, 0)


def _units(owners: Owners) -> tuple[Prints, npt.NDArray[np.int64]]:
    """The units of some rows, and the number of each row's. Copies of an image are one unit where none are named."""
    units, number = np.unique(owners.records if owners.units is None else owners.units, return_inverse=True)
    return units, number.astype(np.int64)


def _spent(db: sqlite3.Connection, owners: Owners) -> Spent:
    found = _nothing(owners)
    entries = db.execute("SELECT id, mu, together, power, label_epsilon, records, units FROM releases ORDER BY rowid")
    for identity, mu, together, power, label_epsilon, *prints in entries:
        found = _add(found, owners, identity, _cost((mu, together, power)), label_epsilon, _owners(tuple(prints)))
    return found


def _with(before: Spent, owners: Owners, entry: Entry | None) -> Spent:
    return before if entry is None else _add(before, owners, entry.id, entry.cost, entry.label_epsilon, owners)


def _add(
    before: Spent, asked: Owners, identity: str, cost: Cost | None, label_epsilon: float | None, released: Owners
) -> Spent:
    """What is spent after one release more. Rows of it count for a unit that is asked about by their image or by
    their unit, once."""
    rows, by_unit = _rows_of(asked, released)
    if not rows.any():
        return before
    label = math.inf if label_epsilon is None else label_epsilon * int(rows.max())
    mu, unbounded = before.mu, before.unbounded
    if cost is None:
        unbounded = (*unbounded, identity)
    else:
        apart = (rows == by_unit) | (rows <= 1)  # only rows that were named as one unit were kept apart
        mu = np.hypot(mu, np.where(apart, cost.mu, cost.together) * rows.astype(np.float64) ** cost.power)
    return Spent(mu, unbounded, before.label_epsilon + label, before.releases + 1)


def _rows_of(asked: Owners, released: Owners) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(units,) how many rows of a release belong to each unit that is asked about, and how many of them by its name."""
    units, number = _units(asked)
    pairs = _joined(released.records, asked.records, number)
    named = np.empty((0, 2), np.int64)
    if asked.units is not None and released.units is not None:
        named = _joined(released.units, units, np.arange(len(units)))
    whole = np.unique(np.concatenate([pairs, named]), axis=0) if len(named) else pairs
    return _count(whole, len(units)), _count(named, len(units))


def _joined(found: Prints, known: Prints, number: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """(pairs, 2) all (place in `found`, number of an equal one in `known`), each once."""
    order = np.lexsort((number, known))
    known, number = known[order], number[order]
    first = np.ones(len(known), bool)
    first[1:] = (known[1:] != known[:-1]) | (number[1:] != number[:-1])
    known, number = known[first], number[first]
    low, high = np.searchsorted(known, found, "left"), np.searchsorted(known, found, "right")
    place = np.repeat(np.arange(len(found)), high - low)
    offset = np.arange(len(place)) - np.repeat(np.cumsum(high - low) - (high - low), high - low)
    return np.stack([place, number[np.repeat(low, high - low) + offset]], axis=1)


def _count(pairs: npt.NDArray[np.int64], units: int) -> npt.NDArray[np.int64]:
    return np.bincount(pairs[:, 1], minlength=units)


def _check_budget(budget: float, before: Spent, after: Spent, entry: Entry) -> None:
    if after.unbounded:
        first = after.unbounded[0]
        what = "this release" if first == entry.id else f"the release {first[:8]} of these records"
        raise BudgetError(f"{what} promises nothing, so no budget can hold: it is {budget:g}, and nothing was released")
    if after.most > budget * (1 + 1e-9):
        raise BudgetError(
            f"a record would have spent μ = {after.most:.4g} of a budget of {budget:g}: {before.most:.4g} is spent in "
            f"{before.releases} release(s), {before.left(budget):.4g} is left; nothing was released"
        )


def _setting(db: sqlite3.Connection, name: str) -> Any:
    row = db.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
