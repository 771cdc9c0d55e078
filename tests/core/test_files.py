"""A file that somebody else may have written is a plain one of a bounded size, or it is not read."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save

from mixveil.core import files, tensor_files
from mixveil.core.errors import MixveilError, ShardFormatError, UnreadableFileError
from mixveil.core.tensor_files import check_header


def test_a_plain_file_is_read_and_folders_above_it_may_be_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "f").write_bytes(b"12345")
    (tmp_path / "linked").symlink_to("real")
    assert files.read_small(tmp_path / "linked" / "f", 5) == b"12345"
    with pytest.raises(UnreadableFileError, match=r"5 bytes.* at most 4"):
        files.read_small(tmp_path / "real" / "f", 4)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "No such file"),
        (os.mkfifo, "not a plain file"),
        (Path.mkdir, "not a plain file"),
        (lambda path: path.symlink_to("/dev/zero"), "is a link"),
        (lambda path: path.symlink_to(__file__), "is a link"),
        (lambda path: path.symlink_to(path), "is a link"),
        (lambda path: path.symlink_to("nowhere"), "is a link"),
    ],
    ids=["nothing", "pipe", "folder", "device", "link", "loop", "dangling"],
)
def test_anything_else_is_refused_at_once(tmp_path: Path, make: object, said: str) -> None:
    make(tmp_path / "f")  # type: ignore[operator]
    with pytest.raises(UnreadableFileError, match=said):
        files.read_small(tmp_path / "f", 100)


def test_a_file_that_is_replaced_or_grows_while_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real = tmp_path / "f", os.open

    def swapped(name: Path, flags: int) -> int:
        path.unlink()
        os.mkfifo(path)
        return real(name, flags)

    path.write_bytes(b"1")
    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(UnreadableFileError, match="not a plain file"):
        files.read_small(path, 100)
    monkeypatch.setattr(os, "open", real)
    monkeypatch.setattr(files, "_check_plain", lambda *_: None)  # as if it was small then
    (tmp_path / "g").write_bytes(b"12345")
    with pytest.raises(UnreadableFileError, match="more than 4 bytes"):
        files.read_small(tmp_path / "g", 4)


def with_header(text: bytes, body: bytes = b"") -> bytes:
    return len(text).to_bytes(8, "little") + text + body


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1234567",
        with_header(b"{}", b"1"),
        with_header(b"[]"),
        with_header(b"{}" + b" " * 5000),
        with_header(b'{"__metadata__":{"a":"b"}}'),
        with_header(b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', b"12345"),
        with_header(b'{"x":{"dtype":"F4","shape":[1],"data_offsets":[0,4]}}', b"1234"),
        with_header(b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0]}}', b"1234"),
        with_header(b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}}', b"1234"),
        (1 << 63).to_bytes(8, "little") + b"{}",
    ],
)
def test_a_header_that_says_more_or_less_than_its_tensors(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "f"
    path.write_bytes(data)
    with path.open("rb") as file, pytest.raises(ShardFormatError) as caught:
        check_header(file, path)
    assert isinstance(caught.value, MixveilError) and len(str(caught.value)) < 500


def test_a_header_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(save({"x": torch.zeros(2, 3), "y": torch.zeros(0)}, {"about": "this"}))
    with path.open("rb") as file:
        check_header(file, path, metadata=("about",))
        assert file.tell() == 0
        with pytest.raises(ShardFormatError, match="metadata"):
            check_header(file, path)


@pytest.mark.parametrize("by_descriptor", [True, False])
def test_the_file_that_was_hashed_is_the_file_that_is_mapped(
    tmp_path: Path, by_descriptor: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = tmp_path / "f", tmp_path / "g"
    path.write_bytes(save({"x": torch.ones(3)}))
    if not by_descriptor:
        monkeypatch.setattr(tensor_files, "_DESCRIPTORS", tmp_path / "nowhere")
    with path.open("rb") as file, tensor_files.mapped(file, path) as found:
        assert found.get_tensor("x").tolist() == [1, 1, 1]
    with path.open("rb") as file:
        other.write_bytes(save({"x": torch.zeros(3)}))
        other.rename(path)
        if by_descriptor:
            with tensor_files.mapped(file, path) as found:
                x = found.get_tensor("x")
            assert x.tolist() == [1, 1, 1]
        else:
            with pytest.raises(ShardFormatError, match="was replaced"), tensor_files.mapped(file, path):
                pass
    assert load_file(path)["x"].tolist() == [0, 0, 0]


def test_what_killed_processes_left_of_a_file_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.made"
    old = [".ledger.made.27764.partial", ".ledger.made.1.partial"]
    others = [".ledger.made.x.partial", ".ledger.12.partial", ".ledger.made.12.partial.1", ".ledgerxmade.12.partial"]
    for name in (*old, *others):
        (tmp_path / name).write_bytes(b"1")
        os.utime(tmp_path / name, (0, time.time() - 4000))
    young = ".ledger.made.28042.partial"  # perhaps of a process that lives
    (tmp_path / young).write_bytes(b"1")
    files.write_whole(path, b"2")
    assert path.read_bytes() == b"2"
    assert {entry.name for entry in tmp_path.iterdir()} == {path.name, young, *others}
