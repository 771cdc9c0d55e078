"""One file = one attack. `mixveil.attacks()` lists them. No attack imports an encoder."""

from mixveil.core.door import open_door

__all__ = open_door(__name__, {"attacks": "mixveil.attacks.catalogue"})
