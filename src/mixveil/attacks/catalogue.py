"""All attacks by name."""

from __future__ import annotations

from mixveil.core.registry import Registry
from mixveil.core.types import Attack

ATTACKS: Registry[Attack] = Registry(
    "attack",
    "mixveil.attacks.records",
    "mixveil.attacks.features",
    "mixveil.attacks.representations",
    "mixveil.attacks.updates",
)


def attacks() -> dict[str, type[Attack]]:
    """All attacks, by name."""
    return ATTACKS.all()
