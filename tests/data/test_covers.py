"""Public patches: where they are cut, that flat ones are left out, and that they fit the rows."""

from __future__ import annotations

import sys

import pytest
import torch

from mixveil.core.errors import ArgumentError, MismatchError, MissingDependencyError
from mixveil.core.randomness import SeededStream
from mixveil.data.covers import Covered, patches
from mixveil.data.images import Images, from_tensors

STREAM = SeededStream(0)
ROWS = from_tensors(STREAM.uniform(10, 1, 8, 8).float(), torch.arange(10) % 2)


def public(shape: tuple[int, ...] = (3, 64, 48), flat: int = 0) -> Images:
    """Blobs, which have keypoints; the first so many are flat."""
    n = 12
    coarse = STREAM.uniform(n, shape[0], shape[1] // 4, shape[2] // 4).float()
    x = torch.nn.functional.interpolate(coarse, shape[1:], mode="bicubic").clamp(0, 1)
    x[:flat] = 0.5
    return from_tensors(x, torch.zeros(n, dtype=torch.int64))


def test_patches_are_squares_of_the_images_at_any_place_and_size() -> None:
    images = public()
    found = patches(images, ROWS, count=300, keypoints=0, stream=SeededStream(1))
    image, top, left, side = found.table.T
    assert len(found) == 300 and {*image.tolist()} == {*range(12)}
    assert int(side.min()) == 36 and int(side.max()) == 48  # from three quarters of the shorter side on
    assert int(top.min()) == 0 and int((top + side).max()) == 64
    assert int(left.min()) == 0 and int((left + side).max()) == 48
    x, y = found.take(torch.arange(300))
    assert x.shape == (300, 1, 8, 8) and float(x.min()) >= 0 and float(x.max()) <= 1 and not bool(y.any())
    row = 7
    _, top, left, side = found.table[row].tolist()
    cut = images.originals(image[row : row + 1])[0][:, top : top + side, left : left + side].mean(0, keepdim=True)
    assert abs(float(x[row].mean()) - float(cut.mean())) < 0.02
    again = patches(images, ROWS, count=300, keypoints=0, stream=SeededStream(1))
    assert torch.equal(again.table, found.table) and torch.equal(again.take(torch.tensor([5])).x[0], x[5])


def test_flat_patches_are_left_out() -> None:
    pytest.importorskip("cv2", reason="keypoints are counted by OpenCV")
    found = patches(public(flat=6), ROWS, count=40, keypoints=10, stream=SeededStream(1))
    assert int(found.table[:, 0].min()) >= 6
    with pytest.raises(ArgumentError, match="0 are different and have more than 10 keypoints"):
        patches(public(flat=12), ROWS, count=5, keypoints=10, stream=SeededStream(1))


def test_no_patch_is_cut_twice() -> None:
    """Copies would make a set look larger than it is, and a right guess wrong."""
    few = from_tensors(STREAM.uniform(3, 1, 4, 4).float(), torch.zeros(3, dtype=torch.int64))
    found = patches(few, ROWS, count=15, keypoints=0, stream=SeededStream(1))  # four squares of three, and the whole
    assert len({tuple(place) for place in found.table.tolist()}) == 15
    with pytest.raises(ArgumentError, match="15 are different"):
        patches(few, ROWS, count=16, keypoints=0, stream=SeededStream(1))


def test_without_opencv_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingDependencyError, match="keypoints = 0"):
        patches(public(), ROWS, count=5, stream=SeededStream(1))
    assert len(patches(public(), ROWS, count=5, keypoints=0, stream=SeededStream(1))) == 5


def test_rows_that_are_no_images_are_refused() -> None:
    flat = from_tensors(torch.rand(4, 16, generator=torch.Generator().manual_seed(0)), torch.arange(4) % 2)
    with pytest.raises(MismatchError, match="mixed with images"):
        patches(public(), flat, count=5, keypoints=0, stream=SeededStream(1))
    for asked in ({"count": 0}, {"keypoints": -1}):
        with pytest.raises(ArgumentError):
            patches(public(), ROWS, stream=SeededStream(1), **asked)  # type: ignore[arg-type]


def test_records_come_first_and_then_patches() -> None:
    found = patches(public(), ROWS, count=20, keypoints=0, stream=SeededStream(1))
    both = Covered(ROWS, found)
    index = torch.tensor([3, 12, 0, 29])
    x, y = both.take(index)
    assert len(both) == 30 and both.shape == (1, 8, 8)
    assert torch.equal(x[[0, 2]], ROWS.take(torch.tensor([3, 0])).x)
    assert torch.equal(x[[1, 3]], found.take(torch.tensor([2, 19])).x)
    assert y.sum(1).tolist() == [1, 0, 1, 0]
    wide = from_tensors(ROWS.take(torch.arange(10)).x, torch.arange(10) % 2, classes=7)  # not the covers' classes
    for index in (torch.tensor([3, 12]), torch.tensor([12, 29])):
        assert Covered(wide, found).take(index).y.shape == (2, 7)
