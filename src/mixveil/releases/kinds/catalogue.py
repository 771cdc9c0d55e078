"""All kinds of payload by name. A kind from elsewhere is brought by `KINDS.register`."""

from __future__ import annotations

from mixveil.core.registry import Registry
from mixveil.releases.kinds.settings import PayloadSettings

KINDS: Registry[PayloadSettings] = Registry("kind of payload", "mixveil.releases.kinds")
