"""Readers: from a name or a path to `Images`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mixveil.core.errors import ArgumentError, DataNotFoundError
from mixveil.data.images import Images, from_tensors, numbered
from mixveil.data.options import DataOptions, DataSpec, class_names, data_folder

__all__ = [
    "NAMED",
    "DataOptions",
    "DataSpec",
    "Images",
    "NamedSet",
    "class_names",
    "data_folder",
    "from_tensors",
    "numbered",
    "open_data",
]


@dataclass(frozen=True)
class NamedSet:
    """A data set known by name: where it lies under the data folder (None: nowhere, a package brings it)."""

    title: str
    folder: str | None
    splits: tuple[str, ...]
    open: Callable[[Path, str], Images]


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
    same = public is data or (not isinstance(public, Images) and not isinstance(data, Images) and _same(data, public))
    if same:
        shown = public.name if isinstance(public, Images) else public
        raise ArgumentError(f"public = {shown}: these are the private data; facts from them would not be public")
    return images, options.for_others.open(public)


def _same(one: str | Path, other: str | Path) -> bool:
    there = Path(one).exists() and Path(other).exists()
    return str(one) == str(other) or (there and Path(one).samefile(other))


def opened(data: str, options: DataOptions) -> Images:
    """Open data by their name or path; see `DataOptions.open`."""
    size, grey, depth, unit = options.size, options.grey, options.depth, options.unit
    name, _, split = data.partition(":")
    path = Path(data)
    kind = "" if name in NAMED or not path.is_file() else path.suffix.lower()
    folder = name not in NAMED and path.is_dir()
    if unit is not None and (folder or name in NAMED):
        what = "a folder" if folder else "a named set"
        raise ArgumentError(f"{data}: {what} has no columns: unit {unit!r} goes with a table or an .npz file")
    if folder:
        from mixveil.data.folder import folder_images

        return folder_images(path, size=size, grey=grey, depth=depth)
    if kind in (".csv", ".parquet"):
        from mixveil.data.table import table_images

        return table_images(path, unit=unit, size=size, grey=grey, depth=depth)
    if (size is not None or grey or depth is not None) and (name in NAMED or kind == ".npz"):
        raise ArgumentError(f"{data}: size, grey and depth are for folders and tables of image files only")
    if name in NAMED:
        return _named(name, split, options)
    if kind == ".npz":
        from mixveil.data.npz import npz_images

        return npz_images(path, unit=unit)
    what = "is a file of no known kind" if path.exists() else "does not exist"
    raise DataNotFoundError(
        f"{data}: no data set of this name ({', '.join(NAMED)}), and as a path it {what}: give an .npz file with x "
        f"and y, a .csv or .parquet table with the columns path and label, or a folder with one subfolder a class"
    )


def _named(name: str, split: str, options: DataOptions) -> Images:
    known = NAMED[name]
    split = split or known.splits[0]
    if split not in known.splits:
        raise ArgumentError(f"{name} has the splits {', '.join(known.splits)}, got {split!r}")
    if known.folder is None:
        return replace(known.open(Path(), split), declared=True)
    base = options.folder
    if base is None:
        raise DataNotFoundError(
            f"{name}: nowhere to look for it; put {known.title} into a folder DIR/{known.folder} "
            f"and give --data-dir DIR, or set MIXVEIL_DATA=DIR"
        )
    root = base / known.folder
    if not root.is_dir():
        raise DataNotFoundError(
            f"{name}: looked for {known.title} in {root}, which does not exist; put it there, "
            f"or point --data-dir or MIXVEIL_DATA at the folder that holds {known.folder}/"
        )
    return replace(known.open(root, split), declared=True)


def _digits(_: Path, split: str) -> Images:
    from mixveil.data.digits import digits_images

    return digits_images(split)


def _mnist(root: Path, split: str) -> Images:
    from mixveil.data.binary import idx_images

    prefix = {"train": "train", "test": "t10k"}[split]
    return idx_images(root.name, root / f"{prefix}-images-idx3-ubyte", root / f"{prefix}-labels-idx1-ubyte")


def _cifar10(root: Path, split: str) -> Images:
    from mixveil.data.binary import cifar_images

    names = [f"data_batch_{i}.bin" for i in range(1, 6)] if split == "train" else ["test_batch.bin"]
    return cifar_images("cifar10", [root / name for name in names], label_bytes=1, classes=10)


def _cifar100(root: Path, split: str) -> Images:
    from mixveil.data.binary import cifar_images

    return cifar_images("cifar100", [root / f"{split}.bin"], label_bytes=2, classes=100)


def _tiny_imagenet(root: Path, split: str) -> Images:
    from mixveil.data.tiny_imagenet import tiny_imagenet_images

    return tiny_imagenet_images(root, split)


NAMED: dict[str, NamedSet] = {
    "digits": NamedSet("scikit-learn's 8×8 digits", None, ("all", "train", "test"), _digits),
    "mnist": NamedSet("MNIST's four IDX files", "mnist", ("train", "test"), _mnist),
    "fashion-mnist": NamedSet("FashionMNIST's four IDX files", "fashion-mnist", ("train", "test"), _mnist),
    "cifar10": NamedSet("CIFAR-10's binary files", "cifar10", ("train", "test"), _cifar10),
    "cifar100": NamedSet("CIFAR-100's binary files", "cifar100", ("train", "test"), _cifar100),
    "tiny-imagenet": NamedSet("Tiny-ImageNet's folders", "tiny-imagenet-200", ("train", "val"), _tiny_imagenet),
}
