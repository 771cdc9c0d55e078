"""A labelled set of images, from any kind of file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from mixveil.core import checks
from mixveil.core.errors import ArgumentError, DataFormatError, LabelError, PixelError
from mixveil.core.types import Batch
from mixveil.core.wording.notes import Note, note

MOST_CLASSES = 100_000


@dataclass(frozen=True)
class Images:
    """Labelled images.

    Attributes:
        read: from (m,) row numbers to (m, *shape) float32 pixels.
        labels: (n,) class numbers.
        low, high: the range of a pixel by the format, not of the pixels present.
        notes: what the reader tells the data owner.
        units: the unit of each row; None where every row is a unit of its own.
        full: the images of some rows at their own size, where `read` resizes them.
        declared: whether the classes were listed without looking at the labels.
        files: the image file of each row, where it has one.
    """

    name: str
    read: Callable[[Tensor], Tensor] = field(repr=False)
    labels: Tensor = field(repr=False)
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    low: float = 0.0
    high: float = 1.0
    notes: tuple[Note, ...] = ()
    units: tuple[str, ...] | None = field(default=None, repr=False)
    full: Callable[[Tensor], Sequence[Tensor]] | None = field(default=None, repr=False)
    declared: bool = False
    files: tuple[Path, ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if 0 in self.shape:
            raise DataFormatError(f"{self.name}: images of shape {self.shape} have no pixels")
        for class_name in self.classes:
            if not class_name.isprintable() or not 0 < len(class_name) <= 1000:
                raise DataFormatError(f"{self.name}: {class_name!r:.60} cannot be the name of a class")
        if len(set(self.classes)) != len(self.classes):
            raise DataFormatError(f"{self.name}: two classes have the same name")
        wrong = (self.labels < 0) | (self.labels >= len(self.classes))
        if bool(wrong.any()):
            row = int(wrong.nonzero()[0])
            raise LabelError(
                f"{self.name}: label {int(self.labels[row])} of row {row} is outside 0…{len(self.classes) - 1}"
            )
        if self.units is not None and len(self.units) != len(self.labels):
            raise DataFormatError(f"{self.name}: {len(self.units)} units for {len(self.labels)} rows")

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: Tensor) -> Batch:
        """The rows of `index`: pixels checked against the range, labels one-hot."""
        x = self.read(checks.rows_within(index, len(self)))
        if len(index):
            low, high = torch.aminmax(x)  # both are NaN where one pixel is
            if not (self.low <= float(low) and float(high) <= self.high):
                raise self._pixel_error(index, x)
        return Batch(x, torch.nn.functional.one_hot(self.labels[index], len(self.classes)).float())

    def originals(self, index: Tensor) -> Sequence[Tensor]:
        """The images of some rows as their files hold them, (channels, height, width) float32, scaled to [0, 1]."""
        if self.full is not None:
            return self.full(checks.rows_within(index, len(self)))
        x = self.take(index).x
        return list(x if (self.low, self.high) == (0, 1) else x.sub(self.low).div_(self.high - self.low))

    def part(self, index: Tensor) -> Images:
        """The rows of `index`."""
        read, full, units, files = self.read, self.full, self.units, self.files
        return replace(
            self,
            read=lambda rows: read(index[rows]),
            labels=self.labels[index],
            units=None if units is None else tuple(units[row] for row in index.tolist()),
            full=None if full is None else lambda rows: full(index[rows]),
            files=None if files is None else tuple(files[row] for row in index.tolist()),
        )

    def listed(self, classes: tuple[str, ...]) -> Images:
        """The same images with a fixed list of classes, which must hold every class that has rows."""
        if not classes or len(set(classes)) != len(classes):
            raise ArgumentError(f"classes must be different names, got {', '.join(classes) or 'none'}")
        number = {name: label for label, name in enumerate(classes)}
        present = self.labels.bincount().nonzero()[:, 0].tolist()
        if missing := sorted(self.classes[label] for label in present if self.classes[label] not in number):
            raise LabelError(f"{self.name}: the class {missing[0]!r} of some rows is not among {', '.join(classes)}")
        labels = torch.tensor([number.get(name, 0) for name in self.classes])[self.labels]
        return replace(self, labels=labels, classes=classes, declared=True)

    def _pixel_error(self, index: Tensor, x: Tensor) -> PixelError:
        row, *place = ((x >= self.low) & (x <= self.high)).logical_not().nonzero()[0].tolist()
        value = float(x[(row, *place)])
        bounds = f"[{self.low:g}, {self.high:g}]"
        return PixelError(f"{self.name}: row {int(index[row])} has the pixel {value:g}, outside the range {bounds}")

    def warnings(self) -> list[Note]:
        """What the data owner should know before encoding the data."""
        said = list(self.notes)
        met = int(self.labels.bincount().count_nonzero())
        if met == 1:
            said.append(note("one-class-only", rows=len(self), name=self.classes[int(self.labels[0])]))
        elif met < len(self.classes):
            said.append(note("classes-without-rows", empty=len(self.classes) - met, classes=len(self.classes)))
        return said


def from_tensors(
    x: ArrayLike,
    labels: ArrayLike,
    *,
    classes: int | Sequence[str] | None = None,
    units: Sequence[str] | None = None,
    name: str = "tensors",
) -> Images:
    """Images from memory: x (n, …) in [0, 1], labels (n,) of whole numbers, as tensors, arrays or lists. classes: how
    many there can be, or their names; units: (n,) whose each row is, where rows belong together.

    >>> import torch
    >>> len(from_tensors(torch.zeros(3, 1, 2, 2), torch.tensor([0, 1, 0])))
    3
    """
    x, labels = _tensor("x", x), _tensor("labels", labels)
    if x.ndim < 2 or labels.ndim != 1:
        shapes = f"{tuple(x.shape)} and {tuple(labels.shape)}"
        raise ArgumentError(f"{name}: x must have the shape (n, …) and labels (n,), got {shapes}")
    if labels.is_floating_point() and not bool((labels == labels.round()).all()):
        raise LabelError(f"{name}: labels must be whole numbers")
    if len(x) != len(labels):
        raise LabelError(f"{name}: {len(labels)} labels for {len(x)} images")
    declared = classes is not None
    if classes is None:
        classes = inferred_classes(name, labels)
    return Images(
        name,
        lambda index: x[index].float(),
        labels.long(),
        numbered(classes) if isinstance(classes, int) else tuple(classes),
        tuple(x.shape[1:]),
        units=None if units is None else tuple(map(str, units)),
        declared=declared,
    )


def _tensor(argument: str, value: ArrayLike) -> Tensor:
    try:
        made = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        raise ArgumentError(f"{argument} must be a tensor, an array or lists of numbers, got {type(value)}") from None
    if made.is_complex():
        raise ArgumentError(f"{argument} must hold real numbers, got {made.dtype}")
    return made


def inferred_classes(name: str, labels: Tensor) -> int:
    """The number of classes that whole-number labels imply: one more than the largest label."""
    count = int(labels.max()) + 1 if len(labels) else 1
    if count > MOST_CLASSES:
        raise LabelError(
            f"{name}: label {count - 1} would make {count} classes: number the classes from 0, without gaps"
        )
    return max(count, 1)


def numbered(count: int) -> tuple[str, ...]:
    """Names for classes without names: their numbers."""
    return tuple(str(i) for i in range(count))
