"""A check of data before they are encoded: what they hold, which images are copies, what the labels will show."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from mixveil.core.errors import DataFormatError
from mixveil.core.wording.notes import Note, note
from mixveil.data import alike
from mixveil.data.fingerprint import fingerprint
from mixveil.data.header import every
from mixveil.data.images import Images

_BLOCK = 16
_SHOWN = 10
_FEW = 10
_ROOM, _DEEP = 16, " 16-bit"  # in the kind of a file


@dataclass(frozen=True)
class Count:
    """How many rows have a property: a size, a kind of file, a class."""

    name: str
    rows: int


@dataclass(frozen=True)
class Units:
    """How many units there are, how many rows they have, and the largest of them."""

    count: int
    least: int
    median: float
    most: int
    largest: str
    more_than_half: bool


@dataclass(frozen=True)
class Group:
    """Rows with the same image: how many, and the numbers and the files of the first of them."""

    size: int
    rows: tuple[int, ...]
    files: tuple[str, ...]
    labels_differ: bool
    units_differ: bool


@dataclass(frozen=True)
class Copies:
    """How many groups of rows have the same image, and how many copies they hold beyond the first of each group.

    Attributes:
        labels_differ, units_differ: how many groups have rows with different labels or units.
        examples: some groups; those whose labels or units differ come first.
    """

    groups: int
    copies: int
    labels_differ: int
    units_differ: int
    examples: tuple[Group, ...]


@dataclass(frozen=True)
class Check:
    """The result of a check.

    Attributes:
        range: of a pixel by the format; met: of the pixels present.
        sizes, kinds: of the image files.
        few: classes with few rows.
        units: None where every row is a unit of its own.
        exact: rows with the same image.
        near: rows with images that look alike; None where rows are not images.
        faults: what keeps other rows from being used; everything else is of the rows that can be.
    """

    name: str
    rows: int
    shape: tuple[int, ...]
    range: tuple[float, float]
    met: tuple[float, float]
    sizes: tuple[Count, ...]
    kinds: tuple[Count, ...]
    classes: tuple[Count, ...]
    few: tuple[Count, ...]
    units: Units | None
    exact: Copies
    near: Copies | None
    warnings: tuple[Note, ...]
    faults: tuple[Note, ...] = ()


@dataclass
class _Seen:
    """The result of one pass over the pixels: rows by the fingerprint of their image, and the looks of each image."""

    low: float = float("inf")
    high: float = float("-inf")
    rows: dict[bytes, list[int]] = field(default_factory=dict)
    hashes: list[int] = field(default_factory=list)
    thumbs: list[alike.Thumbs] = field(default_factory=list)
    blank: list[int] = field(default_factory=list)
    textured: list[int] = field(default_factory=list)

    def add(self, row: int, image: Tensor) -> None:
        darkest, brightest = (float(value) for value in torch.aminmax(image))
        self.low, self.high = min(self.low, darkest), max(self.high, brightest)
        rows = self.rows.setdefault(fingerprint(image), [])
        rows.append(row)
        if len(rows) > 1 or image.ndim != 3:
            return
        if darkest == brightest:
            self.blank.append(row)
            return
        number, thumb = alike.look(image)
        self.textured.append(row)
        self.hashes.append(number)
        self.thumbs.append(thumb)


def check(images: Images, step: Callable[[int], None] = lambda _: None, depth: int | None = None) -> Check:
    """Check all rows, each read once at its own size. One error names all rows that cannot be read. depth: how many
    bits a pixel was said to have."""
    if not len(images):
        raise DataFormatError(f"{images.name}: there are no rows")
    seen = _pass(images, step)
    counts = torch.bincount(images.labels, minlength=len(images.classes)).tolist()
    classes = tuple(Count(name, rows) for name, rows in zip(images.classes, counts, strict=True))
    few = tuple(item for item in classes if 0 < item.rows < _FEW)
    sizes, kinds = _files(images)
    units = None if images.units is None else _units(images.units)
    exact = _copies(images, [[[row] for row in rows] for rows in seen.rows.values() if len(rows) > 1])
    near = _near(images, seen) if len(images.shape) == 3 else None
    return Check(
        images.name,
        len(images),
        images.shape,
        (images.low, images.high),
        tuple(images.low + value * (images.high - images.low) for value in (seen.low, seen.high)),  # type: ignore[arg-type]
        sizes,
        kinds,
        classes,
        few,
        units,
        exact,
        near,
        (*images.warnings(), *_dark(kinds, seen.high, depth), *_warnings(len(images), few, units, exact, near)),
    )


def _pass(images: Images, step: Callable[[int], None]) -> _Seen:
    seen = _Seen()

    def add(start: int) -> None:
        index = torch.arange(start, min(start + _BLOCK, len(images)))
        try:
            for row, image in zip(index.tolist(), images.originals(index), strict=True):
                seen.add(row, image)
        finally:
            step(len(index))

    every(range(0, len(images), _BLOCK), add)
    return seen


def _files(images: Images) -> tuple[tuple[Count, ...], tuple[Count, ...]]:
    """The sizes and the kinds of the files, the most common first."""
    if images.files is None:
        return (), ()
    from mixveil.data.folder import read_headers

    headers = read_headers(images.files)
    return _counted("{}×{}".format(*header.size) for header in headers), _counted(header.kind for header in headers)


def _dark(kinds: Sequence[Count], brightest: float, depth: int | None) -> list[Note]:
    """Files with room for 16 bits that use fewer: cameras of 10 or 12 bits write such."""
    if depth is not None or not kinds or not all(_DEEP in item.name for item in kinds):
        return []
    bits = max(1, math.ceil(math.log2(round(brightest * (2**_ROOM - 1)) + 1)))
    return [note("fewer-bits", bits=bits, room=_ROOM)] if bits < _ROOM else []


def _counted(names: Iterable[str]) -> tuple[Count, ...]:
    return tuple(Count(name, rows) for name, rows in Counter(names).most_common())


def _units(units: Sequence[str]) -> Units:
    counted = Counter(units)
    largest, most = counted.most_common(1)[0]
    rows = counted.values()
    return Units(len(counted), min(rows), statistics.median(rows), most, largest, 2 * most > len(units))


def _near(images: Images, seen: _Seen) -> Copies:
    """Groups of different images that look alike. All blank images are one group."""
    same = {rows[0]: rows for rows in seen.rows.values()}
    groups = alike.groups(np.array(seen.hashes, np.uint64), np.stack(seen.thumbs)) if seen.hashes else []
    found = [[seen.textured[place] for place in group] for group in groups]
    if len(seen.blank) > 1:
        found.append(seen.blank)
    return _copies(images, [[same[row] for row in group] for group in found])


def _copies(images: Images, groups: Sequence[Sequence[Sequence[int]]]) -> Copies:
    """groups: of images, each with the rows that have it."""
    labels, units = images.labels.tolist(), images.units
    found = []
    for group in groups:
        rows = sorted(row for image in group for row in image)
        first = tuple(rows[:_SHOWN])
        files = () if images.files is None else tuple(str(images.files[row]) for row in first)
        whose = len({units[row] for row in rows}) if units is not None else 1
        found.append(Group(len(rows), first, files, len({labels[row] for row in rows}) > 1, whose > 1))
    found.sort(key=lambda item: (not (item.labels_differ or item.units_differ), item.rows))
    return Copies(
        len(found),
        sum(len(group) - 1 for group in groups),
        sum(item.labels_differ for item in found),
        sum(item.units_differ for item in found),
        tuple(found[:_SHOWN]),
    )


def _warnings(rows: int, few: Sequence[Count], units: Units | None, exact: Copies, near: Copies | None) -> list[Note]:
    told = []
    if units is not None and units.more_than_half:
        told.append(note("unit-with-most-rows", unit=units.largest, most=units.most, rows=rows))
    for which, copies in (("same", exact), ("alike", near)):
        if copies is not None and copies.labels_differ:
            told.append(note(f"{which}-with-different-labels", groups=copies.labels_differ))
        if copies is not None and copies.units_differ:
            told.append(note(f"{which}-in-different-units", groups=copies.units_differ))
    if few:
        names = ", ".join(f"{item.name} ({item.rows})" for item in few)
        told.append(note("classes-of-few-rows", least=_FEW, names=names))
    return told
