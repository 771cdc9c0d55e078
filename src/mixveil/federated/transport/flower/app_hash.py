"""The one app that runs here, as it is installed."""

from __future__ import annotations

import hashlib
from functools import cache

from flwr.cli.build import build_fab_from_disk

from mixveil.federated.transport.flower.environment import APP


@cache
def own_bundle() -> bytes:
    """The app that is installed here, as Flower bundles it. It holds no code: only what it is called."""
    found: bytes = build_fab_from_disk(APP)
    return found


@cache
def own_app() -> str:
    """Its SHA-256."""
    return hashlib.sha256(own_bundle()).hexdigest()
