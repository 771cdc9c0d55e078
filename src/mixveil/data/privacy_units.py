"""Privacy units: a unit is all rows of one person, where the data owner names them."""

from __future__ import annotations

import unicodedata

import torch
from torch import Tensor

from mixveil.core.types import Dataset


def numbered(data: Dataset) -> Tensor | None:
    """(n,) the number of the unit of each row, from 0; None where every row is a unit of its own.

    >>> from mixveil.data.images import from_tensors
    >>> numbered(from_tensors(torch.zeros(3, 1, 1, 1), torch.zeros(3).long())) is None
    True
    """
    if data.units is None:
        return None
    number: dict[str, int] = {}
    return torch.tensor([number.setdefault(normalised(name), len(number)) for name in data.units])


def normalised(name: str) -> str:
    """A name in one spelling, however its accents are stored."""
    return unicodedata.normalize("NFC", name.strip())


def largest(data: Dataset) -> int:
    """The most rows that one unit has."""
    units = numbered(data)
    return 1 if units is None or not len(units) else int(units.bincount().max())
