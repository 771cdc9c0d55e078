"""Reading and verifying a release: everything is checked before anything is used. Never a pickle."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from mixveil.core import files, strict_json, tensor_files
from mixveil.core.errors import (
    HashError,
    ManifestError,
    MismatchError,
    MissingShardError,
    ShapeError,
    ShardFormatError,
    ShardSizeError,
    UnreadableFileError,
    UnreadableReleaseError,
)
from mixveil.core.types import Release
from mixveil.core.wording.notes import Note
from mixveil.encoders.calibration import meaningless
from mixveil.releases.envelope import MANIFEST, Envelope, File, parse


def read_release(folder: Path | str, kind: str | None = None) -> Release:
    """Open a release. Sizes, hashes, dtypes, shapes, finiteness, ranges, labels and claims are all checked.

    Values stay in the files and are mapped: keep the folder unchanged while the release is in use. kind: the kind of
    payload that is needed; another is refused."""
    folder = Path(folder)
    with _readable(folder):
        envelope = read_envelope(folder)
        if kind is not None and envelope.kind != kind:
            raise MismatchError(f"{folder} holds {envelope.kind}, and {kind} are needed here")
        parts = [read_file(folder, envelope, file) for file in envelope.files]
    return Release(envelope, envelope.settings.content(parts))


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnreadableReleaseError(f"{folder} cannot be read: {error}") from None


@dataclass(frozen=True)
class Verified:
    """A release that was checked: every byte is as its manifest says, and its certificate follows from its settings.
    others: files in the folder that the manifest does not name, and that were not checked."""

    folder: Path
    stated: Envelope
    others: tuple[str, ...]

    @property
    def warnings(self) -> list[Note]:
        """Of what is certified and means nothing."""
        mus = [of.claim for of in self.stated.guarantees if of.name == "gdp"] if self.stated.certified else []
        return [told for mu in mus for told in meaningless(mu)]


def verify(folder: Path | str) -> Verified:
    """Check a release of any kind: all that `read_release` checks. Only its owner can tell whether the noise was drawn
    as stated."""
    folder = Path(folder)
    stated = verify_release(folder)
    return Verified(folder, stated, tuple(files.others(folder, {MANIFEST, *(file.name for file in stated.files)})))


def verify_release(folder: Path) -> Envelope:
    """Check all that `read_release` checks, and return what the release says of itself. Files are mapped one
    at a time."""
    with _readable(folder):
        envelope = read_envelope(folder)
        for file in envelope.files:
            read_file(folder, envelope, file)
    return envelope


def read_envelope(folder: Path) -> Envelope:
    """What a release says of itself; its files are not looked at."""
    if os.path.realpath(folder).endswith(files.PARTIAL):
        raise ManifestError(f"{folder} is what an interrupted encoding left behind: it is not a release; remove it")
    files.check_there(folder, "the folder of a release")
    try:
        data = files.read_small(folder / MANIFEST, strict_json.MANIFEST_LIMIT)
    except UnreadableFileError as error:
        raise ManifestError(f"{folder} is not a release: {error}") from None
    return parse(strict_json.decoded(data))


def read_file(folder: Path, envelope: Envelope, file: File) -> Any:
    """What one file of a release holds, checked as all of them are."""
    path, settings = folder / file.name, envelope.settings
    tensors = stated_tensors(path, file, settings.file_bytes(file, envelope), settings.header)
    return settings.checked(str(path), tensors, file, envelope)


def stated_tensors(path: Path, stated: File, most: int, header: int) -> dict[str, Tensor]:
    """The tensors of a file, mapped, once it is the file that a manifest names: its size and SHA-256. most: bytes of
    all values that the manifest says are in it; a larger file is not even read."""
    try:
        with files.opened(path) as file:
            if (size := file.seek(0, 2)) != stated.bytes:
                raise ShardSizeError(f"{path} has {size} bytes, the manifest says {stated.bytes}")
            if size > most + header:
                raise ShapeError(f"{path} has {size:,} bytes, and all that the manifest says is in it takes {most:,}")
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest != stated.sha256:
                raise HashError(
                    f"{path} has the SHA-256 {digest}, the manifest says {stated.sha256}. The file was changed or "
                    f"damaged: ask the party for it again"
                )
            tensor_files.check_header(file, path, limit=header)
            with tensor_files.mapped(file, path) as opened:
                return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except UnreadableFileError as error:
        raise MissingShardError(str(error)) from None
    except SafetensorError as error:
        raise ShardFormatError(f"{path}: not a safetensors file: {error}") from None
