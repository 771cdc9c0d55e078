"""The table of all methods. `METHODS.register` adds one from outside."""

from __future__ import annotations

from mixveil.core.errors import ArgumentError
from mixveil.core.registry import Registry
from mixveil.federated.methods.base import Method

METHODS: Registry[Method] = Registry("method", "mixveil.federated.methods")
_ORDER = (None, "tau", "mu")


def method_named(name: str) -> Method:
    return METHODS.named(name)()


def method_names() -> list[str]:
    """All names: first those without a guarantee, then those at a τ, then those at a μ."""
    return sorted(METHODS.all(), key=lambda name: (_ORDER.index(method_named(name).simulated_at), name))


def between_machines() -> list[str]:
    """The names of those that jobs between machines can use."""
    return [name for name in method_names() if method_named(name).between_machines]


def chosen_methods(text: str) -> list[str]:
    """Names from `all` or a list with commas between.

    >>> chosen_methods("fedavg, two-step")
    ['fedavg', 'two-step']
    """
    known = method_names()
    if text.strip() == "all":
        return known
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ArgumentError(f"methods must be all or some of {', '.join(known)}, got {', '.join(unknown) or 'none'}")
    return list(dict.fromkeys(names))
