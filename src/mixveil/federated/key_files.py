"""What all files of keys have in common: only their owner can read them, and people can compare them by telephone."""

from __future__ import annotations

import hashlib
from pathlib import Path

from mixveil.core.errors import ServiceError


def check_private(path: Path) -> None:
    """Refuse a private key that others on this machine could read."""
    if path.stat().st_mode & 0o077:
        raise ServiceError(f"{path} can be read by others on this machine: chmod 600 it")


def read_out(data: bytes, digits: int = 32) -> str:
    """The SHA-256 of some bytes, cut to so many hexadecimal digits, in groups that two people can read to each other.

    >>> read_out(b"")
    'E3B0 C442 98FC 1C14 9AFB F4C8 996F B924'
    """
    digest = hashlib.sha256(data).hexdigest()[:digits].upper()
    return " ".join(digest[place : place + 4] for place in range(0, len(digest), 4))
