"""The ledger's file: SQLite in the state folder, every row authenticated, and a mark beside it.

Every entry has an HMAC over all its columns and over the HMAC of the entry before it; the head is an HMAC over the last
of these, all settings, and a number that grows with every change. So the ledger notices rows that another program
changed, removed or put in another order.

The mark, `ledger.made`, knows the head, so that an older copy of the file is noticed too. A change is made in this
order:
1. the mark is written durably: the head as it is, and the head as it will be;
2. the transaction is committed;
3. the mark is written with the new head alone; only then is the change reported as made.
A process that is killed before 2 leaves the old head, and before 3 the new one: the mark has both, and the ledger
opens. After a kill between 2 and 3 a copy from just before passes too; nothing was released after the change.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import re
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mixveil.core import files
from mixveil.core.errors import LedgerBusyError, LedgerError, OutputError
from mixveil.core.types import Cost
from mixveil.releases.reservations import Reserved, unpacked
from mixveil.releases.spending import Made, Owners, Prints

PATIENCE = 30.0
"""Seconds to wait for another process that is at the ledger."""

CODE = re.compile(r"[a-z][a-z0-9-]{0,39}")
_FIRST_KINDS = ("records", "statistics", "projection", "updates")  # those that version 1 knew
_OLD_KINDS = {"statistics": "sums"}  # as entries of earlier versions name them
_OLD_ENCODERS = {"class sums": "class-sums", "private projection": "private-projection"}

_SHARED = re.compile(r"-shared(-[0-9]+)?$")  # how the encoder's code ends where parties share noise

_PLAN = "plan:"  # how the names of settings begin that hold a reservation

_VERSION = 2
_FIRST = "version 1"  # how the mark calls a ledger of version 1, which has no head
_MARK = re.compile(rf"(?:(?:{_FIRST}|\d{{1,18}} [0-9a-f]{{64}})\n){{0,2}}")
_STATED = (
    "id, kind, party, recipient, encoder, sigma, mu, together, power, stated, label_epsilon, rows, started, digest"
)
_TABLES = (
    """
CREATE TABLE releases (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, party TEXT NOT NULL, recipient TEXT,
    encoder TEXT NOT NULL, sigma REAL, mu REAL, together REAL, power REAL, stated REAL, label_epsilon REAL,
    rows INTEGER NOT NULL, started TEXT NOT NULL, digest BLOB NOT NULL, mac BLOB NOT NULL, finished TEXT,
    finished_mac BLOB, records BLOB NOT NULL, units BLOB
)""",  # what is long comes last: whatever is read without it is read quickly
    "CREATE TABLE settings (name TEXT PRIMARY KEY, value)",
)


@dataclass(frozen=True)
class Entry:
    """A release, as the ledger knows it.

    Attributes:
        kind: A code: its kind of payload, `projection` or `challenge`.
        encoder: A code: what made it.
        sigma: The noise of one value; None where no noise is stated.
        cost: What it costs any number of rows; None where it promises nothing.
        stated: The μ that it promises every unit; None where it promises nothing.
        label_epsilon: Of randomised labels; 0 where the stated μ covers labels too; None where labels are shown.
        rows: How many records it was made of.
        started, finished: In ISO 8601; finished is None for a try that died, or is under way.
    """

    id: str
    kind: str
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

    @property
    def shared_by(self) -> str | None:
        """Its party, where it shares its noise with others."""
        return self.party if _SHARED.search(self.encoder) else None


class Head(NamedTuple):
    """The state of a ledger. changes: how many were made to it; mac: of all that it holds."""

    changes: int
    mac: bytes

    def __str__(self) -> str:
        return f"{self.changes} {self.mac.hex()}"


class Refused(NamedTuple):
    """Releases that were refused because a record had spent its budget. mu: √Σμ²; labels: Σε; unbounded, nameless,
    shown: whether one of them promised nothing, named no units, or showed labels."""

    mu: float
    labels: float
    unbounded: bool
    nameless: bool
    shown: bool


class LedgerFile:
    """A ledger's file, its key and its mark, in a state folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path, self.key_path = folder / "ledger.sqlite", folder / "ledger.key"
        self.mark = folder / "ledger.made"  # it is there as long as there should be a ledger
        self._key: bytes | None = None

    def exists(self) -> bool:
        return self.path.exists()

    def key(self) -> bytes:
        if self._key is None:
            self._key = self._read_key()
        return self._key

    def _read_key(self) -> bytes:
        try:
            return self.key_path.read_bytes()
        except OSError as error:
            raise LedgerError(f"the key of the ledger cannot be read, restore it: {error}") from None

    def make(self) -> None:
        """Make the ledger where there is none, in one step: a ledger without tables is a damaged one."""
        if self.exists():
            return
        if self.mark.exists() and not self.exists():  # another process makes the ledger before the mark
            raise LedgerError(
                f"{self.path} is gone, which knows what was spent: restore it. To begin with an empty ledger, and "
                f"forget what was spent, remove {self.mark} too"
            )
        from mixveil.core import randomness  # slow to load, and needed here alone

        part = self.folder / f".ledger.{randomness.release_id()}{files.PARTIAL}"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.key_path.exists():
                _link(self.key_path, randomness.local_key())
            files.write_file(part, b"", 0o600)
            with self._connected(part) as db:
                db.execute("BEGIN")
                for table in _TABLES:
                    db.execute(table)
                tables = Tables(db, self.key(), self.path)
                tables.set("key", key_check(tables.key))
                tables.seal(0)
                db.execute(f"PRAGMA user_version = {_VERSION}")
                db.execute("COMMIT")
            with suppress(FileExistsError):  # another process was first
                os.link(part, self.path)
            files.sync_folder(self.folder)
        except (OSError, OutputError) as error:
            raise self._unwritable(error) from None
        finally:
            with suppress(OSError):
                part.unlink()

    @contextmanager
    def transaction(self) -> Iterator[Tables]:
        """Alone at the ledger: all of it is kept, durably, or none."""
        self.make()
        with self._current() as db:
            db.execute("BEGIN IMMEDIATE")
            tables, before = self._checked(db)
            yield tables
            after = tables.sealed(before)
            if after != before:
                self._write_mark(before, after)
            db.execute("COMMIT")
            if after != before:
                self._settle(db)

    @contextmanager
    def reading(self) -> Iterator[Tables]:
        """The ledger at one moment. The mark is read after the tables: no process commits another head meanwhile."""
        with self._current() as db:
            db.execute("BEGIN")
            yield self._checked(db)[0]

    def _checked(self, db: sqlite3.Connection) -> tuple[Tables, Head]:
        """The tables, if they are as they were written, under this key, and those that the mark knows."""
        tables = self._tables(db)
        head = tables.head()
        self._check_mark(str(head), head.changes)
        return tables, head

    def _tables(self, db: sqlite3.Connection) -> Tables:
        tables = Tables(db, self.key(), self.path)
        if tables.setting("key") != key_check(tables.key):
            raise LedgerError(f"{self.key_path} is not the key of this ledger: restore the right one")
        return tables

    def _check_mark(self, head: str, changes: int) -> None:
        """Refuse a copy of the ledger that is not the last. With an empty mark its owner accepts any copy."""
        known = self._known()
        if known is None and changes:
            raise LedgerError(
                f"{self.mark} is gone, which tells the last copy of your ledger from older ones. Restore it; if you "
                f"are sure that {self.path} is the last copy, make an empty file {self.mark}"
            )
        if known and head not in known:
            raise LedgerError(
                f"{self.path} is not the ledger that {self.mark} was written for: one of the two is an older copy "
                f"(changes made: {changes} in the ledger, {known[-1].split()[0]} by the mark). Restore the last copies "
                f"of both. Without them some releases may not be counted: to go on all the same, empty {self.mark}"
            )

    def _known(self) -> list[str] | None:
        """The heads that the ledger may have; an empty mark names none. None: there is no mark."""
        try:
            text = self.mark.read_text("ascii")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise LedgerError(f"{self.mark} cannot be read: {error}; restore it") from None
        if not _MARK.fullmatch(text):
            raise LedgerError(f"{self.mark} is damaged: restore it")
        return text.splitlines()

    def _write_mark(self, *heads: Head | str) -> None:
        try:
            files.write_whole(self.mark, "".join(f"{head}\n" for head in heads).encode(), 0o600)
            files.sync_folder(self.folder)
        except (OSError, OutputError) as error:
            raise self._unwritable(error) from None

    def _settle(self, db: sqlite3.Connection) -> None:
        """From now on only the head that was committed is right. Alone at the ledger, or the mark of another process
        would be overwritten: a process that came between has settled it already."""
        db.execute("BEGIN IMMEDIATE")
        self._write_mark(Tables(db, self.key(), self.path).stored_head())
        db.execute("COMMIT")

    def _unwritable(self, error: Exception) -> LedgerError:
        return LedgerError(
            f"the ledger cannot be written: {error}. Make {self.folder} writable: another MIXVEIL_STATE would begin an "
            f"empty ledger, which does not know what was spent"
        )

    @contextmanager
    def _current(self) -> Iterator[sqlite3.Connection]:
        """A connection to a ledger of this version; one of version 1 is brought to it first."""
        with self._connected(self.path) as db:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                raise LedgerError(f"{self.path} was emptied: restore it, it knows what was spent")
            if version == 1:
                self._migrate(db)
            elif version != _VERSION:
                raise LedgerError(f"{self.path} has the version {version}, this mixveil keeps version {_VERSION}")
            yield db

    @contextmanager
    def _connected(self, path: Path) -> Iterator[sqlite3.Connection]:
        db = None
        try:
            uri = f"{path.resolve().as_uri()}?mode=rw"
            db = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)
            db.execute("PRAGMA synchronous = EXTRA")  # after a power cut too, what was committed is there
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

    def _migrate(self, db: sqlite3.Connection) -> None:
        """From version 1, which authenticated nothing: its entries are taken as they are. All or nothing."""
        db.execute("BEGIN EXCLUSIVE")
        if db.execute("PRAGMA user_version").fetchone()[0] == 1:
            self._check_mark(_FIRST, 0)
            tables = self._tables(db)
            db.execute("ALTER TABLE releases RENAME TO old")
            db.execute(_TABLES[0])
            told = _STATED.removesuffix(", digest")
            old = f"SELECT {told}, finished, records, units FROM old ORDER BY rowid"  # noqa: S608, no text from outside
            for *stated, finished, records, units in db.execute(old):
                if stated[1] not in _FIRST_KINDS:
                    raise _changed(self.path, f"the entry {stated[0]!r:.10}")
                digest = _digest(records, units) if _blobs(records, units, stated[11]) else b""
                tables.write(entry_of([*stated, digest], finished, self.path), Owners(*_prints(records, units)))
            db.execute("DROP TABLE old")
            count = db.execute("SELECT COUNT(*) FROM releases").fetchone()[0]
            tables.set("old_prints", count)
            head = tables.seal(count)
            db.execute(f"PRAGMA user_version = {_VERSION}")
            self._write_mark(_FIRST, head)
            db.execute("COMMIT")
            self._settle(db)
        else:  # another process was first
            db.execute("ROLLBACK")


@dataclass
class Tables:
    """An open ledger. All that is read from it is checked, except the settings `head` and `changes`."""

    db: sqlite3.Connection = field(repr=False)
    key: bytes = field(repr=False)
    path: Path
    _seen: set[str] = field(default_factory=set, repr=False)  # releases whose owners were checked

    def entries(self) -> list[Entry]:
        """All releases, in the order in which they were begun."""
        found = self.db.execute(f"SELECT {_STATED}, finished FROM releases ORDER BY number")  # noqa: S608
        return [entry_of(stated, finished, self.path) for *stated, finished in found]

    def nameless(self) -> set[str]:
        """The releases that name no units."""
        return {row[0] for row in self.db.execute("SELECT id FROM releases WHERE units IS NULL")}

    def old_prints(self) -> Prints:
        """The images of entries that version 1 made, whose fingerprints were others."""
        count = self.setting("old_prints") or 0
        found = self.db.execute("SELECT records FROM releases WHERE number <= ?", (count,)).fetchall() if count else []
        return np.unique(np.frombuffer(b"".join(row[0] for row in found), np.uint64))

    def refused(self) -> Refused:
        flags = (bool(self.setting(f"refused_{name}")) for name in ("unbounded", "nameless", "shown"))
        return Refused(self.limit("refused_mu") or 0.0, self.limit("refused_labels") or 0.0, *flags)

    def refuse(self, stated: float | None, label_epsilon: float | None, *, named: bool) -> None:
        """Count a release that was refused because a record had spent its budget. named: whether it names units."""
        before = self.refused()
        mu = ("unbounded", 1) if stated is None else ("mu", math.hypot(before.mu, stated))
        labels = ("shown", 1) if label_epsilon is None else ("labels", before.labels + label_epsilon)
        for name, value in (mu, labels, *(() if named else (("nameless", 1),))):
            if value:  # labels that μ covers cost no ε
                self.set(f"refused_{name}", value)

    def plans(self) -> dict[str, Reserved]:
        """What is held for plans of several releases."""
        found = {}
        for name, value in self.db.execute(
            "SELECT name, value FROM settings WHERE name GLOB ? ORDER BY name", (f"{_PLAN}*",)
        ):
            if (reserved := unpacked(value)) is None:
                raise _changed(self.path, f"the setting {name}")
            found[name.removeprefix(_PLAN)] = reserved
        return found

    def hold(self, plan: str, reserved: Reserved) -> None:
        self.set(_PLAN + plan, reserved.packed())

    def drop(self, plan: str) -> None:
        self.db.execute("DELETE FROM settings WHERE name = ?", (_PLAN + plan,))

    def made(self) -> Iterator[Made]:
        """All releases with their owners, one by one."""
        found = self.db.execute(f"SELECT {_STATED}, records, units FROM releases ORDER BY number")  # noqa: S608
        for *stated, records, units in found:
            entry = entry_of(stated, None, self.path)
            yield Made(entry.id, entry.cost, entry.label_epsilon, self._owners(stated, records, units), entry.shared_by)

    def owners_of(self, release_id: str) -> Owners | None:
        found = f"SELECT {_STATED}, records, units FROM releases WHERE id = ?"  # noqa: S608
        row = self.db.execute(found, (release_id,)).fetchone()
        return None if row is None else self._owners(row[:-2], *row[-2:])

    def _owners(self, stated: Sequence[Any], records: Any, units: Any) -> Owners:
        identity, rows, digest = stated[0], stated[11], stated[13]
        if identity not in self._seen:
            if not _blobs(records, units, rows) or not hmac.compare_digest(_digest(records, units), digest):
                raise _changed(self.path, f"whose the rows of {identity[:8]} are")
            self._seen.add(identity)
        return Owners(*_prints(records, units))

    def write(self, entry: Entry, owners: Owners) -> None:
        """Append an entry, begun now unless it says when."""
        cost = (None, None, None) if entry.cost is None else astuple(entry.cost)
        records = owners.records.tobytes()
        units = None if owners.units is None else owners.units.tobytes()
        stated: list[Any] = [entry.id, entry.kind, entry.party, entry.recipient, entry.encoder]
        figures = (entry.sigma, *cost, entry.stated, entry.label_epsilon)
        stated += [None if value is None else float(value) for value in figures]
        stated += [int(entry.rows), entry.started or now(), _digest(records, units)]
        mac = self._mac(b"entry", self._last(), *stated)
        finished = None if entry.finished is None else self._mac(b"finished", entry.id, entry.finished)
        self.db.execute(
            f"INSERT INTO releases ({_STATED}, mac, finished, finished_mac, records, units) "  # noqa: S608
            f"VALUES ({', '.join('?' * 19)})",
            (*stated, mac, entry.finished, finished, records, units),
        )

    def finish(self, release_id: str) -> None:
        """Not part of the chain: all that can be lost with it is that a release was finished."""
        when = now()
        self.db.execute(
            "UPDATE releases SET finished = ?, finished_mac = ? WHERE id = ?",
            (when, self._mac(b"finished", release_id, when), release_id),
        )

    def setting(self, name: str) -> Any:
        row = self.db.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def set(self, name: str, value: Any) -> None:
        self.db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))

    def limit(self, name: str) -> float | None:
        """A standing budget."""
        found = self.setting(name)
        if found is not None and not _positive(found):
            raise _changed(self.path, f"the setting {name}")
        return None if found is None else float(found)

    # Whether all is as it was written

    def head(self) -> Head:
        """The state of the ledger, if every entry and every setting is as it was written."""
        stored = self.stored_head()
        if not hmac.compare_digest(self._head(stored.changes, self._chain()), stored.mac):
            raise _changed(self.path, "a setting, or the last entry,")
        return stored

    def stored_head(self) -> Head:
        changes, mac = self.setting("changes"), self.setting("head")
        if type(changes) is not int or type(mac) is not bytes:
            raise _changed(self.path, "its head")
        return Head(changes, mac)

    def sealed(self, before: Head) -> Head:
        """The head after the changes since `before`; the same where there are none. Rows that could not be read again
        are refused here, before they are kept."""
        if hmac.compare_digest(self._head(before.changes, self._chain()), before.mac):
            return before
        return self.seal(before.changes + 1)

    def seal(self, changes: int) -> Head:
        head = Head(changes, self._head(changes, self._chain()))
        self.set("changes", head.changes)
        self.set("head", head.mac)
        return head

    def _chain(self) -> bytes:
        """The MAC of the last entry, if each is right and follows from the one before it."""
        last = self._mac(b"begin")
        chain = f"SELECT {_STATED}, mac, finished, finished_mac FROM releases ORDER BY number"  # noqa: S608
        for place, (*stated, mac, finished, finished_mac) in enumerate(self.db.execute(chain), 1):
            last = self._mac(b"entry", last, *stated)
            if type(mac) is not bytes or not hmac.compare_digest(mac, last):
                raise _changed(self.path, f"the entry {place}, or one before it,")
            if finished is not None or finished_mac is not None:
                right = self._mac(b"finished", stated[0], finished)
                if type(finished_mac) is not bytes or not hmac.compare_digest(finished_mac, right):
                    raise _changed(self.path, f"when the entry {place} was finished")
        return last

    def _last(self) -> bytes:
        row = self.db.execute("SELECT mac FROM releases ORDER BY number DESC LIMIT 1").fetchone()
        return self._mac(b"begin") if row is None else bytes(row[0])

    def _head(self, changes: int, last: bytes) -> bytes:
        others = "SELECT name, value FROM settings WHERE name NOT IN ('head', 'changes') ORDER BY name"
        return self._mac(b"head", changes, last, *(item for row in self.db.execute(others) for item in row))

    def _mac(self, kind: bytes, *values: Any) -> bytes:
        return hmac.digest(self.key, kind + b"\0" + b"".join(map(_packed, values)), "sha256")


def entry_of(stated: Sequence[Any], finished: Any, path: Path) -> Entry:
    """An entry from its columns, if they can be those of one."""
    identity, kind, party, recipient, encoder, sigma, *cost, promised, label_epsilon, rows, started, digest = stated
    texts = [identity, kind, party, encoder, started, *(text for text in (recipient, finished) if text is not None)]
    covered = label_epsilon == 0 and None not in (cost[0], promised)
    *costs, power = cost
    whole = (*costs, power or None, promised, None if covered else label_epsilon)  # a power of 0: a unit pays once
    figures = [value for value in whole if value is not None]
    right = all(type(text) is str for text in texts) and bool(CODE.fullmatch(str(kind)))
    right &= all(_positive(value) for value in figures) and len({value is None for value in cost}) == 1
    right &= sigma is None or (type(sigma) is float and math.isfinite(sigma) and sigma >= 0)
    if not right or type(rows) is not int or type(digest) is not bytes or len(digest) != 32:
        raise _changed(path, f"the entry {identity!r:.10}")
    paid = None if cost[0] is None else Cost(*cost)
    kind, encoder = _OLD_KINDS.get(kind, kind), _OLD_ENCODERS.get(encoder, encoder)
    rest = (paid, promised, label_epsilon, rows, started, finished)
    return Entry(identity, kind, party, recipient, encoder, sigma, *rest)


def key_check(key: bytes) -> int:
    return mac64(key, b"key", b"") >> 1  # SQLite's integers have a sign


def mac64(key: bytes, kind: bytes, data: bytes) -> int:
    """64 bits: two of ten million records coincide once in 300,000 ledgers, and then one record pays too much."""
    found: int = struct.unpack("<Q", hmac.digest(key, kind + b"\0" + data, "sha256")[:8])[0]
    return found


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _packed(value: Any) -> bytes:
    """A value of SQLite as octets: no two values, and no two lists of them, are alike."""
    if value is None:
        return b"n"
    if isinstance(value, float):
        return b"f" + struct.pack("<d", value)
    data = value if isinstance(value, bytes) else str(value).encode()
    return {bytes: b"b", str: b"s", int: b"i"}[type(value)] + struct.pack("<Q", len(data)) + data


def _digest(records: bytes, units: bytes | None) -> bytes:
    """Of the owners of rows: an entry is checked without reading them all."""
    found = hashlib.sha256(_packed(len(records)) + _packed(None if units is None else len(units)))
    found.update(records)
    found.update(units or b"")
    return found.digest()


def _blobs(records: Any, units: Any, rows: Any) -> bool:
    return all(type(blob) is bytes and len(blob) == 8 * rows for blob in (records, records if units is None else units))


def _prints(records: bytes, units: bytes | None) -> tuple[Any, Any]:
    return np.frombuffer(records, np.uint64), None if units is None else np.frombuffer(units, np.uint64)


def _positive(value: Any) -> bool:
    return type(value) is float and math.isfinite(value) and value > 0


def _changed(path: Path, what: str) -> LedgerError:
    return LedgerError(f"{path}: {what} was changed outside mixveil, or is damaged: restore its last copy")


def _link(path: Path, data: bytes) -> None:
    """Write a file whole, once: a second process leaves the file of the first."""
    from mixveil.core import randomness

    part = path.with_name(f".{path.name}.{randomness.release_id()}{files.PARTIAL}")
    files.write_file(part, data, 0o600)
    with suppress(FileExistsError):
        os.link(part, path)
    part.unlink()
