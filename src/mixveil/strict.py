"""Reading JSON that others wrote: every field must be there and of its type, and no other."""

from __future__ import annotations

import json
import math
import re
import reprlib
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from mixveil.errors import ManifestError

T = TypeVar("T")


def loads(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) != len(pairs):
            raise ManifestError("a field is given twice")
        return dict(pairs)

    def refuse(constant: str) -> None:
        raise ManifestError(f"{constant} is not a number that a manifest may hold")

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"not JSON: {error}") from None


def shown(item: Any) -> str:
    """A value for an error message, cut where it is long."""
    return reprlib.repr(item)


def only(where: str, item: Mapping[str, Any], names: set[str]) -> None:
    if missing := names - item.keys():
        raise ManifestError(f"{where}: missing {', '.join(sorted(missing))}")
    if unknown := item.keys() - names:
        raise ManifestError(f"{where}: unknown {', '.join(sorted(unknown))}")


def mapping(where: str, item: Any) -> dict[str, Any]:
    return of(where, item, dict)


def items(where: str, item: Any) -> list[Any]:
    return of(where, item, list)


def flag(where: str, item: Any) -> bool:
    return of(where, item, bool)


def of(where: str, item: Any, kind: type[T]) -> T:
    if not isinstance(item, kind):
        raise ManifestError(f"{where} must be of the type {kind.__name__}, got {shown(item)}")
    return item


def text(where: str, item: Any, pattern: str = r".{1,1000}") -> str:
    if not isinstance(item, str) or not item.isprintable() or not re.fullmatch(pattern, item):
        raise ManifestError(f"{where} cannot be {shown(item)}")
    return item


def count(where: str, item: Any) -> int:
    if type(item) is not int or not 0 < item < 1 << 48:
        raise ManifestError(f"{where} must be a positive whole number, got {shown(item)}")
    return item


def number(where: str, item: Any) -> float:
    if not isinstance(item, int | float) or isinstance(item, bool) or not math.isfinite(item):
        raise ManifestError(f"{where} must be a finite number, got {shown(item)}")
    return float(item)


def fits(value: Any, hint: Any) -> bool:
    """Whether a plain value is of a field's type: a whole number is a float too, a flag is no number.

    >>> fits(1, float), fits(True, float), fits(None, int | None), fits("a", int)
    (True, False, True, False)
    """
    if isinstance(hint, types.UnionType):
        return any(fits(value, choice) for choice in hint.__args__)
    if typing.get_origin(hint) is typing.Literal:
        return value in typing.get_args(hint)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is (types.NoneType if hint is None else hint)
