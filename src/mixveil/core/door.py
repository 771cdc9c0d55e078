"""Doors: what a package's `__init__` exports, imported when it is first used."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from inspect import Signature, signature
from types import ModuleType
from typing import Any


class _Door(ModuleType):
    """A package whose names live in its modules. Where one of them has the package's own name, `mixveil.audit` is both
    the room and the function: importing a module of the room must not take the function away."""

    _homes: Mapping[str, str]

    def __getattr__(self, name: str) -> Any:
        if name not in self._homes:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(import_module(self._homes[name]), name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._homes})

    @property
    def __signature__(self) -> Signature | None:
        """Of the function that the package is as well: `help` and notebooks show it."""
        own = self.__name__.rpartition(".")[2]
        return signature(self.__getattr__(own)) if own in self._homes else None

    def __call__(self, *given: Any, **named: Any) -> Any:
        own = self.__name__.rpartition(".")[2]
        if own not in self._homes:
            raise TypeError(f"module {self.__name__!r} is not callable")
        return self.__getattr__(own)(*given, **named)


def open_door(package: str, homes: Mapping[str, str]) -> list[str]:
    """Export names from the modules that hold them; the list is the package's `__all__`."""
    module = sys.modules[package]
    module.__dict__["_homes"] = dict(homes)
    module.__class__ = _Door
    return list(homes)
