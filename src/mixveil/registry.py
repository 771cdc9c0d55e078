"""A defence or an attack is one file: the registry finds its class by the `name` that it declares."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import Any


def discover(package: str) -> dict[str, Any]:
    """All classes with a `name` of their own in the modules of a package, by that name."""
    found: dict[str, Any] = {}
    for module in pkgutil.iter_modules(import_module(package).__path__):
        if module.name.startswith("_"):
            continue
        for thing in vars(import_module(f"{package}.{module.name}")).values():
            own = isinstance(thing, type) and thing.__module__ == f"{package}.{module.name}"
            if own and isinstance(vars(thing).get("name"), str):
                found[thing.name] = thing
    return dict(sorted(found.items()))
