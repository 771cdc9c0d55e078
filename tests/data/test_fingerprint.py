from __future__ import annotations

import tracemalloc

import torch

from mixveil.core.randomness import SeededStream
from mixveil.data.fingerprint import among, fingerprints
from mixveil.data.images import from_tensors
from mixveil.data.opening import open_data
from tests.made import images


def test_all_that_are_there_are_counted_as_often_as_one_has_them() -> None:
    known, own = images(50, seed=1), images(30, seed=2)
    assert among(fingerprints(known), fingerprints(own)) == 0
    own = from_tensors(torch.cat([own.read(torch.arange(30)), known.read(torch.tensor([3, 7, 7]))]), torch.zeros(33))
    assert among(fingerprints(known), fingerprints(own)) == 3
    assert among(fingerprints(own), fingerprints(known)) == 2
    nothing = torch.empty(0, 8, dtype=torch.uint8)
    assert among(nothing, fingerprints(own)) == among(fingerprints(own), nothing) == 0


def test_grey_in_colour_is_the_same_image_and_one_pixel_makes_another() -> None:
    grey = images(20, (1, 4, 4))
    x = grey.read(torch.arange(20))
    colour = from_tensors(x.repeat(1, 3, 1, 1), grey.labels)
    assert among(fingerprints(grey), fingerprints(colour)) == 20
    x[:5, 0, 0, 0] = (x[:5, 0, 0, 0] + 0.5) % 1
    assert among(fingerprints(grey), fingerprints(from_tensors(x, grey.labels))) == 15


def test_the_same_image_in_another_file_is_the_same() -> None:
    """12 bits in 16 of a PNG or in 12 of DICOM, as floats, darker, with channels last; grey wherever it is colour."""
    stored = (SeededStream(3).uniform(30, 3, 12, 12) * 4096).floor()
    stored[:, 0, 0, 0] = 4095
    labels = torch.zeros(30)
    known = fingerprints(from_tensors((stored / 4095).float(), labels))
    last = stored.permute(0, 2, 3, 1).contiguous()
    flat = stored.flatten(1)
    for other in (stored / 65535, stored / 5000, last / 4095, last / 65535, flat / 4095, 1 - stored / 4095):
        assert among(known, fingerprints(from_tensors(other.float(), labels))) == 30
    grey = stored[:, :1]
    known = fingerprints(from_tensors((grey / 4095).float(), labels))
    for other in (grey.repeat(1, 3, 1, 1), grey.permute(0, 2, 3, 1).repeat(1, 1, 1, 3), grey.permute(0, 2, 3, 1)):
        assert among(known, fingerprints(from_tensors((other / 65535).float(), labels))) == 30


def test_the_range_that_is_declared_changes_nothing() -> None:
    """Values that are no whole numbers of anything."""
    drawn = SeededStream(4).uniform(20, 1, 64, 64)
    known = fingerprints(from_tensors(drawn.float(), torch.zeros(20)))
    for other in (drawn / 2, (drawn + 1) / 2, drawn / 255):
        assert among(known, fingerprints(from_tensors(other.float(), torch.zeros(20)))) == 20


def test_blank_images_of_another_grey_are_others() -> None:
    blank = torch.arange(5)[:, None, None, None].expand(5, 1, 8, 8) / 4
    assert len({bytes(item.tolist()) for item in fingerprints(from_tensors(blank, torch.zeros(5)))}) == 5


def test_other_images_are_others() -> None:
    digits = open_data("digits")
    x = digits.read(torch.arange(len(digits)))
    prints = {bytes(item.tolist()) for item in fingerprints(digits)}
    assert len(prints) == len(torch.unique(x.flatten(1), dim=0)) == 1797
    x = x.flip(3)  # mirrored, no pixel is where it was
    assert not prints & {bytes(item.tolist()) for item in fingerprints(from_tensors(x, digits.labels))}


def test_many_fingerprints_of_a_stranger_take_hardly_more_memory_than_they_are() -> None:
    known = (SeededStream(0).uniform(1_000_000, 8) * 256).to(torch.uint8)
    own = torch.cat([known[::5000], (SeededStream(1).uniform(1000, 8) * 256).to(torch.uint8)])
    tracemalloc.start()
    try:
        assert among(known, own) == 200
        assert tracemalloc.get_traced_memory()[1] < 0.5 * known.numel()  # lists of bytes took 26 times as much
    finally:
        tracemalloc.stop()
