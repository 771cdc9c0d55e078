"""One file = one defence."""

from __future__ import annotations

from typing import cast

from mixveil.errors import ArgumentError
from mixveil.registry import discover
from mixveil.types import Encoder


def encoders() -> dict[str, type[Encoder]]:
    """All encoders, by name."""
    return cast("dict[str, type[Encoder]]", discover(__name__))


def encoder(name: str) -> type[Encoder]:
    known = encoders()
    if name not in known:
        raise ArgumentError(f"encoder must be one of {', '.join(known)}, got {name!r}")
    return known[name]
