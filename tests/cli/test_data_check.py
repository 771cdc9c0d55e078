"""`mixveil data check`, as its users call it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.command import Run, refused
from tests.data.made_dicom import write_dicom
from tests.notes import shows


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Fourteen DICOM files and a PNG of seven patients; the last two rows are copies of the first."""
    rng = np.random.default_rng(0)
    lines = ["path,label,patient"]
    for i in range(14):
        write_dicom(tmp_path / f"{i}.dcm", rng.integers(0, 4096, (8, 8), dtype=np.uint16), BitsStored=12)
        lines.append(f"{i}.dcm,{'ill' if i < 3 else 'well'},p{i % 7}")
    Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(tmp_path / "14.png")
    lines += ["14.png,well,p0", "0.dcm,ill,p0", "0.dcm,well,p1"]
    (tmp_path / "scans.csv").write_text("\n".join(lines))
    return tmp_path / "scans.csv"


def test_check_in_json(run: Run, table: Path) -> None:
    told = run("data", "check", table, "--unit", "patient", "--grey", "--size", 4, "--json")
    assert told.code == 0 and "Musterfrau" not in told.out + told.err
    found = told.json
    assert (found["rows"], found["shape"], found["range"]) == (17, [1, 4, 4], [0, 1])
    assert found["classes"] == [{"name": "ill", "rows": 4}, {"name": "well", "rows": 13}]
    assert found["few"] == [{"name": "ill", "rows": 4}]
    assert found["sizes"] == [{"name": "8×8", "rows": 17}]
    assert found["kinds"] == [
        {"name": "DICOM, 12-bit greyscale", "rows": 16},
        {"name": "PNG, 8-bit greyscale", "rows": 1},
    ]
    assert found["units"] == {
        "count": 7,
        "least": 2,
        "median": 2,
        "most": 4,
        "largest": "p0",
        "more_than_half": False,
    }
    assert (found["exact"]["groups"], found["exact"]["copies"]) == (1, 2)
    group = found["exact"]["examples"][0]
    assert group["rows"] == [0, 15, 16] and group["files"] == [str(table.parent / "0.dcm")] * 3
    assert group["labels_differ"] and group["units_differ"]
    assert found["labels_show"] == ["labels-show-counts", "labels-show-pairs"]
    told_of = {item["code"]: item["figures"] for item in found["warnings"]}
    assert told_of.keys() == {
        "files-named-again",
        "same-with-different-labels",
        "same-in-different-units",
        "classes-of-few-rows",
    }
    assert told_of["files-named-again"]["places"] == "line 17, line 18"


def test_check_in_words(run: Run, table: Path) -> None:
    told = run("data", "check", table, "--unit", "patient")
    assert told.code == 0 and "Musterfrau" not in told.out + told.err
    for words in (
        "17 rows of 3×8×8",
        "units: 7, 2 to 4 rows each, median 2",
        "exact copies: 2, in 1 group (1 with different labels, 1 in different units)",
        "rows 0, 15, 16: different labels, different units",
        "0.dcm",
        "near copies: none",
        "ill (4), well (13)",
    ):
        assert words in told.out
    for code in ("near-copies-by-looks", "labels-show-pairs"):
        assert shows(told.out, code)
    assert shows(told.err, "classes-of-few-rows", least=10, names="ill (4)")


def test_one_unit_with_most_rows(run: Run, tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((30, 1, 4, 4))
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(30) % 2, patient=[1] * 20 + [2] * 10)
    warned = run("data", "check", "a.npz", "--unit", "patient").err
    assert shows(warned, "unit-with-most-rows", most=20, rows=30)


def test_all_unreadable_files_are_listed(run: Run, table: Path) -> None:
    for name in ("3.dcm", "5.dcm"):
        (table.parent / name).write_bytes(b"Musterfrau" * 30)
    (table.parent / "14.png").unlink()
    told = run("data", "check", table, "--json")
    assert refused(told, "UnreadableImageError")
    lines = told.json["error"]["message"].splitlines()
    assert lines[0] == "3 image files cannot be read:" and lines[3] == f"{table.parent}/14.png: does not exist"
    assert "Musterfrau" not in told.out + told.err


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (["digits", "--unit", "patient"], "ArgumentError", "has no columns"),
        (["digits", "--depth", 12], "ArgumentError", "image files only"),
        (["scans.csv", "--unit", "age"], "DataFormatError", "'patient'"),
        (["scans.csv", "--depth", 8], "PixelError", "0.dcm"),
        (["nothing.csv"], "DataNotFoundError", "does not exist"),
    ],
)
def test_bad_words(run: Run, table: Path, words: list[object], error: str, said: str) -> None:
    told = run("data", "check", *words, "--json")
    assert refused(told, error) and said in told.json["error"]["message"]


@pytest.mark.parametrize("depth", [0, 17])
def test_a_depth_that_no_pixel_has(run: Run, table: Path, depth: int) -> None:
    assert run("data", "check", table, "--depth", depth).code == 2
