"""From a name or a path to `Images`. Nothing slow is imported before data are opened."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from mixveil.core import checks, files
from mixveil.core.errors import ArgumentError, DataFormatError, DataNotFoundError
from mixveil.core.strict_json import MANIFEST_LIMIT

if TYPE_CHECKING:
    from mixveil.core.wording.notes import Note
    from mixveil.data.images import Images

DataSpec: TypeAlias = "str | Path | Images"
"""Data as users name them: the text or path that `open_data` takes, or a data set that is open already."""


class NamedSet(NamedTuple):
    """A data set known by name.

    Attributes:
        title: What its files are.
        folder: Where they lie under the data folder; None where a package brings them.
        splits: The first is the default.
        reader: The module of this room whose `named_images(folder, split)` opens it.
    """

    title: str
    folder: str | None
    splits: tuple[str, ...]
    reader: str


NAMED: dict[str, NamedSet] = {
    "digits": NamedSet("scikit-learn's 8×8 digits", None, ("all", "train", "test"), "digits"),
    "mnist": NamedSet("MNIST's four IDX files", "mnist", ("train", "test"), "binary"),
    "fashion-mnist": NamedSet("FashionMNIST's four IDX files", "fashion-mnist", ("train", "test"), "binary"),
    "cifar10": NamedSet("CIFAR-10's binary files", "cifar10", ("train", "test"), "binary"),
    "cifar5m": NamedSet("CIFAR-5M's six NumPy archives", "cifar5m", ("train", "test"), "cifar5m"),
    "cifar100": NamedSet("CIFAR-100's binary files", "cifar100", ("train", "test"), "binary"),
    "tiny-imagenet": NamedSet("Tiny-ImageNet's folders", "tiny-imagenet-200", ("train", "val"), "tiny_imagenet"),
}


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

    def open(self, data: DataSpec, faults: list[Note] | None = None) -> Images:
        """Open `NAME`, `NAME:SPLIT`, an `.npz` file, a table of image files, or a folder with one subfolder a class.
        A data set that is open already is only given its list of classes. faults: where it is given, image files that
        cannot be used are left out, and what is wrong with them is added to it: for a check of the data."""
        from mixveil.data.images import Images

        if isinstance(data, Images):
            given = {"size": self.size, "grey": self.grey or None, "depth": self.depth, "unit": self.unit}
            if named := [name for name, value in given.items() if value is not None]:
                instead = "pass units to `from_tensors`" if named[0] == "unit" else "they are used as they are"
                raise ArgumentError(f"{named[0]} cannot be given with open data: {instead}")
            images = data
        elif isinstance(data, str | Path):
            images = self._read(str(data), faults)
        else:
            raise ArgumentError(f"data must be a name, a path or images (`from_tensors`), got {type(data)}")
        classes = class_names(self.classes) if isinstance(self.classes, str) else self.classes
        return images if classes is None else images.listed(tuple(classes))

    def _read(self, data: str, faults: list[Note] | None) -> Images:
        name, _, split = data.partition(":")
        path = Path(data)
        kind = "" if name in NAMED or not path.is_file() else path.suffix.lower()
        folder = name not in NAMED and path.is_dir()
        if self.unit is not None and (folder or name in NAMED):
            what = "a folder" if folder else "a named set"
            raise ArgumentError(f"{data}: {what} has no columns: unit {self.unit!r} goes with a table or an .npz file")
        if folder:
            from mixveil.data.folder import folder_images

            return folder_images(path, size=self.size, grey=self.grey, depth=self.depth, faults=faults)
        if kind in (".csv", ".parquet"):
            from mixveil.data.table import table_images

            how: dict[str, Any] = {"size": self.size, "grey": self.grey, "depth": self.depth, "faults": faults}
            return table_images(path, unit=self.unit, **how)
        if (self.size is not None or self.grey or self.depth is not None) and (name in NAMED or kind == ".npz"):
            raise ArgumentError(f"{data}: size, grey and depth are for folders and tables of image files only")
        if name in NAMED:
            return self._read_named(name, split)
        if kind == ".npz":
            from mixveil.data.npz import npz_images

            return npz_images(path, unit=self.unit)
        what = "is a file of no known kind" if path.exists() else "does not exist"
        raise DataNotFoundError(
            f"{data}: no data set of this name ({', '.join(NAMED)}), and as a path it {what}: give an .npz file with x "
            f"and y, a .csv or .parquet table with the columns path and label, or a folder with one subfolder a class"
        )

    def _read_named(self, name: str, split: str) -> Images:
        known = NAMED[name]
        split = split or known.splits[0]
        if split not in known.splits:
            raise ArgumentError(f"{name} has the splits {', '.join(known.splits)}, got {split!r}")
        root = Path(name)
        if known.folder is not None:
            if self.folder is None:
                raise DataNotFoundError(
                    f"{name}: nowhere to look for it; put {known.title} into a folder DIR/{known.folder} "
                    f"and give --data-dir DIR, or set MIXVEIL_DATA=DIR"
                )
            root = self.folder / known.folder
            if not root.is_dir():
                raise DataNotFoundError(
                    f"{name}: looked for {known.title} in {root}, which does not exist; put it there, "
                    f"or point --data-dir or MIXVEIL_DATA at the folder that holds {known.folder}/"
                )
        images: Images = import_module(f"mixveil.data.{known.reader}").named_images(root, split)
        return replace(images, declared=True)


def open_data(
    data: DataSpec,
    *,
    size: int | None = None,
    grey: bool = False,
    depth: int | None = None,
    unit: str | None = None,
    classes: Sequence[str] | str | None = None,
    data_dir: Path | str | None = None,
) -> Images:
    """Open data as `DataOptions` with these fields opens them."""
    return DataOptions(size, grey, depth, unit, classes, data_dir).open(data)


def open_both(data: DataSpec, public: DataSpec | None, options: DataOptions) -> tuple[Images, Images | None]:
    """The private data and the public data, which must not be the same."""
    images = options.open(data)
    if public is None:
        return images, None
    if public is data or (isinstance(public, str | Path) and isinstance(data, str | Path) and _same(data, public)):
        shown = public if isinstance(public, str | Path) else public.name
        raise ArgumentError(f"public = {shown}: these are the private data; facts from them would not be public")
    return images, options.for_others.open(public)


def _same(one: str | Path, other: str | Path) -> bool:
    there = Path(one).exists() and Path(other).exists()
    return str(one) == str(other) or (there and Path(one).samefile(other))


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
    """Where named sets are looked for: the given folder, else the one that MIXVEIL_DATA names."""
    named = os.environ.get("MIXVEIL_DATA")
    return data_dir or (Path(named) if named else None)
