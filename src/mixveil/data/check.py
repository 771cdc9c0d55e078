"""A look at data before anything is made of them: what there is, what is there twice, what labels will show."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from mixveil.core.errors import DataFormatError, PixelError, UnreadableImageError
from mixveil.core.wording.notes import Note, note
from mixveil.data import alike
from mixveil.data.fingerprint import fingerprint
from mixveil.data.images import Images

_BLOCK = 16
_SHOWN = 10
_FEW = 10


@dataclass(frozen=True)
class Count:
    """How many rows have something."""

    name: str
    rows: int


@dataclass(frozen=True)
class Units:
    """Whose the rows are: how many units, and how many rows a unit has; largest: the unit that has most."""

    count: int
    least: int
    median: float
    most: int
    largest: str
    more_than_half: bool


@dataclass(frozen=True)
class Group:
    """Rows with the same image: how many, the first of them, and their files where they have any."""

    size: int
    rows: tuple[int, ...]
    files: tuple[str, ...]
    labels_differ: bool
    units_differ: bool


@dataclass(frozen=True)
class Copies:
    """Groups of rows with the same image; copies: images beyond the first of each group. The examples are first those
    whose labels or units differ."""

    groups: int
    copies: int
    labels_differ: int
    units_differ: int
    examples: tuple[Group, ...]


@dataclass(frozen=True)
class Check:
    """What was found. range: that a pixel can have; met: that they have; near: None where rows are not pictures."""

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


@dataclass
class _Seen:
    """What one pass over the pixels leaves: rows by the hash of their image, and the looks of each different image."""

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


def check(images: Images, step: Callable[[int], None] = lambda _: None) -> Check:
    """Read every row once, at its own size. All rows that cannot be read are named in one error."""
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
        (*images.warnings(), *_warnings(len(images), few, units, exact, near)),
    )


def _pass(images: Images, step: Callable[[int], None]) -> _Seen:
    seen = _Seen()
    unreadable: list[str] = []
    beyond: PixelError | None = None
    for start in range(0, len(images), _BLOCK):
        index = torch.arange(start, min(start + _BLOCK, len(images)))
        try:
            for row, image in zip(index.tolist(), images.originals(index), strict=True):
                seen.add(row, image)
        except UnreadableImageError as error:
            unreadable += error.files
        except PixelError as error:
            beyond = beyond or error
        step(len(index))
    if unreadable:
        raise UnreadableImageError(*dict.fromkeys(unreadable))
    if beyond:
        raise beyond
    return seen


def _files(images: Images) -> tuple[tuple[Count, ...], tuple[Count, ...]]:
    """The sizes and the kinds of the files, the most common first."""
    if images.files is None:
        return (), ()
    from mixveil.data.folder import survey

    headers = survey(images.files)
    return _counted("{}×{}".format(*found.size) for found in headers), _counted(found.kind for found in headers)


def _counted(names: Iterable[str]) -> tuple[Count, ...]:
    return tuple(Count(name, rows) for name, rows in Counter(names).most_common())


def _units(units: Sequence[str]) -> Units:
    counted = Counter(units)
    largest, most = counted.most_common(1)[0]
    rows = counted.values()
    return Units(len(counted), min(rows), statistics.median(rows), most, largest, 2 * most > len(units))


def _near(images: Images, seen: _Seen) -> Copies:
    """Groups of different images that look alike; all that are of one value throughout are one group."""
    same = {rows[0]: rows for rows in seen.rows.values()}
    found = [[seen.textured[place] for place in group] for group in _alike(seen)]
    if len(seen.blank) > 1:
        found.append(seen.blank)
    return _copies(images, [[same[row] for row in group] for group in found])


def _alike(seen: _Seen) -> list[list[int]]:
    return alike.groups(np.array(seen.hashes, np.uint64), np.stack(seen.thumbs)) if seen.hashes else []


def _copies(images: Images, groups: Sequence[Sequence[Sequence[int]]]) -> Copies:
    """groups: of different images, each with the rows that have it."""
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
