"""One file = one attack. An attack sees a View, never the truth, and names no encoder."""

from __future__ import annotations

from typing import cast

from mixveil.registry import discover
from mixveil.types import Attack


def attacks() -> dict[str, type[Attack]]:
    """All attacks, by name."""
    return cast("dict[str, type[Attack]]", discover(__name__))
