"""The ledger's file: what was changed behind its back, older copies, kills at every step, ledgers of version 1."""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mixveil.core import errors
from mixveil.core.randomness import SecureStream
from mixveil.core.types import Cost
from mixveil.data.fingerprint import old_pixels
from mixveil.data.images import from_tensors
from mixveil.features.projection import Projected
from mixveil.features.projection_fit import fit
from mixveil.releases import accounting
from mixveil.releases.ledger import Entry, Ledger
from mixveil.releases.ledger_file import LedgerFile, Tables, mac64
from mixveil.releases.spending import Owners
from mixveil.releases.sums import write_statistics
from tests.made import blobs, features_of, images

OWNERS = Owners(np.array([1, 2, 3], np.uint64))
NAMED = Owners(np.array([1, 5, 6], np.uint64), np.array([8, 8, 9], np.uint64))


def entry(number: int, mu: float = 1.0) -> Entry:
    return Entry(f"{number:032x}", "records", "p", "server", "singular", 1.0, Cost(mu, 2 * mu, 0.5), mu, 0.5, 3)


@pytest.fixture
def filled(own_state_folder: Path) -> Path:
    """The state folder of a ledger with three entries and a budget."""
    book = Ledger()
    book.set_budget(9.0)
    for number, owners in enumerate((OWNERS, NAMED, OWNERS)):
        book.enter(entry(number), owners)
        book.finish(f"{number:032x}")
    return own_state_folder


def changed(folder: Path, *statements: str) -> None:
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as db, db:
        for statement in statements:
            db.execute(statement)


COLUMNS = """
id = 'other'; kind = 'updates'; party = 'q'; recipient = NULL; encoder = 'x'; sigma = 2; mu = 0.1; mu = NULL;
mu = 'much'; together = NULL; power = 0.1; stated = 0.1; stated = 9e999; label_epsilon = 0.1; rows = 2; rows = 'three';
started = ''; digest = x'00'; mac = x'00'; mac = 'text'; finished = '2000-01-01'; finished_mac = 5;
records = zeroblob(24); records = x'0102'; records = 'text'; records = 7; units = NULL; units = zeroblob(24);
units = x'00'
"""
CHANGES = [
    *(f"UPDATE releases SET {column} WHERE number = 2" for column in COLUMNS.split(";")),  # noqa: S608
    *(f"DELETE FROM releases WHERE number = {number}" for number in (1, 2, 3)),  # noqa: S608
    "UPDATE releases SET number = 9 WHERE number = 1",
    "INSERT INTO releases SELECT 9, 'other', kind, party, recipient, encoder, sigma, mu, together, power, stated, "
    "label_epsilon, rows, started, digest, mac, finished, finished_mac, records, units FROM releases WHERE number = 3",
    "UPDATE settings SET value = 99.0 WHERE name = 'budget'",
    "UPDATE settings SET value = 'much' WHERE name = 'budget'",
    "DELETE FROM settings WHERE name = 'budget'",
    "INSERT INTO settings VALUES ('label_budget', 99.0)",
    "UPDATE settings SET value = 1 WHERE name = 'changes'",
    "UPDATE settings SET value = 'x' WHERE name = 'changes'",
    "DELETE FROM settings WHERE name = 'head'",
    "DELETE FROM settings",
    "DROP TABLE settings",
    "ALTER TABLE releases DROP COLUMN mac",
]


@pytest.mark.parametrize("statement", CHANGES)
def test_whatever_is_changed_behind_its_back_is_noticed(filled: Path, statement: str) -> None:
    changed(filled, statement)
    asks: tuple[Callable[[], object], ...] = (
        lambda: Ledger().enter(entry(7), OWNERS),
        lambda: Ledger().spent(OWNERS),
        Ledger().everyone,
    )
    for ask in asks:
        with pytest.raises(errors.LedgerError):
            ask()


def test_what_only_says_that_a_release_was_finished_may_be_lost(filled: Path) -> None:
    changed(filled, "UPDATE releases SET finished = NULL, finished_mac = NULL")
    assert [item.finished for item in Ledger().entries()] == [None] * 3
    assert Ledger().total().mu == pytest.approx(math.sqrt(3))


def test_an_entry_that_could_not_be_read_again_is_not_kept(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Tables.write

    def wrong(self: Tables, entry: Entry, owners: Owners) -> None:
        write(self, entry, owners)
        self.db.execute("UPDATE releases SET sigma = NULL WHERE id = ?", (entry.id,))

    with monkeypatch.context() as patched, pytest.raises(errors.LedgerError, match="entry 4"):
        patched.setattr(Tables, "write", wrong)
        Ledger().enter(entry(7), OWNERS)
    assert len(Ledger().entries()) == 3
    Ledger().enter(entry(7), OWNERS)


# Older copies


def statistics(tmp_path: Path) -> None:
    rows = Projected(features_of(blobs(60, 2)), fit(features_of(blobs(60, 1)), "a" * 64))
    name = f"s{len(Ledger().entries())}"
    write_statistics(tmp_path / name, rows, "b" * 64, 1.0, party="p", stream=SecureStream())


def updates(_: Path) -> None:
    Ledger().enter(replace(entry(8), kind="updates"), OWNERS)


def looser(_: Path) -> None:
    Ledger().set_budget(1.0)


@pytest.mark.parametrize("change", [statistics, updates, looser])
def test_an_older_copy_is_noticed_whatever_it_lacks(
    tmp_path: Path, filled: Path, change: Callable[[Path], None]
) -> None:
    older = (filled / "ledger.sqlite").read_bytes()
    change(tmp_path)
    (filled / "ledger.sqlite").write_bytes(older)
    for ask in (lambda: Ledger().enter(entry(7), OWNERS), Ledger().entries, lambda: Ledger().budget):
        with pytest.raises(errors.LedgerError, match=r"older copy \(changes made: 4 in the ledger, 5 by the mark\)"):
            ask()
    (filled / "ledger.made").write_bytes(b"")  # what the error says to do where there is no later copy
    Ledger().enter(entry(7), OWNERS)
    assert len(Ledger().entries()) == 4
    (filled / "ledger.sqlite").write_bytes(older)  # that was for once
    with pytest.raises(errors.LedgerError, match="older copy"):
        Ledger().entries()


def test_a_mark_that_is_gone_older_or_damaged_is_noticed(filled: Path) -> None:
    mark = filled / "ledger.made"
    last = mark.read_bytes()
    assert mark.stat().st_mode & 0o777 == 0o600 and last.count(b"\n") == 1
    Ledger().enter(entry(7), OWNERS)
    for text, said in (
        (last, "older copy"),
        (b"\xff\xfe", "cannot be read"),
        (b"4 abc\n", "damaged"),
        (last * 3, "damaged"),
        (None, "is gone"),
    ):
        mark.unlink(missing_ok=True)
        if text is not None:
            mark.write_bytes(text)
        with pytest.raises(errors.LedgerError, match=said):
            Ledger().entries()
    mark.touch()
    assert len(Ledger().entries()) == 4


# Kills


def killed(step: int, work: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Do the work in a process that dies at a step: before (0) or after (1) the mark is written for the first time,
    which comes before the commit; before (2) or after (3) it is written for the second, which comes after."""
    child = os.fork()
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        return
    write, count = LedgerFile._write_mark, iter(range(0, 4, 2))

    def dying(self: LedgerFile, *heads: object) -> None:
        now = next(count)
        if now == step:
            os._exit(9)
        write(self, *heads)  # type: ignore[arg-type]
        if now + 1 == step:
            os._exit(9)

    try:
        monkeypatch.setattr(LedgerFile, "_write_mark", dying)
        work()
    finally:
        os._exit(1)


@pytest.mark.parametrize("step", range(4))
def test_a_kill_at_any_step_locks_nobody_out_and_lets_no_older_copy_pass(
    filled: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    oldest = (filled / "ledger.sqlite").read_bytes()
    Ledger().enter(entry(6), OWNERS)
    killed(step, lambda: Ledger().enter(entry(7), OWNERS), monkeypatch)
    assert len(Ledger().entries()) == (4 if step < 2 else 5)  # it can be read,
    newest = (filled / "ledger.sqlite").read_bytes()
    (filled / "ledger.sqlite").write_bytes(oldest)
    with pytest.raises(errors.LedgerError, match="older copy"):
        Ledger().entries()
    (filled / "ledger.sqlite").write_bytes(newest)
    Ledger().enter(entry(8), OWNERS)  # and goes on
    (filled / "ledger.sqlite").write_bytes(newest)
    with pytest.raises(errors.LedgerError, match="older copy"):
        Ledger().entries()


# Version 1

VERSION_1 = """
CREATE TABLE releases (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, party TEXT NOT NULL, recipient TEXT, encoder TEXT NOT NULL, sigma REAL,
    mu REAL, together REAL, power REAL, stated REAL, label_epsilon REAL, rows INTEGER NOT NULL,
    started TEXT NOT NULL, finished TEXT, records BLOB NOT NULL, units BLOB
);
CREATE TABLE settings (name TEXT PRIMARY KEY, value);
PRAGMA user_version = 1;
"""


@pytest.fixture
def first_version(filled: Path) -> tuple[Path, list[Entry]]:
    """The same ledger as version 1 kept it, one entry of which promises nothing and is not finished."""
    nothing = replace(entry(3), recipient=None, cost=None, stated=None, label_epsilon=None, started="2026-01-01")
    entries = [*Ledger().entries(), nothing]
    (key,) = _column(filled, "SELECT value FROM settings WHERE name = 'key'")
    columns = "id, kind, party, recipient, encoder, sigma, mu, together, power, stated, label_epsilon, rows, started, "
    with closing(sqlite3.connect(filled / "ledger.sqlite")) as db:
        rows = db.execute(f"SELECT {columns} finished, records, units FROM releases ORDER BY number").fetchall()  # noqa: S608
    stated = (nothing.id, "records", "p", None, "singular", 1.0, None, None, None, None, None, 3, "2026-01-01", None)
    rows.append((*stated, NAMED.records.tobytes(), np.array([8, 8, 9], np.uint64).tobytes()))
    (filled / "ledger.sqlite").unlink()
    with closing(sqlite3.connect(filled / "ledger.sqlite")) as db, db:
        db.executescript(VERSION_1)
        db.executemany(f"INSERT INTO releases VALUES ({', '.join('?' * 16)})", rows)  # noqa: S608
        db.executemany("INSERT INTO settings VALUES (?, ?)", [("key", key), ("budget", 9.0)])
    (filled / "ledger.made").write_bytes(b"")
    return filled, entries


def _column(folder: Path, statement: str) -> list[object]:
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as db:
        return [row[0] for row in db.execute(statement)]


def test_a_ledger_of_version_1_is_taken_over_once(first_version: tuple[Path, list[Entry]]) -> None:
    folder, entries = first_version
    old = (folder / "ledger.sqlite").read_bytes()
    assert Ledger().entries() == entries and Ledger().budget == 9.0
    assert Ledger().spent(OWNERS).most == pytest.approx(2)  # √(1 + 2 + 1): one of them has two rows in the second
    assert Ledger().total().unbounded == (entries[3].id,) and _column(folder, "PRAGMA user_version") == [2]
    with pytest.raises(errors.BudgetError):
        Ledger().enter(entry(7), OWNERS)
    assert Ledger().owners_of(entries[1].id) is not None
    (folder / "ledger.sqlite").write_bytes(old)
    with pytest.raises(errors.LedgerError, match="older copy"):
        Ledger().entries()


def test_images_that_version_1_knew_are_known(first_version: tuple[Path, list[Entry]]) -> None:
    """It knew them by their values. New images are known by the order of those."""
    folder, _ = first_version
    key, data = (folder / "ledger.key").read_bytes(), images(3, shape=(1, 12, 12))
    known = np.array([mac64(key, b"image", old_pixels(image)) for image in data.originals(torch.arange(3))], np.uint64)
    changed(folder, f"UPDATE releases SET records = x'{known.tobytes().hex()}', units = NULL WHERE rowid = 1")  # noqa: S608
    book = Ledger()
    assert (book.owners(data).records == known).all()
    assert book.spent(book.owners(data)).most > 0
    book.confirm(data, book.owners(data))
    darker = from_tensors(data.read(torch.arange(3)) / 2, data.labels)
    assert not np.isin(book.owners(darker).records, known).any()
    others = images(3, shape=(1, 12, 12), seed=9)
    darker = from_tensors(others.read(torch.arange(3)) / 2, others.labels)
    assert (book.owners(others).records == book.owners(darker).records).all()


@pytest.mark.parametrize("step", range(4))
def test_a_kill_while_it_is_taken_over_leaves_the_old_or_the_new(
    first_version: tuple[Path, list[Entry]], monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    folder, entries = first_version
    killed(step, Ledger().entries, monkeypatch)
    assert _column(folder, "PRAGMA user_version") == [1 if step < 2 else 2]
    assert len(_column(folder, "SELECT id FROM releases")) == 4
    assert Ledger().entries() == entries and Ledger().budget == 9.0
    Ledger().enter(entry(7), Owners(np.array([11, 12, 13], np.uint64)))


@pytest.mark.parametrize(
    "damage",
    [
        "records = x'00'",
        "records = 'text'",
        "units = x'0000'",
        "together = NULL",
        "mu = -1",
        "mu = 9e999",
        "kind = 'x'",
    ],
)
def test_a_damaged_ledger_of_version_1_stays_as_it_is(first_version: tuple[Path, list[Entry]], damage: str) -> None:
    folder, _ = first_version
    changed(folder, f"UPDATE releases SET {damage} WHERE rowid = 2")  # noqa: S608
    before = (folder / "ledger.sqlite").read_bytes()
    with pytest.raises(errors.LedgerError):
        Ledger().entries()
    assert (folder / "ledger.sqlite").read_bytes() == before


def test_processes_that_meet_a_ledger_of_version_1_together(first_version: tuple[Path, list[Entry]]) -> None:
    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                Ledger().enter(entry(20 + number), Owners(np.arange(3, dtype=np.uint64) + np.uint64(100 + number)))
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
    assert len(Ledger().entries()) == 8


def test_a_private_projection_is_entered_by_its_code() -> None:
    """The stored column, not what a reader makes of it: readers translate the names of earlier versions."""
    data = from_tensors(torch.rand(3, 1, 2, 2), torch.tensor([0, 1, 0]))
    with accounting.private_projection(Ledger(), data):
        pass
    with closing(sqlite3.connect(Ledger().path)) as db:
        assert db.execute("SELECT encoder FROM releases").fetchall() == [("private-projection",)]
