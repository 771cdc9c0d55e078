"""Check what somebody sent, of any kind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mixveil.core.files import others
from mixveil.releases.manifest import Manifest
from mixveil.releases.records import MANIFEST, verify_release
from mixveil.releases.sums import FILE, Sums, is_statistics, read_statistics


@dataclass(frozen=True)
class Verified:
    """A release whose every byte is as its manifest says, and whose certificate follows from its own settings.

    Attributes:
        folder: Where it lies.
        stated: What it says: a manifest of records, or class sums.
        others: Files in the folder that the manifest does not name. Nothing is known of them.
    """

    folder: Path
    stated: Manifest | Sums
    others: tuple[str, ...]


def verify(folder: Path | str) -> Verified:
    """Check a release, or statistics: sizes, hashes, dtypes, shapes, finiteness, grid, labels, and that what it
    certifies follows from its own settings. Only its owner can tell whether the noise was drawn as stated."""
    folder = Path(folder)
    if is_statistics(folder):
        sums = read_statistics(folder)
        return Verified(folder, sums, tuple(others(folder, {MANIFEST, FILE})))
    stated = verify_release(folder)
    beside = others(folder, {MANIFEST, *(shard.file for shard in stated.shards)})
    return Verified(folder, stated, tuple(beside))
