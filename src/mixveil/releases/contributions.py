"""What the units of a party contribute to sums: clipped, in whole numbers, and added up as they are.

What a unit contributes is rounded to whole steps of a grid before it is added, and no longer than its norm in exact
arithmetic (`theory/clipping.py`). It follows from the unit's own rows alone, and sums are integers: what other rows
there are, and their order, changes nothing of it.

Nothing here depends on the records but the sum itself: no record makes it fail, and a row that is not finite counts as
zero. The guarantees: `kinds/sums.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from mixveil.core.errors import ManifestError
from mixveil.core.types import Dataset, Progress
from mixveil.data import privacy_units
from mixveil.features.projection import Projected
from mixveil.theory.clipping import exact_product, factors, gradients, scores, units_total, whole

LARGEST = 1e6
"""Of any value of a head that a server sends."""

_HEADER = 4096
_ROWS = 512  # few enough for the cache
_VALUES = 1 << 23  # of the contributions of all units of a block, and about of their rows
_OF_UNIT = 39  # a row of a unit adds at most 2³⁹ steps: 2²⁴ rows of one unit stay below 2⁶³


@dataclass(frozen=True)
class Head:
    """A linear head on centred records. A head that a server sent is checked without looking at data (`read`), and no
    guarantee depends on what it holds.

    Attributes:
        weight: (k, classes) float64.
        bias: (classes,).
        centre: (k,) what is subtracted from a record, before it is clipped once more.
    """

    weight: Tensor
    bias: Tensor
    centre: Tensor

    def scores(self, z: Tensor) -> Tensor:
        """(m, classes) of centred records; a row's follow from that row alone."""
        return scores(z, self.weight).add_(self.bias)

    def residuals(self, z: Tensor, labels: Tensor) -> Tensor:
        """(m, classes) softmax of the scores, less one at the label."""
        wrong = torch.softmax(self.scores(z), dim=1)
        wrong[torch.arange(len(z)), labels] -= 1
        return wrong

    def tensors(self) -> dict[str, Tensor]:
        return {"weight": self.weight, "bias": self.bias, "centre": self.centre}

    @classmethod
    def read(cls, data: bytes, directions: int, classes: int) -> Head:
        """From the file that a server sent. What is not of these sizes, not finite or too large is refused."""
        if len(data) > 8 * (directions * classes + directions + classes) + _HEADER:
            raise ManifestError(f"the head has {len(data):,} bytes, too many for {directions} × {classes} values")
        try:
            tensors = load(data)
        except (SafetensorError, ValueError) as error:
            raise ManifestError(f"the head cannot be read: {error}") from None
        shapes = {"weight": (directions, classes), "bias": (classes,), "centre": (directions,)}
        kinds = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}
        if kinds != {name: (torch.float64, shape) for name, shape in shapes.items()}:
            raise ManifestError(f"the head must hold weight, bias and centre of {directions} × {classes} values")
        if not all(bool((tensor.abs() <= LARGEST).all()) for tensor in tensors.values()):
            raise ManifestError(f"the head holds a value that is no number, or beyond {LARGEST:g}")
        return cls(**tensors)


def clipped(z: Tensor, clip: float) -> Tensor:
    """(m, k) rows, none longer than `clip`. A row that is not finite counts as 0."""
    factor = factors(torch.linalg.vector_norm(z, dim=1), z.shape[1], clip)
    return z.nan_to_num(0.0, 0.0, 0.0).mul_(factor[:, None])


def class_total(rows: Projected, clip: float, bits: int, progress: Progress = lambda _: None) -> Tensor:
    """(classes, k + 1) int64, in steps of clip·2⁻ᵇⁱᵗˢ: the sum of all units' class sums, each clipped to √2·clip; the
    last value counts rows, `clip` each."""
    one = 1 << bits
    total = torch.zeros(len(rows.classes), rows.projection.dimension + 1, dtype=torch.int64)
    for index, unit in _blocks(rows, total.numel()):
        z = with_constant(whole(rows.take(index).x.double(), one, one / clip), one).long()
        labels = rows.labels[index]
        if unit is None:
            total.index_add_(0, labels, z)
        else:
            joint = torch.zeros(int(unit.max()) + 1, *total.shape, dtype=torch.int64)
            joint.view(-1, z.shape[1]).index_add_(0, unit * len(total) + labels, z)
            total += units_total(joint, math.sqrt(2) * one)
        progress(len(index))
    return total


def residual_total(rows: Projected, head: Head, clip: float, bits: int, progress: Progress = lambda _: None) -> Tensor:
    """(classes, k + 1) int64, in steps of clip·2⁻ᵇⁱᵗˢ: the sum of all units' gradients of the cross-entropy, by weight
    and bias, each clipped to `clip`."""
    total = torch.zeros(len(rows.classes), rows.projection.dimension + 1, dtype=torch.int64)
    for index, unit in _blocks(rows, total.numel()):
        z = clipped(rows.take(index).x.double(), rows.projection.clip) - head.centre
        z = with_constant(clipped(z, rows.projection.clip), 1.0)
        wrong = head.residuals(z[:, :-1], rows.labels[index])
        if unit is None:
            total += exact_product(*gradients(wrong, z, clip, bits), bits)
        else:
            total += units_total(_products(unit, *gradients(wrong, z, clip, bits, _OF_UNIT), _OF_UNIT), 1 << bits)
        progress(len(index))
    return total


def square_total(rows: Projected, k: int, clip: float, bits: int, progress: Progress = lambda _: None) -> Tensor:
    """(k, k) int64, in steps of clip²·2⁻ᵇⁱᵗˢ: the sum of all units' z zᵀ in the first k directions, each clipped to
    Frobenius norm clip². A row is clipped to `clip` first. bits: even."""
    one = 1 << bits // 2
    total = torch.zeros(k, k, dtype=torch.int64)
    for index, unit in _blocks(rows, total.numel()):
        z = whole(rows.take(index).x[:, :k].double(), one, one / clip)
        if unit is None:
            total += exact_product(z, z, bits)
        else:
            total += units_total(_products(unit, z, z, bits), one**2)
        progress(len(index))
    return total


def with_constant(z: Tensor, value: float) -> Tensor:
    """(m, k + 1) rows with the same value after each."""
    return torch.cat([z, torch.full((len(z), 1), value, dtype=z.dtype)], dim=1)


def unit_count(rows: Dataset) -> int:
    """How many units there are; of records without units, how many records."""
    units = privacy_units.numbered(rows)
    return len(rows) if units is None else int(units.max()) + 1


def _products(unit: Tensor, left: Tensor, right: Tensor, bits: int) -> Tensor:
    """(units, p, q) int64: of each unit, the sum of its rows' outer products. unit: (m,) in ascending order."""
    sizes = unit.bincount().tolist()
    parts = zip(torch.split(left, sizes), torch.split(right, sizes), strict=True)
    return torch.stack([exact_product(one, other, bits) for one, other in parts])


def _blocks(rows: Projected, values: int) -> Iterator[tuple[Tensor, Tensor | None]]:
    """The rows in blocks; with units, whole units, and (m,) the number of each row's unit in the block. values: of one
    unit's contribution."""
    units = privacy_units.numbered(rows)
    if units is None:
        for index in torch.split(torch.arange(len(rows)), _ROWS):
            yield index, None
        return
    order = torch.argsort(units, stable=True)
    sizes = units.bincount()
    most, start, first = max(1, _VALUES // values), 0, 0
    while first < len(sizes):
        last, count = first, 0
        while last < len(sizes) and (last == first or (last - first < most and count + int(sizes[last]) <= most)):
            count += int(sizes[last])
            last += 1
        index = order[start : start + count]
        yield index, units[index] - first
        start, first = start + count, last
