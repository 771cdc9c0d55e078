"""CIFAR-5M, of which small files in the same format stand in for the real ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from mixveil.core.errors import DataFormatError, DataNotFoundError, LabelError
from mixveil.data.opening import open_data
from mixveil.data.stored_rows import StoredRows

Array = npt.NDArray[Any]


def made(
    root: Path, numbers: range, rows: int = 7, save: Callable[..., None] = np.savez
) -> dict[int, tuple[Array, Array]]:
    """Files with other images and labels each."""
    folder, found = root / "cifar5m", {}
    folder.mkdir(exist_ok=True)
    for number in numbers:
        draws = np.random.default_rng(number)
        x = draws.integers(0, 256, (rows + number, 32, 32, 3), np.uint8)
        y = draws.integers(0, 10, rows + number)
        save(folder / f"cifar5m_part{number}.npz", X=x, Y=y)
        found[number] = (x, y)
    return found


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_rows_of_several_files_in_any_order(tmp_path: Path, save: Callable[..., None]) -> None:
    files = made(tmp_path, range(6), save=save)
    x = np.concatenate([files[number][0] for number in range(5)])
    y = np.concatenate([files[number][1] for number in range(5)])
    data = open_data("cifar5m", data_dir=tmp_path)
    assert (len(data), data.shape, len(data.classes), data.declared) == (len(x), (3, 32, 32), 10, True)
    index = torch.tensor([44, 0, 7, 6, 44, 20])
    batch = data.take(index)
    assert torch.equal(batch.x, torch.from_numpy(x[index.numpy()].transpose(0, 3, 1, 2).copy()).float() / 255)
    assert batch.y.argmax(1).tolist() == y[index.numpy()].tolist()
    assert torch.equal(data.labels, torch.from_numpy(y))


def test_the_last_file_is_for_testing(tmp_path: Path) -> None:
    files = made(tmp_path, range(6))
    test = open_data("cifar5m:test", data_dir=tmp_path)
    assert test.labels.tolist() == files[5][1].tolist()


def test_some_of_the_files_are_some_of_the_images(tmp_path: Path) -> None:
    files = made(tmp_path, range(1, 3))
    assert open_data("cifar5m", data_dir=tmp_path).labels.tolist() == [*files[1][1], *files[2][1]]
    with pytest.raises(DataNotFoundError, match=r"cifar5m_part5\.npz does not exist"):
        open_data("cifar5m:test", data_dir=tmp_path)


def test_images_stay_in_the_file(tmp_path: Path) -> None:
    """3 GB a file are not read into memory."""
    from mixveil.data.cifar5m import _part

    made(tmp_path, range(1))
    assert isinstance(_part(tmp_path / "cifar5m" / "cifar5m_part0.npz")[0], StoredRows)


X, Y = np.zeros((3, 32, 32, 3), np.uint8), np.zeros(3, np.int64)


@pytest.mark.parametrize(
    ("arrays", "error", "why"),
    [
        ({"X": X}, DataFormatError, "lacks Y"),
        ({"x": X, "y": Y}, DataFormatError, "lacks X and Y"),
        ({"X": X.astype(np.float32), "Y": Y}, DataFormatError, "X must be octets"),
        ({"X": X.transpose(0, 3, 1, 2), "Y": Y}, DataFormatError, "X must be octets of shape"),
        ({"X": X, "Y": Y[:2]}, DataFormatError, "Y must be 3 whole numbers"),
        ({"X": X, "Y": Y.astype(np.float64)}, DataFormatError, "Y must be 3 whole numbers"),
        ({"X": X, "Y": Y + 10}, LabelError, r"labels must be in 0…9, they are in 10…10"),
        ({"X": X, "Y": Y - 1}, LabelError, r"they are in -1…-1"),
        ({"X": X, "Y": np.array([None, 1, 2])}, DataFormatError, "Python objects"),
    ],
)
def test_other_arrays_are_refused(tmp_path: Path, arrays: dict[str, Array], error: type[Exception], why: str) -> None:
    (tmp_path / "cifar5m").mkdir()
    np.savez(tmp_path / "cifar5m" / "cifar5m_part0.npz", allow_pickle=True, **arrays)
    with pytest.raises(error, match=why):
        open_data("cifar5m", data_dir=tmp_path)


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "cifar5m").mkdir()
    (tmp_path / "cifar5m" / "cifar5m_part0.npz").write_bytes(b"not an archive")
    with pytest.raises(DataFormatError, match="not a NumPy archive"):
        open_data("cifar5m", data_dir=tmp_path)
