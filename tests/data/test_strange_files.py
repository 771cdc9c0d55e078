"""Data files that somebody else may have written: each is read, or refused at once in one line."""

from __future__ import annotations

import gzip
import io
import os
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import torch
from PIL import Image
from pyarrow import parquet

from mixveil.core import errors, files
from mixveil.data import binary, npz, table
from mixveil.data.opening import open_data
from tests.data.made_mnist import idx_bytes, make_mnist

RNG = np.random.default_rng(0)


def npy(array: object) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array))
    return file.getvalue()


def stated(header: str, data: bytes = b"") -> bytes:
    """An array whose header says what it likes."""
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def shaped(shape: str, data: bytes = b"", descr: str = "|u1") -> bytes:
    return stated(f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}", data)


def changed(place: int, central: int, value: int) -> Callable[[bytearray], None]:
    """A byte of the first entry's local header, and the same one in the archive's list."""

    def change(data: bytearray) -> None:
        data[place] = data[data.find(b"PK\x01\x02") + central] = value

    return change


def corrupt(data: bytearray) -> None:
    data[50:60] = b"\xff" * 10


def archive(folder: Path, x: bytes, how: int, change: Callable[[bytearray], None] | None = None) -> str:
    path = folder / "a.npz"
    with zipfile.ZipFile(path, "w", how) as file:
        file.writestr("x.npy", x)
        file.writestr("y.npy", npy(np.zeros(4, np.int64)))
    if change:
        data = bytearray(path.read_bytes())
        change(data)
        path.write_bytes(data)
    return str(path)


GOOD = npy(np.zeros((4, 1, 2, 2), np.uint8))
BAD: dict[str, tuple[bytes, Callable[[bytearray], None] | None, str]] = {
    "terabytes": (shaped("(4, 1000000, 1000000)"), None, "takes 4,000,000,000,000 bytes, it has 0"),
    "beyond numbers": (shaped("(4, 10000000000, 10000000000000)"), None, "it has 0"),
    "a bit too large": (shaped("(4, 5)", bytes(16)), None, "takes 20 bytes, it has 16"),
    "a bit too small": (shaped("(4, 3)", bytes(16)), None, "takes 12 bytes, it has 16"),
    "a shape of booleans": (shaped("(True, 4)", bytes(16)), None, "the header of x.npy"),
    "a shape of fractions": (shaped("(4.0, 4)", bytes(16)), None, "the header of x.npy"),
    "a negative shape": (shaped("(-4, -4)", bytes(16)), None, "the header of x.npy"),
    "no shape": (shaped("4", bytes(16)), None, "the header of x.npy"),
    "brackets": (stated("(" * 110), None, "the header of x.npy"),
    "signs": (stated("-" * 110), None, "the header of x.npy"),
    "a list": (stated("[1, 2, 3]"), None, "the header of x.npy"),
    "one field more": (stated("{'descr': '|u1', 'fortran_order': False, 'shape': (), 'a': 1}"), None, "the header"),
    "no type": (shaped("(4, 4)", bytes(16), "?!"), None, "the header of x.npy"),
    "values of no size": (shaped("(4, 1000000000000)", b"", "<U0"), None, "or nothing"),
    "Python objects": (shaped("(4, 4)", bytes(128), "|O"), None, "Python objects"),
    "a long header": (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", None, "header of 4,294,967,295 bytes"),
    "no array": (b"\x93NUMP", None, "a.npz"),
    "encrypted": (GOOD, changed(6, 8, 1), "encrypted"),
    "another packing": (GOOD, changed(8, 10, 99), "NumPy does not use"),
    "LZMA": (GOOD, changed(8, 10, 14), "NumPy does not use"),
}


@pytest.mark.parametrize("how", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED], ids=["stored", "packed"])
@pytest.mark.parametrize("name", BAD)
def test_archives_of_strangers(tmp_path: Path, name: str, how: int) -> None:
    x, change, said = BAD[name]
    with pytest.raises(errors.DataFormatError, match=said) as caught:
        open_data(archive(tmp_path, x, how, change))
    assert str(caught.value).isprintable()


def test_a_packed_array_that_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(errors.DataFormatError, match="not a NumPy archive"):
        open_data(archive(tmp_path, GOOD, zipfile.ZIP_DEFLATED, corrupt))


def test_an_array_that_is_there_twice(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        for name in ("x.npy", "y.npy", "x.npy"):
            file.writestr(name, GOOD)
    with pytest.raises(errors.DataFormatError, match="two arrays have the same name"):
        open_data(str(tmp_path / "a.npz"))


def test_a_small_archive_that_would_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_FREELY", 1 << 20)
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((4, 1 << 20), np.uint8), y=np.zeros(4, int))
    tracemalloc.start()
    try:
        with pytest.raises(errors.DataFormatError, match="unfold to 4,194,304, more than 100 times"):
            open_data(str(tmp_path / "a.npz"))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    monkeypatch.setattr(files, "_MOST_TIMES", 10_000)
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_PHYS_PAGES": 1024, "SC_PAGE_SIZE": 4096}[name])
    with pytest.raises(errors.DataFormatError, match="half of this machine's memory is 2,097,152"):
        open_data(str(tmp_path / "a.npz"))


def test_honest_archives_are_read_whatever_their_order(tmp_path: Path) -> None:
    x = RNG.integers(0, 20, (40, 3, 16, 16), dtype=np.uint8)
    y = np.arange(40) % 2
    blank = np.zeros((40, 1, 1024, 1024), np.uint8)  # 40 MiB that pack a thousandfold: small enough to be held
    for number, save in enumerate((np.savez, np.savez_compressed)):
        for order in (np.ascontiguousarray, np.asfortranarray):
            save(tmp_path / f"{number}.npz", x=order(x), y=y, other=np.array([None]))
            rows = open_data(str(tmp_path / f"{number}.npz")).take(torch.tensor([7, 3])).x
            assert torch.equal(rows, torch.from_numpy(x[[7, 3]]).float() / 255)
    np.savez_compressed(tmp_path / "blank.npz", x=blank, y=y)
    assert (tmp_path / "blank.npz").stat().st_size < blank.nbytes // 500
    assert open_data(str(tmp_path / "blank.npz")).shape == (1, 1024, 1024)


def test_arrays_that_are_held_are_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((200, 4), np.uint8), y=np.zeros(200, int))
    monkeypatch.setattr(npz, "_LARGEST", 800)
    with pytest.raises(errors.DataFormatError, match="only x may have more than 800"):
        open_data(str(tmp_path / "a.npz"))
    names = np.array([str(i) for i in range(100_001)])
    np.savez(tmp_path / "b.npz", x=np.zeros((2, 4), np.uint8), y=np.zeros(2, int), classes=names)
    monkeypatch.undo()
    with pytest.raises(errors.DataFormatError, match="at most 100,000 names"):
        open_data(str(tmp_path / "b.npz"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(3):
        Image.new("L", (3, 2), 40 * i).save(tmp_path / f"{i}.png")
    return tmp_path


@pytest.mark.parametrize("suffix", [".png", ".dcm"])
def test_a_table_that_names_what_is_no_plain_file(folder: Path, suffix: str) -> None:
    os.mkfifo(folder / f"pipe{suffix}")
    (folder / f"linked{suffix}").symlink_to(f"pipe{suffix}")
    (folder / f"loop{suffix}").symlink_to(f"loop{suffix}")
    with (folder / f"sparse{suffix}").open("wb") as file:
        file.truncate(1 << 38)
    names = [f"{name}{suffix}" for name in ("pipe", "linked", "loop", "sparse")] + ["/dev/zero", "."]
    (folder / "t.csv").write_text("path,label\n0.png,a\n" + "".join(f"{name},b\n" for name in names))
    with pytest.raises(errors.UnreadableImageError, match=r"(?s)6 image files.*zero is not a plain file") as caught:
        open_data(str(folder / "t.csv"))
    assert sum("not a plain file" in line for line in caught.value.files) == 4
    assert any("at most 1,073,741,824" in line for line in caught.value.files)


def test_links_to_plain_files_are_followed(folder: Path) -> None:
    (folder / "far").mkdir()
    (folder / "far" / "link.png").symlink_to("../1.png")
    (folder / "far" / "t.csv").write_text("path,label\nlink.png,a\n../2.png,b\n")
    (folder / "t.csv").symlink_to("far/t.csv")
    (folder / "far" / "a.npz").symlink_to(archive(folder, GOOD, zipfile.ZIP_STORED))
    assert open_data(str(folder / "far" / "t.csv")).take(torch.tensor([0])).x.max() == pytest.approx(40 / 255)
    assert len(open_data(str(folder / "far" / "a.npz"))) == 4


def test_tables_without_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (folder / "t.csv").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(errors.DataFormatError, match="at most 268,435,456"):
        open_data(str(folder / "t.csv"))
    (folder / "t.csv").write_text(",".join(f"c{i}" for i in range(60_000)) + "\n")
    with pytest.raises(errors.DataFormatError, match="no column 'path'"):
        open_data(str(folder / "t.csv"))
    rows = pyarrow.table({"path": ["0.png"] * 1000, "label": ["a"] * 1000})
    parquet.write_table(rows, folder / "t.parquet")
    monkeypatch.setattr(table, "_ROWS", 999)
    with pytest.raises(errors.DataFormatError, match="1,000 rows, and a table has at most 999"):
        open_data(str(folder / "t.parquet"))
    monkeypatch.undo()
    monkeypatch.setattr(table, "_LIMIT", 50)
    with pytest.raises(errors.DataFormatError, match=r"columns .* at most 50"):
        open_data(str(folder / "t.parquet"))


def test_columns_are_not_counted_one_by_one() -> None:
    class Names(list[str]):
        def count(self, _: object) -> int:
            raise RuntimeError("all names for each name")

    with pytest.raises(errors.DataFormatError, match="several columns have the name 'a'"):
        table._positions(Path("t.csv"), Names(["path", "label", "a", "a"]), ["path", "label"])


def test_a_text_that_a_table_repeats_is_held_once(folder: Path) -> None:
    rows = 2000
    cells = {"path": ["none.png"] * rows, "label": ["a", None] * (rows // 2), "whose": ["p" * 50_000] * rows}
    parquet.write_table(pyarrow.table(cells), folder / "t.parquet")
    tracemalloc.start()
    try:
        with pytest.raises(errors.DataFormatError, match="no label in row 2, row 4"):
            open_data(str(folder / "t.parquet"), unit="whose")
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


def test_gzipped_files_of_strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "mnist"
    make_mnist(root)
    path = root / "train-images-idx3-ubyte"
    good = gzip.compress(idx_bytes(RNG.integers(0, 256, (5, 20, 20), dtype=np.uint8)))
    path.unlink()
    packed = path.with_name(path.name + ".gz")
    for bad in (good[:20] + b"\xff" * 40 + good[60:], good[:-9], b"no"):
        packed.write_bytes(bad)
        with pytest.raises(errors.DataFormatError, match="not a gzip file"):
            open_data("mnist", data_dir=tmp_path)
    packed.write_bytes(gzip.compress(bytes(8 << 20)))
    with monkeypatch.context() as patched, pytest.raises(errors.DataFormatError, match="more than 100 times"):
        patched.setattr(files, "_FREELY", 1 << 20)
        open_data("mnist", data_dir=tmp_path)
    monkeypatch.setattr(binary, "_LARGEST", 1 << 20)
    with pytest.raises(errors.DataFormatError, match="more than 1,048,576"):
        open_data("mnist", data_dir=tmp_path)
    packed.unlink()
    os.mkfifo(packed)
    with pytest.raises(errors.DataFormatError, match="not a plain file"):
        open_data("mnist", data_dir=tmp_path)


def test_labels_and_records_without_end(tmp_path: Path) -> None:
    make_mnist(tmp_path / "mnist")
    (tmp_path / "cifar100").mkdir()
    for name in ("mnist/train-labels-idx1-ubyte", "cifar100/train.bin"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(3074 << 30)
        with pytest.raises(errors.DataFormatError, match="has at most"):
            open_data(name.partition("/")[0], data_dir=tmp_path)
