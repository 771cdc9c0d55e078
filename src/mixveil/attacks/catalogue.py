"""All attacks by name."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import get_args

from mixveil.core.errors import ArgumentError
from mixveil.core.registry import Registry
from mixveil.core.types import Attack, AttackBound, AttackKind, View

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_DECLARED = tuple(Attack.__annotations__)
_METHODS = ("cannot", "work", "__call__", "knowing")


def check(thing: type[Attack]) -> None:
    """Refuse a class that no audit could run; says what is wrong with it."""
    of = thing.__qualname__
    if not _NAME.fullmatch(thing.name):
        raise ArgumentError(f"{of}: its name must be lower-case letters, digits and hyphens, got {thing.name!r:.60}")
    own = {name for base in thing.__mro__ for name in vars(base)}
    lacking = [name for name in (*_DECLARED, *_METHODS) if name not in own]
    lacking += sorted(getattr(thing, "__abstractmethods__", ()))
    if lacking:
        raise ArgumentError(f"{of} lacks {', '.join(lacking)}: derive it from BaseAttack, and set what it leaves open")
    if thing.kind not in get_args(AttackKind):
        raise ArgumentError(f"{of}: its kind must be one of {', '.join(get_args(AttackKind))}, got {thing.kind!r:.60}")
    if thing.bound is not None and thing.bound not in get_args(AttackBound):
        raise ArgumentError(f"{of}: its bound must be None or one of {', '.join(get_args(AttackBound))}")
    known = {field.name for field in fields(View)} - {"releases"}
    if not isinstance(thing.needs, frozenset | set) or thing.needs - known:
        raise ArgumentError(
            f"{of}: its needs must be a frozenset of fields of the View, which are {', '.join(sorted(known))}; got "
            f"{thing.needs!r:.200}"
        )
    settings = inspect.signature(thing).parameters.values()
    if any(one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in settings):
        raise ArgumentError(f"{of}: its settings need defaults, as an audit makes it without any")
    if thing.trains and "cache" not in inspect.signature(thing).parameters:
        raise ArgumentError(f"{of} trains: it must have a field cache, a TrainingCache")


ATTACKS: Registry[Attack] = Registry(
    "attack",
    "mixveil.attacks.records",
    "mixveil.attacks.features",
    "mixveil.attacks.representations",
    "mixveil.attacks.updates",
    check=check,
)


def attacks() -> dict[str, type[Attack]]:
    """All attacks, by name."""
    return ATTACKS.all()
