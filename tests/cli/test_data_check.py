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
    assert told.out.count("mixveil statistics") == 1  # the way on which labels are covered
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


def test_all_kinds_of_fault_are_named_at_once_with_their_lines(run: Run, table: Path) -> None:
    """What can be used is checked all the same."""
    (table.parent / "3.dcm").write_bytes(b"Musterfrau" * 30)
    Image.new("L", (9, 9)).save(table.parent / "15.png")
    more = ["4.dcm,well,", "5.dcm,,p1", "6.dcm,well", "none.png,ill,", "15.png,ill,p1"]
    table.write_text("\n".join([table.read_text(), *more]))
    told = run("data", "check", table, "--unit", "patient", "--json")
    assert refused(told, "DataFormatError")
    faults = {item["code"]: item["figures"] for item in told.json["faults"]}
    assert faults["cells-uneven"] == {"cells": 3, "places": "line 21"}
    assert [item["figures"]["places"] for item in told.json["faults"] if item["code"] == "cells-empty"] == [
        "line 20",
        "line 19, line 22",
    ]
    unreadable = [item["figures"] for item in told.json["faults"] if item["code"] == "file-unreadable-at"]
    assert [item["place"] for item in unreadable] == ["line 5", "line 22"] and "3.dcm" in unreadable[0]["detail"]
    assert faults["sizes-differ"]["sizes"] == 2
    assert told.json["rows"] == 17 and told.json["exact"]["groups"] == 1 and told.json["units"]["count"] == 7
    text = run("data", "check", table, "--unit", "patient")
    assert text.code == 4 and "17 rows of 3×8×8" in text.out and shows(text.err, "faults-in-data", faults=6)
    assert shows(text.err, "cells-empty", column="patient", places="line 19, line 22")
    assert "Musterfrau" not in told.out + told.err + text.out + text.err
    assert run("encode", table, "--unit", "patient", "--mu", 1, "--out", "r").code == 4


def test_faults_of_a_folder(run: Run, tmp_path: Path) -> None:
    for name in ("ill", "well"):
        (tmp_path / "scans" / name).mkdir(parents=True)
        for i in range(3):
            Image.new("L", (4, 4), 50 * i + len(name)).save(tmp_path / "scans" / name / f"{i}.png")
    (tmp_path / "scans" / "ill" / "1.png").write_bytes(b"nothing")
    told = run("data", "check", "scans", "--json")
    assert refused(told, "UnreadableImageError") and told.json["rows"] == 5
    assert [item["code"] for item in told.json["faults"]] == ["file-unreadable"]
    assert "ill/1.png" in told.json["faults"][0]["figures"]["detail"]
    for path in (tmp_path / "scans").glob("*/*"):
        path.write_bytes(b"nothing")
    assert refused(run("data", "check", "scans", "--json"), "UnreadableImageError")


def test_files_with_room_for_more_bits_than_they_use(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = ["path,label"]
    for i in range(4):
        Image.fromarray(rng.integers(0, 4096, (8, 8), dtype=np.uint16)).save(tmp_path / f"{i}.png")
        lines.append(f"{i}.png,{i % 2}")
    (tmp_path / "scans.csv").write_text("\n".join(lines))

    def dark(*words: object) -> list[dict[str, int]]:
        told = run("data", "check", "scans.csv", *words, "--json").json["warnings"]
        return [item["figures"] for item in told if item["code"] == "fewer-bits"]

    assert dark() == [{"bits": 12, "room": 16}] and dark("--depth", 12) == []
    Image.fromarray(np.full((8, 8), 40000, np.uint16)).save(tmp_path / "0.png")
    assert dark() == []


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
