from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch
from PIL import Image
from pyarrow import parquet

from mixveil.core import errors
from mixveil.data.opening import open_data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images 0.png … 4.png, whose pixels are 0, 40, 80, …"""
    (tmp_path / "images").mkdir()
    for i in range(5):
        Image.new("L", (3, 2), 40 * i).save(tmp_path / "images" / f"{i}.png")
    return tmp_path


def write(folder: Path, text: str | bytes) -> str:
    path = folder / "table.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def columns(folder: Path, **cells: Any) -> str:
    parquet.write_table(pyarrow.table(cells), folder / "table.parquet")
    return str(folder / "table.parquet")


PATHS = [f"images/{i}.png" for i in (3, 0, 1)]
TABLE = "patient, path,label,age\n7,images/3.png,10,50\n8,images/0.png,9,51\n\n7,images/1.png,10,52\n"


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_a_csv_table(folder: Path, start: bytes) -> None:
    data = open_data(write(folder, start + TABLE.encode()), unit="patient", grey=True)
    assert data.name == "table" and data.shape == (1, 2, 3) and data.notes == ()
    assert data.classes == ("9", "10") and data.labels.tolist() == [1, 0, 1]  # by number, not by letter
    assert data.units == ("7", "8", "7")
    assert data.take(torch.arange(3)).x[:, 0, 0, 0].tolist() == pytest.approx([120 / 255, 0, 40 / 255])
    assert data.files is not None and [file.name for file in data.files] == ["3.png", "0.png", "1.png"]
    assert open_data(write(folder, TABLE)).units is None


@pytest.mark.parametrize("labels", [[10, 9, 10], ["10", "9", "10"], [" 10", "9", "10 "]])
def test_a_parquet_table(folder: Path, labels: list[Any]) -> None:
    data = open_data(columns(folder, path=PATHS, label=labels, patient=[7, 8, 7], other=[0.5, 1, 2]), unit="patient")
    assert data.classes == ("9", "10") and data.labels.tolist() == [1, 0, 1] and data.units == ("7", "8", "7")
    assert data.take(torch.arange(3)).x[:, 0, 0, 0].tolist() == pytest.approx([120 / 255, 0, 40 / 255])


def test_names_as_categories(folder: Path) -> None:
    labels = pyarrow.array(["b", "a", "b"]).dictionary_encode()
    assert open_data(columns(folder, path=PATHS, label=labels)).classes == ("a", "b")


def test_paths_may_be_absolute(folder: Path) -> None:
    table = write(folder, f"path,label\n{folder / 'images' / '4.png'},a\n")
    assert float(open_data(table).take(torch.tensor([0])).x.max()) == pytest.approx(160 / 255)


def test_depth_reaches_the_files(folder: Path) -> None:
    Image.fromarray(np.full((2, 3), 4095, np.uint16)).save(folder / "deep.png")
    assert float(open_data(write(folder, "path,label\ndeep.png,a"), depth=12).take(torch.tensor([0])).x.min()) == 1


def test_a_file_named_twice(folder: Path) -> None:
    data = open_data(write(folder, "path,label\nimages/3.png,a\nimages/0.png,b\nimages/../images/3.png,b\n"))
    assert len(data) == 3 and "line 4" in [told.figures.get("places") for told in data.warnings()]


BAD: dict[str, tuple[str | bytes, type[Exception], str]] = {
    "empty": ("", errors.DataFormatError, "no column 'path'"),
    "no rows": ("path,label,patient\n", errors.DataFormatError, "no rows"),
    "no labels": ("path,klass\nimages/0.png,a\n", errors.DataFormatError, "no column 'label'; .* 'path', 'klass'"),
    "no units": ("path,label\nimages/0.png,a\n", errors.DataFormatError, "no column 'patient'"),
    "two of a name": ("path,label,a,a\nimages/0.png,a,1,2\n", errors.DataFormatError, "several columns .* 'a'"),
    "empty labels": (
        TABLE + "7,images/2.png,,\n8,images/2.png, ,\n",
        errors.DataFormatError,
        "label in line 6, line 7",
    ),
    "empty units": (TABLE + ",images/2.png,1,\n", errors.DataFormatError, "no patient in line 6"),
    "too few cells": (TABLE + "8,images/2.png\n", errors.DataFormatError, "not 4 cells.* line 6"),
    "another encoding": ("path,label,patient\nimages/0.png,ä,1\n".encode("latin-1"), errors.DataFormatError, "UTF-8"),
    "an open quote": ('path,label,patient\nimages/0.png,"a,1\n', errors.DataFormatError, "not a CSV table: line 2"),
    "a label that is no name": (
        'path,label,patient\nimages/0.png,"a\nb",1\n',
        errors.DataFormatError,
        "name of a class",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_tables(folder: Path, name: str) -> None:
    text, error, words = BAD[name]
    with pytest.raises(error, match=rf"(?s)table.*{words}"):
        open_data(write(folder, text), unit="patient")


def test_all_missing_images_are_named_at_once(folder: Path) -> None:
    table = write(folder, "path,label\nimages/3.png,a\nno.png,a\nimages/none.png,b\nbad\0name.png,b\n")
    with pytest.raises(errors.UnreadableImageError) as told:
        open_data(table)
    assert told.value.files[:2] == (f"{folder}/no.png: does not exist", f"{folder}/images/none.png: does not exist")
    assert len(told.value.files) == 3


def test_bad_parquet_tables(folder: Path) -> None:
    tests: list[tuple[dict[str, Any], str]] = [
        ({"path": PATHS, "label": [0.5, 1, 2]}, "'label' must be of texts or whole numbers, it is of double"),
        ({"path": [1, 2, 3], "label": [0, 1, 2]}, "'path' must be of texts, it is of int64"),
        ({"path": PATHS, "label": [0, None, 2]}, "no label in row 2"),
        ({"path": PATHS, "klass": [0, 1, 2]}, "no column 'label'"),
        ({"path": pyarrow.array([], "string"), "label": pyarrow.array([], "string")}, "no rows"),
    ]
    for cells, words in tests:
        with pytest.raises(errors.DataFormatError, match=words):
            open_data(columns(folder, **cells))
    (folder / "table.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(errors.DataFormatError, match="not a readable Parquet file"):
        open_data(str(folder / "table.parquet"))


def test_parquet_without_pyarrow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = columns(folder, path=PATHS, label=[1, 2, 3])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(errors.MissingDependencyError, match=r"mixveil\[tables\]"):
        open_data(table)


@pytest.mark.parametrize("whose", [["a", "b", "a"], [1, 2, 1]])
def test_units_in_an_archive(tmp_path: Path, whose: list[Any]) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 2, 2)), y=np.arange(3), patient=whose)
    data = open_data(str(tmp_path / "a.npz"), unit="patient")
    assert data.units == tuple(str(name) for name in whose)


def test_bad_units_in_an_archive(tmp_path: Path) -> None:
    arrays = {"fractions": np.zeros(3), "short": np.arange(2), "empty": np.array(["a", " ", "b"])}
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 2, 2)), y=np.arange(3), **arrays)  # type: ignore[arg-type]
    tests = {"fractions": "float64", "short": r"\(2,\)", "empty": "1 rows: 1", "nobody": "no array", "y": "no array"}
    for unit, words in tests.items():
        with pytest.raises(errors.DataFormatError, match=words):
            open_data(str(tmp_path / "a.npz"), unit=unit)


def test_units_where_there_are_no_columns(folder: Path) -> None:
    for data in (str(folder), "digits"):
        with pytest.raises(errors.ArgumentError, match="has no columns"):
            open_data(data, unit="patient")
