"""All encoders by name."""

from __future__ import annotations

from mixveil.core.registry import Registry
from mixveil.core.types import Encoder

ENCODERS: Registry[Encoder] = Registry("encoder", "mixveil.encoders")


def encoders() -> dict[str, type[Encoder]]:
    """All encoders, by name."""
    return ENCODERS.all()


def encoder(name: str) -> type[Encoder]:
    return ENCODERS.named(name)
