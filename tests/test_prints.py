from __future__ import annotations

import tracemalloc

import torch

from mixveil.data import from_tensors
from mixveil.keys import SeededStream
from mixveil.prints import among, fingerprints
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


def test_many_fingerprints_of_a_stranger_take_hardly_more_memory_than_they_are() -> None:
    known = (SeededStream(0).uniform(1_000_000, 8) * 256).to(torch.uint8)
    own = torch.cat([known[::5000], (SeededStream(1).uniform(1000, 8) * 256).to(torch.uint8)])
    tracemalloc.start()
    try:
        assert among(known, own) == 200
        assert tracemalloc.get_traced_memory()[1] < 0.5 * known.numel()  # lists of bytes took 26 times as much
    finally:
        tracemalloc.stop()
