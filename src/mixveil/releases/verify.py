"""Check what somebody sent, of any kind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mixveil.core.files import others
from mixveil.releases.envelope import MANIFEST, Envelope
from mixveil.releases.reading import verify_release


@dataclass(frozen=True)
class Verified:
    """A release whose every byte is as its manifest says, and whose certificate follows from its own settings.

    Attributes:
        folder: Where it lies.
        stated: What it says.
        others: Files in the folder that the manifest does not name. Nothing is known of them.
    """

    folder: Path
    stated: Envelope
    others: tuple[str, ...]


def verify(folder: Path | str) -> Verified:
    """Check a release of any kind: sizes, hashes, dtypes, shapes, finiteness, ranges, labels, and that what it
    certifies follows from its own settings. Only its owner can tell whether the noise was drawn as stated."""
    folder = Path(folder)
    stated = verify_release(folder)
    return Verified(folder, stated, tuple(others(folder, {MANIFEST, *(file.name for file in stated.files)})))
