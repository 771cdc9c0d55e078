from __future__ import annotations

import errno
import gc
import gzip
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mixveil.core import errors, files
from mixveil.data.images import from_tensors
from mixveil.data.npz import _load
from mixveil.data.opening import NAMED, open_data
from mixveil.data.stored_rows import StoredRows
from tests.data.made_mnist import idx_bytes, make_mnist

RNG = np.random.default_rng(0)
ROWS = torch.tensor([3, 0, 3])


def test_digits_come_with_scikit_learn() -> None:
    data = open_data("digits")
    assert len(data) == 1797 and data.shape == (1, 8, 8) and len(data.classes) == 10
    batch = data.take(torch.tensor([0]))
    assert float(batch.x.max()) <= 1 and int(batch.y.argmax()) == 0


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("split", ["", ":test"])
def test_idx_files(tmp_path: Path, name: str, split: str) -> None:
    pixels = make_mnist(tmp_path / name)
    batch = open_data(name + split, data_dir=tmp_path).take(ROWS)
    assert torch.allclose(batch.x[:, 0], torch.from_numpy(pixels[ROWS.numpy()]).float() / 255)
    assert batch.y.argmax(1).tolist() == [3, 0, 3]


def test_gzipped_idx_files(tmp_path: Path) -> None:
    make_mnist(tmp_path / "mnist")
    for path in list((tmp_path / "mnist").iterdir()):
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert len(open_data("mnist", data_dir=tmp_path)) == 5


@pytest.mark.parametrize("damage", [b"", b"\x00\x00\x08\x03", b"not an idx file", "short", "long"])
def test_damaged_idx_files(tmp_path: Path, damage: bytes | str) -> None:
    make_mnist(tmp_path / "mnist")
    path = tmp_path / "mnist" / "train-images-idx3-ubyte"
    data = path.read_bytes()
    path.write_bytes(data[:-1] if damage == "short" else data + b"x" if damage == "long" else damage)  # type: ignore[arg-type]
    with pytest.raises(errors.DataFormatError, match="train-images"):
        open_data("mnist", data_dir=tmp_path)


def test_idx_images_and_labels_that_do_not_belong_together(tmp_path: Path) -> None:
    make_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / "train-labels-idx1-ubyte").write_bytes(idx_bytes(np.zeros(4, np.uint8)))
    with pytest.raises(errors.DataFormatError, match="does not go with"):
        open_data("mnist", data_dir=tmp_path)


def test_a_label_outside_the_classes(tmp_path: Path) -> None:
    make_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / "train-labels-idx1-ubyte").write_bytes(idx_bytes(np.array([0, 1, 12, 3, 4], np.uint8)))
    with pytest.raises(errors.LabelError, match="label 12 of row 2"):
        open_data("mnist", data_dir=tmp_path)


def test_cifar_10_over_its_five_files(tmp_path: Path) -> None:
    folder = tmp_path / "cifar10"
    folder.mkdir()
    records = RNG.integers(0, 256, (10, 3073), dtype=np.uint8)
    records[:, 0] = np.arange(10)
    for i in range(5):
        (folder / f"data_batch_{i + 1}.bin").write_bytes(records[2 * i : 2 * i + 2].tobytes())
    data = open_data("cifar10", data_dir=tmp_path)
    index = torch.tensor([9, 0, 5, 4])
    batch = data.take(index)
    assert len(data) == 10 and data.shape == (3, 32, 32)
    assert torch.allclose(batch.x.flatten(1), torch.from_numpy(records[index.numpy(), 1:]).float() / 255)
    assert batch.y.argmax(1).tolist() == [9, 0, 5, 4]


def test_cifar_100_takes_the_fine_label(tmp_path: Path) -> None:
    (tmp_path / "cifar100").mkdir()
    record = np.zeros((2, 3074), np.uint8)
    record[:, 0], record[:, 1] = (3, 4), (77, 99)
    (tmp_path / "cifar100" / "test.bin").write_bytes(record.tobytes())
    assert open_data("cifar100:test", data_dir=tmp_path).labels.tolist() == [77, 99]


def test_cifar_files_that_are_cut_or_missing(tmp_path: Path) -> None:
    (tmp_path / "cifar100").mkdir()
    with pytest.raises(errors.DataNotFoundError, match=r"train\.bin"):
        open_data("cifar100", data_dir=tmp_path)
    (tmp_path / "cifar100" / "train.bin").write_bytes(b"x" * 3000)
    with pytest.raises(errors.DataFormatError, match="3074-byte records"):
        open_data("cifar100", data_dir=tmp_path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_of_octets_and_of_floats(tmp_path: Path, save: object) -> None:
    octets = RNG.integers(0, 256, (6, 1, 2, 2), dtype=np.uint8)
    floats = RNG.random((6, 5)).astype(np.float32)
    y = np.array([0, 1, 2, 0, 1, 2])
    save(tmp_path / "a.npz", x=octets, y=y)  # type: ignore[operator]
    save(tmp_path / "b.npz", x=floats * 4 - 2, y=y, range=[-2, 2], classes=["cat", "dog", "owl"])  # type: ignore[operator]
    a, b = open_data(str(tmp_path / "a.npz")), open_data(str(tmp_path / "b.npz"))
    assert torch.allclose(a.take(ROWS).x, torch.from_numpy(octets[ROWS.numpy()]).float() / 255)
    assert torch.allclose(b.take(ROWS).x, torch.from_numpy(floats[ROWS.numpy()] * 4 - 2))
    assert (b.low, b.high) == (-2, 2) and b.classes == ("cat", "dog", "owl")
    assert a.classes == ("0", "1", "2")


def test_rows_of_a_stored_npz_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    x = RNG.integers(0, 256, (50, 3, 5, 7), dtype=np.uint8)
    kinds: list[Any] = [x, x.astype(">f4") / 255, np.asfortranarray(x), x[:, 0]]
    for number, stored in enumerate(kinds):
        path = tmp_path / f"{number}.npz"
        np.savez(path, x=stored, y=np.arange(50) % 3)
        data = open_data(str(path))
        image = stored[:, None] if stored.ndim == 3 else stored
        for index in ([], [7], [3, 4, 5, 6], [9, 8, 7], [0, 0, 49, 1, 2, 49], list(range(50))):
            wanted = torch.from_numpy(image[index].astype(np.float32)) / (255 if stored.dtype == np.uint8 else 1)
            assert torch.equal(data.take(torch.tensor(index, dtype=torch.int64)).x, wanted)


def test_rows_of_a_file_that_became_shorter_are_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, y=np.zeros(2000, int), x=np.zeros((2000, 4, 4), np.uint8))
    data = open_data(str(path))
    with path.open("r+b") as file:
        file.truncate(20_000)
    with pytest.raises(errors.UnreadableFileError, match=r"a\.npz became shorter"):
        data.take(torch.arange(1900, 2000))


def test_rows_in_fortran_order_are_read_whole_before_the_file_can_become_shorter(tmp_path: Path) -> None:
    """Of a mapped file that becomes shorter the system kills the process."""
    path, x = tmp_path / "a.npz", RNG.integers(0, 256, (2000, 4, 4), dtype=np.uint8)
    np.savez(path, y=np.zeros(2000, int), x=np.asfortranarray(x))
    data = open_data(str(path))
    assert str(path) not in Path("/proc/self/maps").read_text()
    with path.open("r+b") as file:
        file.truncate(20_000)
    index = torch.arange(1900, 2000)
    assert torch.equal(data.take(index).x[:, 0], torch.from_numpy(x[index.numpy()]).float() / 255)


def test_rows_in_fortran_order_that_would_fill_the_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = np.zeros((40, 1, 64, 64), np.uint8), np.arange(40) % 3
    np.savez(tmp_path / "c.npz", x=x, y=y)
    np.savez(tmp_path / "fortran.npz", x=np.asfortranarray(x), y=y)
    monkeypatch.setattr(files, "half_of_memory", lambda: 100_000)
    assert len(open_data(str(tmp_path / "c.npz"))) == 40
    with pytest.raises(errors.DataFormatError, match=r"163,840 bytes in Fortran order.* np\.ascontiguousarray"):
        open_data(str(tmp_path / "fortran.npz"))


def test_stored_rows_are_asked_by_number_and_stay_in_their_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "a.npz", x=RNG.integers(0, 256, (50, 4, 4), dtype=np.uint8), y=np.arange(50) % 3)
    rows = _load(tmp_path / "a.npz", None)[0]["x"]
    assert isinstance(rows, StoredRows)
    strange: list[Any] = [[-1], [50], [True, False], np.array([3], np.uint8), [[1, 2]]]
    for wrong in map(np.array, strange):
        with pytest.raises(errors.ArgumentError, match="row numbers"):
            rows[wrong]
    with pytest.raises(TypeError, match=r"a\.npz cannot go to another process"):
        pickle.dumps(rows)

    def failing(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "preadv", failing)
    with pytest.raises(errors.UnreadableFileError, match=r"a\.npz could not be read: Input/output error"):
        rows[np.array([3])]


@pytest.mark.parametrize(("order", "descriptors"), [(np.ascontiguousarray, 1), (np.asfortranarray, 0)])
def test_a_process_holds_nothing_of_an_npz_that_it_has_read(tmp_path: Path, order: Any, descriptors: int) -> None:
    """Neither descriptors, once the data are gone, nor a map of the file while they are there."""
    path = tmp_path / "a.npz"
    np.savez(path, x=order(RNG.integers(0, 256, (4096, 1, 64, 64), dtype=np.uint8)), y=np.arange(4096) % 3)
    data = open_data(str(path))
    data.take(torch.arange(0, 4096, 5))
    opened = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink() and link.readlink() == path]
    assert len(opened) == descriptors and str(path) not in Path("/proc/self/maps").read_text()
    del data
    gc.collect()
    assert not [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink() and link.readlink() == path]


BAD_ARCHIVES: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "no y": ({"x": np.zeros((2, 2))}, errors.DataFormatError),
    "lengths differ": ({"x": np.zeros((2, 2)), "y": np.zeros(3, int)}, errors.DataFormatError),
    "flat x": ({"x": np.zeros(2), "y": np.zeros(2, int)}, errors.DataFormatError),
    "x of whole numbers": ({"x": np.zeros((2, 2), int), "y": np.zeros(2, int)}, errors.DataFormatError),
    "labels that are fractions": ({"x": np.zeros((2, 2)), "y": np.zeros(2)}, errors.LabelError),
    "a negative label": ({"x": np.zeros((2, 2)), "y": np.array([0, -1])}, errors.LabelError),
    "a label beyond the names": (
        {"x": np.zeros((2, 2)), "y": np.array([0, 3]), "classes": np.array(["a", "b"])},
        errors.LabelError,
    ),
    "a label like a record number": ({"x": np.zeros((2, 2)), "y": np.array([0, 10**9])}, errors.LabelError),
    "names that are numbers": (
        {"x": np.zeros((2, 2)), "y": np.array([0, 1]), "classes": np.eye(2)},
        errors.DataFormatError,
    ),
    "a range without end": (
        {"x": np.zeros((2, 2)), "y": np.array([0, 1]), "range": np.array([0, np.inf])},
        errors.DataFormatError,
    ),
    "images without pixels": ({"x": np.zeros((2, 0)), "y": np.array([0, 1])}, errors.DataFormatError),
    "a label beyond whole numbers": ({"x": np.zeros((2, 2)), "y": np.array([0, 2**63], np.uint64)}, errors.LabelError),
    "a class without a name": (
        {"x": np.zeros((2, 2)), "y": np.array([0, 1]), "classes": ["", "b"]},
        errors.DataFormatError,
    ),
    "a range upside down": (
        {"x": np.zeros((2, 2)), "y": np.array([0, 1]), "range": np.array([1, 0])},
        errors.DataFormatError,
    ),
    "Python objects": ({"x": np.array([[None, 1]] * 2, object), "y": np.zeros(2, int)}, errors.DataFormatError),
}


@pytest.mark.parametrize("name", BAD_ARCHIVES)
def test_bad_archives(tmp_path: Path, name: str) -> None:
    arrays, error = BAD_ARCHIVES[name]
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(error):
        open_data(str(tmp_path / "a.npz"))


@pytest.mark.parametrize("dtype", [">f4", "f2", "f8", "longdouble"])
def test_floats_of_every_kind(tmp_path: Path, dtype: str) -> None:
    np.savez(tmp_path / "a.npz", x=np.full((3, 2), 0.25, dtype), y=np.arange(3))
    assert open_data(str(tmp_path / "a.npz")).take(ROWS[1:2]).x.tolist() == [[0.25, 0.25]]


def test_rows_that_do_not_exist() -> None:
    with pytest.raises(errors.ArgumentError, match="row numbers"):
        from_tensors(torch.zeros(3, 2), torch.tensor([0, 1, 0])).take(torch.tensor([-1]))


def test_size_and_grey_are_for_folders() -> None:
    with pytest.raises(errors.ArgumentError, match="folders"):
        open_data("digits", size=16)


def test_what_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"PK not really")
    with pytest.raises(errors.DataFormatError, match="not a NumPy archive"):
        open_data(str(tmp_path / "a.npz"))


@pytest.mark.parametrize(("value", "shown"), [(np.nan, "nan"), (1.5, "1.5"), (-0.1, "-0.1"), (np.inf, "inf")])
def test_pixels_outside_their_range(value: float, shown: str) -> None:
    x = torch.full((4, 3), 0.5)
    x[2, 1] = value
    data = from_tensors(x, torch.tensor([0, 1, 0, 1]))
    with pytest.raises(errors.PixelError, match=f"row 2 has the pixel {shown}"):
        data.take(torch.tensor([1, 2]))
    data.take(torch.tensor([0, 1, 3]))


def make_folder(root: Path, sizes: list[tuple[int, int]], mode: str = "RGB") -> None:
    from PIL import Image

    for number, size in enumerate(sizes):
        path = root / ("cat" if number % 2 else "ant") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new(mode, size, 40 * number if mode == "L" else (40 * number, 0, 255)).save(path)


def test_a_folder_of_class_folders(tmp_path: Path) -> None:
    make_folder(tmp_path / "f", [(3, 2)] * 4)
    data = open_data(str(tmp_path / "f"))
    assert data.classes == ("ant", "cat") and data.shape == (3, 2, 3)
    assert data.labels.tolist() == [0, 0, 1, 1]
    assert data.take(torch.tensor([1])).x[0, :, 0, 0].tolist() == pytest.approx([80 / 255, 0, 1])


def test_no_image_changes_the_shape_of_the_others(tmp_path: Path) -> None:
    """Grey or colour is the owner's word: else one record would show in a certified manifest."""
    make_folder(tmp_path / "f", [(2, 2)] * 2, "L")
    grey = open_data(str(tmp_path / "f"))
    assert grey.shape == (3, 2, 2) and grey.warnings()[0].code == "all-grey"
    make_folder(tmp_path / "f" / "ant", [(2, 2)], "RGB")
    assert open_data(str(tmp_path / "f")).shape == (3, 2, 2)
    assert open_data(str(tmp_path / "f"), grey=True).shape == (1, 2, 2)


def test_an_image_that_claims_to_be_huge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    make_folder(tmp_path / "f", [(8, 8)] * 2)
    for limit in (40, 10):  # a warning, an error
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with pytest.raises(errors.UnreadableImageError, match="not a readable image"):
            open_data(str(tmp_path / "f"))


def test_files_that_are_left_out_are_counted(tmp_path: Path) -> None:
    make_folder(tmp_path / "f", [(2, 2)] * 2)
    (tmp_path / "f" / "ant" / "scan.raw").write_bytes(b"")
    (tmp_path / "f" / "readme.txt").write_bytes(b"")
    assert [told.figures.get("files") for told in open_data(str(tmp_path / "f")).warnings()] == [2]


def test_images_of_several_sizes_need_one(tmp_path: Path) -> None:
    make_folder(tmp_path / "f", [(3, 2), (2, 2)])
    with pytest.raises(errors.DataFormatError, match="--size"):
        open_data(str(tmp_path / "f"))
    assert open_data(str(tmp_path / "f"), size=5).take(torch.tensor([0, 1])).x.shape == (2, 3, 5, 5)


def test_an_unreadable_image_among_good_ones(tmp_path: Path) -> None:
    make_folder(tmp_path / "f", [(2, 2)] * 4)
    (tmp_path / "f" / "cat" / "1.png").write_bytes(b"not a picture")
    with pytest.raises(errors.UnreadableImageError, match=r"cat/1\.png"):
        open_data(str(tmp_path / "f"))


def test_a_truncated_image_among_good_ones(tmp_path: Path) -> None:
    make_folder(tmp_path / "f", [(64, 64)] * 2)
    path = tmp_path / "f" / "cat" / "1.png"
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(errors.UnreadableImageError, match=r"cat/1\.png"):
        open_data(str(tmp_path / "f")).take(torch.tensor([0, 1]))


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(errors.DataFormatError, match="no images found"):
        open_data(str(tmp_path))


def test_tiny_imagenet_by_folders_and_by_its_list(tmp_path: Path) -> None:
    root = tmp_path / "tiny-imagenet-200"
    for wordnet_id in ("n02", "n01"):
        make_folder(root / "train" / wordnet_id / "images", [(2, 2)] * 2)
    make_folder(root / "val", [(2, 2)] * 2)
    (root / "val" / "images").mkdir()
    (root / "val" / "ant" / "0.png").rename(root / "val" / "images" / "val_0.png")
    (root / "val" / "val_annotations.txt").write_text("val_0.png\tn02\t0\t0\t1\t1\n")
    train, val = open_data("tiny-imagenet", data_dir=tmp_path), open_data("tiny-imagenet:val", data_dir=tmp_path)
    assert train.classes == val.classes == ("n01", "n02")
    assert train.labels.tolist() == [0, 0, 1, 1] and val.labels.tolist() == [1]
    assert val.take(torch.tensor([0])).x.shape == (1, 3, 2, 2)


def test_a_missing_set_says_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.DataNotFoundError, match="MIXVEIL_DATA"):
        open_data("mnist")
    with pytest.raises(errors.DataNotFoundError, match=str(tmp_path / "mnist")):
        open_data("mnist", data_dir=tmp_path)
    make_mnist(tmp_path / "mnist")
    monkeypatch.setenv("MIXVEIL_DATA", str(tmp_path))
    assert len(open_data("mnist")) == 5


def test_unknown_names_and_splits(tmp_path: Path) -> None:
    with pytest.raises(errors.DataNotFoundError, match="does not exist"):
        open_data("nothing-here")
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(errors.DataNotFoundError, match="no known kind"):
        open_data(str(tmp_path / "a.txt"))
    with pytest.raises(errors.ArgumentError, match="'validation'"):
        open_data("mnist:validation")
    assert set(NAMED) >= {"digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "tiny-imagenet"}


def test_labels_and_images_must_be_as_many() -> None:
    with pytest.raises(errors.LabelError, match="2 labels for 3 images"):
        from_tensors(torch.zeros(3, 2), torch.tensor([0, 1]))


def test_one_class_only_is_allowed_with_a_warning() -> None:
    data = from_tensors(torch.zeros(3, 2), torch.tensor([1, 1, 1]), classes=3)
    assert data.warnings()[0].code == "one-class-only"
    assert from_tensors(torch.zeros(2, 2), torch.tensor([0, 1])).warnings() == []


def test_images_from_arrays_and_lists() -> None:
    x = np.random.default_rng(0).random((4, 1, 2, 2), dtype=np.float32)
    index = torch.arange(4)
    wanted = from_tensors(torch.from_numpy(x), torch.tensor([0, 1, 1, 0])).take(index)
    for given, labels in ((x, np.array([0, 1, 1, 0])), (x.tolist(), [0, 1, 1, 0]), (x, np.array([0.0, 1.0, 1.0, 0.0]))):
        made = from_tensors(given, labels).take(index)
        assert torch.equal(made.x, wanted.x) and torch.equal(made.y, wanted.y)


@pytest.mark.parametrize(
    ("x", "labels", "error", "said"),
    [
        ("cat.png", [0], errors.ArgumentError, "x must be a tensor"),
        (np.zeros((2, 2)), None, errors.ArgumentError, "labels must be a tensor"),
        (np.zeros((2, 2)), ["cat", "dog"], errors.ArgumentError, "labels must be a tensor"),
        (np.zeros((2, 2), complex), [0, 1], errors.ArgumentError, "real numbers"),
        ([0.1, 0.2], [0, 1], errors.ArgumentError, "shape"),
        (np.zeros((2, 2)), [[0], [1]], errors.ArgumentError, "shape"),
        (np.zeros((2, 2)), [0.5, 1.0], errors.LabelError, "whole numbers"),
        (np.zeros((2, 2)), [0.0, float("nan")], errors.LabelError, "whole numbers"),
    ],
)
def test_what_is_no_images(x: Any, labels: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        from_tensors(x, labels)
