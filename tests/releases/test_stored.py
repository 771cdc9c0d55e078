"""A state folder and releases that the version before format 6 made."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from mixveil.core import errors
from mixveil.core.randomness import SecureStream
from mixveil.core.types import Mu
from mixveil.encoders.singular import Singular
from mixveil.features.projection import Projected
from mixveil.features.projection_fit import fit
from mixveil.releases.ledger import Ledger
from mixveil.releases.reading import verify_release
from mixveil.releases.records import write_release
from mixveil.releases.sums import write_statistics
from mixveil.releases.traces import load_trace, recorded_manifest
from tests.made import blobs, features_of, images, range_facts

STORED = Path(__file__).parent / "stored"
FIRST, SUMS, UNITS = "481ac6e5", "04eb0fba", "ec813295"


@pytest.fixture
def stored(own_state_folder: Path) -> Path:
    shutil.copytree(STORED / "state", own_state_folder)
    return own_state_folder


def test_an_old_ledger_is_read_and_its_totals_are_kept(stored: Path) -> None:
    book = Ledger()
    told = [(entry.id[:8], entry.kind, entry.encoder, entry.stated, entry.label_epsilon) for entry in book.entries()]
    assert told == [
        (FIRST, "records", "singular", 1.0, 2.0),
        (SUMS, "sums", "class-sums", 0.5, 1.0),
        (UNITS, "records", "singular", 2.0, 1.5),
    ]
    assert all(entry.finished for entry in book.entries()) and (book.budget, book.label_budget) == (9.0, 20.0)
    assert book.total().mu == pytest.approx(math.sqrt(5.25)) and book.total().label_epsilon == 4.5
    assert book.spent(book.owners(images(6))).most == pytest.approx(2.821417381318114)
    assert book.spent(book.owners(blobs(12, 2))).most == pytest.approx(0.5)


def test_an_old_trace_is_read(stored: Path) -> None:
    book = Ledger()
    for entry in book.entries():
        trace = load_trace(entry.id, entry.rows)
        assert (trace is None) == (entry.kind == "sums")
        assert trace is None or (trace.partner.shape == (6, 1) and len(recorded_manifest(entry.id) or "") == 64)


def test_another_release_is_entered_in_an_old_ledger(stored: Path, tmp_path: Path) -> None:
    data = replace(images(6), declared=True)
    encoder, guarantees = Singular().calibrate(Mu(1.0), range_facts(data))
    book = Ledger()
    options = {"party": "a", "stream": SecureStream(), "ledger": book}
    write_release(tmp_path / "r", data, encoder, guarantees, label_epsilon=1.0, **options)  # type: ignore[arg-type]
    rows = Projected(features_of(replace(blobs(12, 2), declared=True)), fit(features_of(blobs(60, 1)), "a" * 64))
    write_statistics(tmp_path / "s", rows, "b" * 64, 1.2, **options)  # type: ignore[arg-type]
    assert [entry.kind for entry in Ledger().entries()] == ["records", "sums", "records", "records", "sums"]
    assert book.total().mu == pytest.approx(math.sqrt(5.25 + 1 + 1.44)) and book.total().label_epsilon == 5.5
    assert book.spent(book.owners(blobs(12, 2))).most == pytest.approx(1.3)
    with pytest.raises(errors.BudgetError):
        write_release(tmp_path / "t", data, encoder, guarantees, budget=1.0, **options)  # type: ignore[arg-type]


def test_what_promised_nothing_still_promises_nothing(own_state_folder: Path) -> None:
    shutil.copytree(STORED / "state-unbounded", own_state_folder)
    book = Ledger()
    told = [(entry.kind, entry.encoder, entry.finished is not None) for entry in book.entries()]
    assert told == [
        ("updates", "fedavg", True),
        ("projection", "private-projection", True),
        ("records", "singular", False),
    ]
    assert len(book.total().unbounded) == 3 and math.isinf(book.total().label_epsilon)


@pytest.mark.parametrize("name", ["records-5", "statistics-2"])
def test_old_releases_are_refused_by_one_sentence_that_says_what_to_do(name: str) -> None:
    with pytest.raises(errors.VersionError, match=r"an older mixveil wrote this .* release the data again"):
        verify_release(STORED / name)
