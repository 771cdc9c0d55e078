"""A defence or an attack is one file: a registry finds its class by the `name` that it declares."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Generic, TypeVar

from mixveil.core.errors import ArgumentError

T = TypeVar("T")


class Registry(Generic[T]):
    """Classes by name: those in the modules of some packages, and those that a user registers. kind: what the classes
    are, for messages; check: refuses classes of users that are not whole."""

    def __init__(self, kind: str, *packages: str, check: Callable[[type[T]], object] = lambda thing: None) -> None:
        self.kind, self.packages, self.check = kind, packages, check
        self._own: dict[str, type[T]] | None = None
        self._registered: dict[str, type[T]] = {}

    def register(self, thing: type[T]) -> type[T]:
        """Add a class, as a decorator or by a call. A name that another class has is refused."""
        name = vars(thing).get("name")
        if not isinstance(name, str) or not name:
            raise ArgumentError(f"{thing.__qualname__} declares no name: every {self.kind} has one")
        self.check(thing)
        if self.all().get(name, thing) is not thing:
            raise ArgumentError(f"another {self.kind} has the name {name!r} already")
        self._registered[name] = thing
        return thing

    @contextmanager
    def including(self, *things: type[T]) -> Iterator[None]:
        """Classes that are known inside the block, and forgotten after it."""
        before = dict(self._registered)
        for thing in things:
            self.register(thing)
        try:
            yield
        finally:
            self._registered = before

    def all(self) -> dict[str, type[T]]:
        """Every class, by its name."""
        if self._own is None:
            self._own = {name: thing for package in self.packages for name, thing in _declared(package).items()}
        return dict(sorted({**self._own, **self._registered}.items()))

    def named(self, name: str) -> type[T]:
        known = self.all()
        if name not in known:
            raise ArgumentError(f"{self.kind} must be one of {', '.join(known)}, got {name!r:.60}")
        return known[name]


def _declared(package: str) -> dict[str, Any]:
    """All classes with a `name` of their own in the modules of a package, by that name."""
    declared: dict[str, Any] = {}
    for module in pkgutil.iter_modules(import_module(package).__path__):
        if module.ispkg:
            continue
        for thing in vars(import_module(f"{package}.{module.name}")).values():
            own = isinstance(thing, type) and thing.__module__ == f"{package}.{module.name}"
            if own and isinstance(vars(thing).get("name"), str):
                declared[thing.name] = thing
    return declared
