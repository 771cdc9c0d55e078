from __future__ import annotations

import torch

from mixveil.data.row_views import OnDevice
from tests.made import images


def test_rows_are_brought_to_a_device_and_labels_stay() -> None:
    data = images(6)
    view = OnDevice(data, torch.device("meta"))
    index = torch.tensor([4, 1])
    x, y = view.take(index)
    assert x.device.type == "meta" and x.shape == (2, 1, 4, 4)
    assert torch.equal(y, data.take(index).y)
    assert (len(view), view.shape, view.classes, view.units) == (6, data.shape, data.classes, None)


def test_rows_that_are_there_are_as_they_were() -> None:
    data, index = images(6), torch.tensor([0, 5])
    for found, want in zip(OnDevice(data, torch.device("cpu")).take(index), data.take(index), strict=True):
        assert torch.equal(found, want)
