from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

from mixveil.core import errors
from mixveil.data import alike
from mixveil.data.check import Count, check
from mixveil.data.folder import listed_images
from mixveil.data.images import Images, from_tensors


def noise(n: int, side: int = 8, seed: int = 0) -> torch.Tensor:
    return torch.rand(n, 1, side, side, generator=torch.Generator().manual_seed(seed))


def photo(seed: int, side: int = 64) -> npt.NDArray[np.uint8]:
    """Something smooth, with light and shade."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 6), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC))


def again(picture: npt.NDArray[np.uint8], quality: int) -> npt.NDArray[np.uint8]:
    """Compressed and opened."""
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "jpeg", quality=quality)
    return np.asarray(Image.open(file))


def files(folder: Path, pictures: list[npt.NDArray[Any]], labels: list[int], **options: Any) -> Images:
    paths = [folder / f"{i}.png" for i in range(len(pictures))]
    for path, picture in zip(paths, pictures, strict=True):
        Image.fromarray(picture).save(path)
    return listed_images("t", paths, torch.tensor(labels), ("a", "b"), **options)


def test_counts_and_ranges() -> None:
    found = check(from_tensors(noise(30) / 2 + 0.25, torch.tensor([0] * 18 + [1] * 12), classes=3))
    assert (found.rows, found.shape, found.range) == (30, (1, 8, 8), (0, 1))
    assert 0.25 <= found.met[0] < 0.26 and 0.74 < found.met[1] <= 0.75
    assert found.classes == (Count("0", 18), Count("1", 12), Count("2", 0)) and found.few == ()
    assert found.exact.groups == 0 and found.near is not None and found.near.groups == 0
    assert found.units is None and found.sizes == found.kinds == ()


def test_classes_of_few_rows_are_named() -> None:
    found = check(from_tensors(noise(20), torch.tensor([0] * 11 + [1] * 9), classes=3))
    assert found.few == (Count("1", 9),) and found.warnings[-1].figures["names"] == "1 (9)"


@pytest.mark.parametrize(("own", "more"), [(5, False), (6, True)])
def test_units(own: int, more: bool) -> None:
    data = replace(from_tensors(noise(10), torch.arange(10) % 2), units=("p",) * own + ("q",) * (9 - own) + ("r",))
    units = check(data).units
    assert units is not None and (units.count, units.least, units.most, units.largest) == (3, 1, own, "p")
    assert units.median == sorted([own, 9 - own, 1])[1] and units.more_than_half is more
    assert ("unit-with-most-rows" in [told.code for told in check(data).warnings]) is more


def test_exact_copies() -> None:
    x = noise(40)
    x[30], x[20], x[5] = x[3], x[3], x[7]
    units = [str(row) for row in range(40)]
    units[5] = units[7]
    labels = torch.zeros(40).long()
    labels[5] = 1
    found = check(replace(from_tensors(x, labels, classes=2), units=tuple(units)))
    assert (found.exact.groups, found.exact.copies) == (2, 3)
    assert (found.exact.labels_differ, found.exact.units_differ) == (1, 1)
    assert [group.rows for group in found.exact.examples] == [(3, 20, 30), (5, 7)]
    assert [group.labels_differ for group in found.exact.examples] == [False, True]
    assert "same-with-different-labels" in [told.code for told in found.warnings]
    assert found.near is not None and found.near.groups == 0  # copies are not counted twice


def test_copies_are_told_at_full_size_and_whatever_their_colour(tmp_path: Path) -> None:
    one, other = photo(0), photo(1)
    speck = one.copy()
    speck[0, 0] ^= 64  # gone at 4×4
    data = files(tmp_path, [one, other, np.stack([one] * 3, -1), speck], [0, 0, 0, 0], size=4)
    found = check(data)
    assert [group.rows for group in found.exact.examples] == [(0, 2)]
    assert found.exact.examples[0].files == (str(tmp_path / "0.png"), str(tmp_path / "2.png"))
    assert found.near is not None and [group.rows for group in found.near.examples] == [(0, 2, 3)]
    assert found.near.copies == 1
    assert found.sizes == (Count("64×64", 4),)
    assert found.kinds == (Count("PNG, 8-bit greyscale", 3), Count("PNG, 8-bit colour", 1))


def test_near_copies_of_another_size_and_another_quality(tmp_path: Path) -> None:
    pictures = [photo(seed) for seed in range(30)]
    small = np.asarray(Image.fromarray(pictures[4]).resize((40, 48)))
    found = check(files(tmp_path, [*pictures, again(pictures[9], 60), small], [0] * 31 + [1], size=8))
    assert found.exact.groups == 0 and found.near is not None
    assert [group.rows for group in found.near.examples] == [(4, 31), (9, 30)]
    assert [group.labels_differ for group in found.near.examples] == [True, False]
    assert found.near.labels_differ == 1 and len(found.sizes) == 2


def test_faint_pictures_are_told_apart(tmp_path: Path) -> None:
    """12-bit values in files of 16 bits, for which no depth was given. A brighter copy is the same image, as it is for
    the ledger; a retouched one looks alike."""
    pictures = [photo(seed).astype(np.uint16) * 16 for seed in range(20)]
    retouched = pictures[5].copy()
    retouched[::2] += 40
    found = check(files(tmp_path, [*pictures, pictures[3] + 8, retouched], [0] * 22))
    assert [group.rows for group in found.exact.examples] == [(3, 20)]
    assert found.near is not None and [group.rows for group in found.near.examples] == [(5, 21)]


def test_blank_images_are_one_group() -> None:
    x = noise(600)
    x[::2] = torch.linspace(0, 1, 300).view(-1, 1, 1, 1)
    near = check(from_tensors(x, torch.arange(600) % 2)).near
    assert near is not None and near.groups == 1 and near.copies == 299 and near.examples[0].size == 300
    assert near.examples[0].rows == tuple(range(0, 20, 2))


def test_many_that_look_alike_are_one_group_and_few_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    verify = alike._look_alike

    def counted(a: alike.Thumbs, b: alike.Thumbs) -> npt.NDArray[np.bool_]:
        compared.append(len(a))
        return verify(a, b)

    monkeypatch.setattr(alike, "_look_alike", counted)
    thumb = np.tile(np.linspace(0, 1, 16), 16).astype(np.float16)
    assert alike.groups(np.zeros(3000, np.uint64), np.tile(thumb, (3000, 1))) == [list(range(3000))]
    assert sum(compared) < 3000 * 64


@pytest.mark.parametrize(("scale", "shift", "near"), [(1, 0.01, 1), (1, 0.03, 0), (0.02, 0.0005, 1), (0.02, 0.003, 0)])
def test_thumbnails_decide(scale: float, shift: float, near: int) -> None:
    """In a picture of full contrast 0.03 of the range is too much; in a faint one 0.003 is."""
    thumb = scale * np.tile(np.linspace(0, 0.9, 16), 16)
    both = np.stack([thumb, thumb + shift]).astype(np.float16)
    assert len(alike.groups(np.zeros(2, np.uint64), both)) == near


@pytest.mark.parametrize("bit", [0, 20, 40, 63])
def test_hashes_that_differ_in_any_one_bit_meet(bit: int) -> None:
    rng = np.random.default_rng(bit)
    hashes, thumbs = rng.integers(0, 2**64, 500, dtype=np.uint64), rng.random((500, 256)).astype(np.float16)
    hashes[400], thumbs[400] = hashes[17] ^ np.uint64(1 << bit), thumbs[17]
    assert alike.groups(hashes, thumbs) == [[17, 400]]


def test_rows_that_are_no_pictures() -> None:
    x = noise(12).flatten(1)
    x[3] = x[4]
    found = check(from_tensors(x, torch.arange(12) % 2))
    assert found.near is None and found.exact.examples[0].rows == (3, 4)


def test_all_unreadable_rows_over_several_blocks(tmp_path: Path) -> None:
    data = files(tmp_path, [photo(seed) for seed in range(40)], [0] * 40)
    for row in (2, 39):
        path = tmp_path / f"{row}.png"
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(errors.UnreadableImageError) as told:
        check(data)
    assert [Path(line.partition(":")[0]).name for line in told.value.files] == ["2.png", "39.png"]


def test_a_pixel_beyond_its_depth_and_no_rows(tmp_path: Path) -> None:
    with pytest.raises(errors.PixelError, match=r"1\.png"):
        check(files(tmp_path, [np.full((2, 2), value, np.uint16) for value in (1, 300)], [0, 1], depth=8))
    with pytest.raises(errors.DataFormatError, match="no rows"):
        check(from_tensors(noise(0), torch.zeros(0).long()))
