"""Attacks on a release, judged against the truth. `mixveil.audit()` runs one."""

from mixveil.core.door import open_door

__all__ = open_door(__name__, {"audit": "mixveil.audit.own_releases"})
