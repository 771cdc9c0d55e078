"""How data are read: what all jobs that open data share. Nothing slow is imported before data are opened."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from mixveil.core import checks, files
from mixveil.core.errors import ArgumentError, DataFormatError
from mixveil.core.strict_json import MANIFEST_LIMIT

if TYPE_CHECKING:
    from mixveil.data.images import Images

DataSpec: TypeAlias = "str | Path | Images"
"""Data as users name them: the text or path that `open_data` takes, or a data set that is open already."""


@dataclass(frozen=True)
class DataOptions:
    """How data are read: what all jobs that open data share.

    Attributes:
        size: Image files are resized to this square.
        grey: Image files are read as greyscale, not as colour.
        depth: How many bits a pixel really has, in image files with room for 16.
        unit: The column of a table, or the array of an .npz file, that says whose each row is.
        classes: All classes there can be, in their order, where labels alone must not say it: names, or a text as
            `class_names` takes it.
        data_dir: Where named sets and weights lie; else the folder that MIXVEIL_DATA names.
    """

    size: int | None = None
    grey: bool = False
    depth: int | None = None
    unit: str | None = None
    classes: Sequence[str] | str | None = None
    data_dir: Path | str | None = None

    def __post_init__(self) -> None:
        if self.size is not None:
            checks.at_least("size", self.size, 1)
        if self.depth is not None and not 1 <= self.depth <= 16:
            raise ArgumentError(f"depth must be in 1…16, got {self.depth}")

    @property
    def folder(self) -> Path | None:
        """Where named sets and weights are looked for."""
        return data_folder(None if self.data_dir is None else Path(self.data_dir))

    @property
    def for_others(self) -> DataOptions:
        """The same for data of others, public or to test on: units and the list of classes are the owner's."""
        return replace(self, unit=None, classes=None)

    def open(self, data: DataSpec) -> Images:
        """Open `NAME`, `NAME:SPLIT`, an `.npz` file, a table of image files, or a folder with one subfolder a class.
        A data set that is open already is only given its list of classes."""
        from mixveil.data.images import Images
        from mixveil.data.opening import opened

        if isinstance(data, Images):
            given = {"size": self.size, "grey": self.grey or None, "depth": self.depth, "unit": self.unit}
            if named := [name for name, value in given.items() if value is not None]:
                raise ArgumentError(f"{named[0]} = {given[named[0]]!r}: {data.name} is open already")
            images = data
        else:
            images = opened(str(data), self)
        classes = class_names(self.classes) if isinstance(self.classes, str) else self.classes
        return images if classes is None else images.listed(tuple(classes))


def class_names(text: str) -> tuple[str, ...]:
    """The list of classes, from names with commas between or from a file with one name a line."""
    path = Path(text)
    if not path.is_file():
        return tuple(name.strip() for name in text.split(",") if name.strip())
    try:
        lines = files.read_small(path.resolve(), MANIFEST_LIMIT).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DataFormatError(f"{path}: not UTF-8: {error}") from None
    return tuple(line.strip() for line in lines if line.strip())


def data_folder(data_dir: Path | None) -> Path | None:
    """Where named sets are looked for."""
    if data_dir is not None:
        return data_dir
    named = os.environ.get("MIXVEIL_DATA")
    return Path(named) if named else None
