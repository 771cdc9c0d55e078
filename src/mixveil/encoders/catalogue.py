"""All encoders by name."""

from __future__ import annotations

from typing import Any

from mixveil.core.registry import Registry
from mixveil.core.types import Encoder, Scheme

ENCODERS: Registry[Scheme[Any]] = Registry("encoder", "mixveil.encoders")


def encoders() -> dict[str, type[Scheme[Encoder]]]:
    """The schemes of all encoders, by name. `encoders()[name].ready()` is the class that encodes, and whose fields are
    the settings in a manifest."""
    return ENCODERS.all()


def encoder(name: str) -> type[Scheme[Encoder]]:
    return ENCODERS.named(name)
