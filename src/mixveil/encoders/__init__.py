"""One file = one defence. `mixveil.encoders()` lists them."""

from mixveil.core.door import open_door

__all__ = open_door(__name__, {"encoders": "mixveil.encoders.catalogue"})
