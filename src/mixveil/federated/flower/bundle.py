"""The one app that runs here: as a server sends it, and as it is installed."""

from __future__ import annotations

import hashlib
from functools import cache

from flwr.cli.build import build_fab_from_disk

from mixveil.federated.flower import APP


@cache
def own_app() -> str:
    """The SHA-256 of the app that is installed here, as Flower bundles it. It holds no code: only what it is called."""
    return hashlib.sha256(build_fab_from_disk(APP)).hexdigest()
