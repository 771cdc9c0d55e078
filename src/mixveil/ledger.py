"""What was released before, of which records, and what it cost them: a file that stays with its owner.

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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from mixveil import checks, files, keys, spending, state
from mixveil.errors import (
    ArgumentError,
    BudgetError,
    LedgerBusyError,
    LedgerError,
    OutputError,
    StateError,
    UnreadableImageError,
)
from mixveil.prints import pixels
from mixveil.spending import Made, Owners, Spent
from mixveil.types import Cost, Dataset, Progress
from mixveil.units import normalised

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


@dataclass(frozen=True)
class Entry:
    """A release. stated: the μ that it promises every unit, and cost what follows for any number of rows; both None
    where it promises nothing. finished: None for a try that died, or is under way."""

    id: str
    kind: Literal["records", "statistics", "projection", "updates"]
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


class Ledger:
    """The ledger of a state folder. It is made when something is entered for the first time."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = state.state_folder() if folder is None else folder
        self.path, self.key_path = self.folder / "ledger.sqlite", self.folder / "ledger.key"
        self._mark = self.folder / "ledger.made"  # it is there as long as there should be a ledger

    def owners(self, rows: Dataset, progress: Progress = lambda _: None) -> Owners:
        """Read all images of a data set, and say who they are here. All that cannot be read are named at once."""
        self._make()
        with self._reading():
            key = self._read_key()
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
        units = None
        if rows.units is not None:
            units = np.array(
                [_mac(key, b"unit", name.encode("utf-8", "surrogatepass")) for name in map(normalised, rows.units)],
                np.uint64,
            )
        return Owners(np.array(records, np.uint64), units)

    @contextmanager
    def making(self, entry: Entry, owners: Owners, budget: float | None = None) -> Iterator[None]:
        """Enter a release, make it in the block, and complete the entry. What fails on the way counts, and says so."""
        self.enter(entry, owners, budget)
        try:
            yield
        except (OutputError, StateError) as error:
            raise type(error)(f"{error}. Nothing is left of it, but the try counts in your ledger") from None
        with suppress(LedgerError):  # it is entered: all that would be missing is that it was finished
            self.finish(entry.id)

    def enter(self, entry: Entry, owners: Owners, budget: float | None = None) -> Spent:
        """Enter a release that is about to be made; what all releases cost its rows then, this one included. Refused
        if that is beyond the budget, the given one or the standing one."""
        if budget is not None:
            checks.positive("budget", budget)
        if entry.recipient is not None and not (entry.recipient.isprintable() and 0 < len(entry.recipient) <= 1000):
            raise ArgumentError(f"to whom it goes must be a printable name, got {entry.recipient!r:.60}")
        if len(owners.records) != entry.rows:
            raise ArgumentError(f"{len(owners.records)} owners are given for {entry.rows} rows")
        new = Made(entry.id, entry.cost, entry.label_epsilon, owners)
        with self._transaction() as db:
            self._check_traces(db)
            limits = [limit for limit in (budget, _setting(db, "budget")) if limit is not None]
            units = spending.units_of(owners, lambda: _made(db))
            before = Spent(np.zeros(len(units.names)), (), 0.0, 0, units.named)
            for made in _made(db):
                before = spending.add(before, units, made)
            after = spending.add(before, units, new)
            if limits:
                _check_budget(min(limits), before, after, entry)
            _insert(db, entry, owners)
        return after

    def finish(self, release_id: str) -> None:
        """The release is there, whole."""
        with self._transaction() as db:
            db.execute("UPDATE releases SET finished = ? WHERE id = ?", (_now(), release_id))

    def spent(self, owners: Owners, planned: Cost | None = None) -> Spent:
        """What all releases so far cost these rows; with `planned`, one more of them too."""
        more = [] if planned is None else [Made("planned", planned, None, owners)]
        if not self.exists():
            return spending.spent(owners, lambda: more)
        with self._reading() as db:
            return spending.spent(owners, lambda: chain(_made(db), more))

    def everyone(self) -> Owners:
        """All rows of all releases, each image of each unit once."""
        found = []
        if self.exists():
            with self._reading() as db:
                found = [made.owners for made in _made(db)]
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
        with self._reading() as db:
            row = db.execute("SELECT records, units FROM releases WHERE id = ?", (release_id,)).fetchone()
        return None if row is None else _owners(row)

    def entries(self) -> list[Entry]:
        """All releases, in the order in which they were begun."""
        if not self.exists():
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
        if not self.exists():
            return None
        with self._reading() as db:
            found: float | None = _setting(db, "budget")
            return found

    def set_budget(self, budget: float) -> None:
        """From now on refuse what would bring any record beyond this μ in all."""
        with self._transaction() as db:
            values = ("budget", checks.positive("budget", budget))
            db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", values)

    def exists(self) -> bool:
        return self.path.exists()

    # The file

    def _make(self) -> None:
        """Make the ledger where there is none: whole and at once, so that one without tables is a damaged one."""
        if self.exists():
            return
        if self._mark.exists() and not self.exists():  # it is marked after it is made
            raise LedgerError(
                f"{self.path} is gone, and knows what was spent: restore it. To begin anew, and forget that, remove "
                f"{self._mark} too"
            )
        part = self.folder / f".ledger.{keys.release_id()}{files.PARTIAL}"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.key_path.exists():
                _link(self.key_path, keys.local_key())
            files.write_file(part, b"", 0o600)
            with self._connected(part) as db:
                db.executescript(f"{_SCHEMA} PRAGMA user_version = {_VERSION};")
                db.execute("INSERT INTO settings VALUES ('key', ?)", (_key_check(self._read_key()),))
            with suppress(FileExistsError):  # another process was first
                os.link(part, self.path)
            files.sync_folder(self.folder)
        except (OSError, OutputError) as error:
            raise self._unwritable(error) from None
        finally:
            with suppress(OSError):
                part.unlink()

    def _unwritable(self, error: Exception) -> LedgerError:
        return LedgerError(
            f"the ledger cannot be written: {error}. Make {self.folder} writable: another MIXVEIL_STATE would begin an "
            f"empty ledger, which knows nothing of what was spent"
        )

    def _read_key(self) -> bytes:
        try:
            return self.key_path.read_bytes()
        except OSError as error:
            raise LedgerError(
                f"the key of the ledger cannot be read: {error}; without it nobody can tell what was released before"
            ) from None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Alone at the ledger: all of it is kept, durably, or none."""
        self._make()
        with self._connected(self.path) as db:
            db.execute("BEGIN IMMEDIATE")
            self._check(db)
            try:
                self._mark.touch(0o600)
            except OSError as error:
                raise self._unwritable(error) from None
            yield db
            db.execute("COMMIT")

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._connected(self.path) as db:
            self._check(db)
            yield db

    @contextmanager
    def _connected(self, path: Path) -> Iterator[sqlite3.Connection]:
        db = None
        try:
            uri = f"{path.resolve().as_uri()}?mode=rw"
            db = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)
            db.execute("PRAGMA synchronous = FULL")
            yield db
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise LedgerBusyError(
                    f"{self.path}: another process has held the ledger for {PATIENCE:g} s; try again when it is done"
                ) from None
            if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
                raise self._unwritable(error) from None
            raise LedgerError(f"{self.path}: the ledger cannot be used: {error}") from None
        finally:
            if db is not None:
                db.close()  # what was not committed is undone

    def _check_traces(self, db: sqlite3.Connection) -> None:
        """Refuse an older copy of the ledger: releases were made here that it does not know."""
        known = {row[0] for row in db.execute("SELECT id FROM releases")}
        for path in sorted((self.folder / "traces").glob("*.safetensors")):
            if path.stem not in known:
                raise LedgerError(
                    f"{self.path} does not know the release {path.stem[:8]}, whose trace is here: an older copy? "
                    f"Restore the last one; or move {path} away, if it was not made here"
                )

    def _check(self, db: sqlite3.Connection) -> None:
        """Refuse a damaged ledger, one of another version, and a key that is not its own."""
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            raise LedgerError(f"{self.path} is empty, and was not: restore it; it knows what was spent")
        if version != _VERSION:
            raise LedgerError(f"{self.path} has the version {version}, this mixveil keeps version {_VERSION}")
        if _setting(db, "key") != _key_check(self._read_key()):
            raise LedgerError(f"{self.key_path} is not the key of this ledger: restore the right one")


def _link(path: Path, data: bytes) -> None:
    """A file that is there whole, once: whoever comes second leaves the first one's."""
    part = path.with_name(f".{path.name}.{keys.release_id()}{files.PARTIAL}")
    files.write_file(part, data, 0o600)
    with suppress(FileExistsError):
        os.link(part, path)
    part.unlink()


def _insert(db: sqlite3.Connection, entry: Entry, owners: Owners) -> None:
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


def _made(db: sqlite3.Connection) -> Iterator[Made]:
    found = db.execute("SELECT id, mu, together, power, label_epsilon, records, units FROM releases ORDER BY rowid")
    for identity, mu, together, power, label_epsilon, *prints in found:
        yield Made(identity, _cost((mu, together, power)), label_epsilon, _owners(tuple(prints)))


def _owners(row: tuple[Any, ...]) -> Owners:
    records, units = row
    return Owners(np.frombuffer(records, np.uint64), None if units is None else np.frombuffer(units, np.uint64))


def _cost(row: tuple[Any, ...]) -> Cost | None:
    return None if row[0] is None else Cost(*row)


def _setting(db: sqlite3.Connection, name: str) -> Any:
    row = db.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def _check_budget(budget: float, before: Spent, after: Spent, entry: Entry) -> None:
    if after.unbounded:
        first = after.unbounded[0]
        what = "this release" if first == entry.id else f"the release {first[:8]} of these records"
        raise BudgetError(f"{what} promises nothing, so no budget can hold: it is {budget:g}, and nothing was released")
    if after.most > budget * (1 + 1e-9):
        raise BudgetError(
            f"a {after.unit} would have spent μ = {after.most:.4g} of a budget of {budget:g}: {before.most:.4g} is "
            f"spent in {before.releases} release(s), {before.left(budget):.4g} is left; nothing was released"
        )


def _fingerprint(key: bytes, image: Tensor) -> int:
    return _mac(key, b"image", pixels(image))


def _mac(key: bytes, kind: bytes, data: bytes) -> int:
    """64 bits: two of ten million records coincide once in 300,000 ledgers, and then one counts too much."""
    found: int = struct.unpack("<Q", hmac.digest(key, kind + b"\0" + data, "sha256")[:8])[0]
    return found


def _key_check(key: bytes) -> int:
    return _mac(key, b"key", b"") >> 1  # SQLite's integers have a sign


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
