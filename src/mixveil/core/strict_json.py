"""Reading JSON that others wrote: every field must be present and of its type, and no other field is allowed."""

from __future__ import annotations

import heapq
import json
import math
import re
import reprlib
import types
import typing
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar

from mixveil.core import checks
from mixveil.core.errors import ManifestError, MixveilError, ReleaseError, one_line

T = TypeVar("T")

MANIFEST_LIMIT = 8 << 20
"""Bytes of a manifest, or of the card of a model."""

_DIGITS, _LEVELS, _NAMES, _SHOWN = 100, 32, 5, 150
_LARGEST = 1e100


def decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ManifestError(f"not UTF-8: {error.reason} at byte {error.start}") from None


def parsed(data: bytes) -> Any:
    """The JSON in the bytes of a file."""
    return loads(decoded(data))


def loads(text: str) -> Any:
    """JSON with finite numbers, unique field names and few levels: it can be compared, turned into floats and written
    again without an error."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) != len(pairs):
            raise ManifestError("a field is given twice")
        return dict(pairs)

    def refuse(constant: str) -> None:
        raise ManifestError(f"{constant} is not allowed as a number")

    def whole_number(digits: str) -> int:
        if len(digits) > _DIGITS:
            raise ManifestError(f"a whole number has {len(digits):,} digits, and at most {_DIGITS} are allowed")
        return int(digits)

    def finite(number: str) -> float:
        if not math.isfinite(found := float(number)):
            raise ManifestError(f"{number:.20} is not finite")
        return found

    try:
        whole = json.loads(
            text, object_pairs_hook=unique, parse_constant=refuse, parse_int=whole_number, parse_float=finite
        )
    except RecursionError:
        raise ManifestError("the JSON has too many levels") from None
    except ValueError as error:
        raise ManifestError(f"not JSON: {error}") from None
    _check_depth(whole)
    return whole


def _check_depth(whole: Any) -> None:
    level = [whole]
    for _ in range(_LEVELS):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return
    raise ManifestError(f"the JSON has more than {_LEVELS} levels")


def shown(item: Any) -> str:
    """A value for an error message: one printable line, shortened where it is long."""
    try:
        text = reprlib.repr(item)
    except ValueError:  # an integer too long to be written
        text = f"a value of the type {type(item).__name__}"
    return one_line(text, _SHOWN)


def only(where: str, item: Mapping[str, Any], names: set[str]) -> None:
    if missing := names - item.keys():
        raise ManifestError(f"{where}: missing {', '.join(sorted(missing))}")
    if unknown := item.keys() - names:
        raise ManifestError(f"{where}: unknown {_listed(unknown)}")


def _listed(names: Collection[str]) -> str:
    """Field names that others chose: quoted, and only the first few."""
    some = ", ".join(shown(name) for name in heapq.nsmallest(_NAMES, names))
    return some if len(names) <= _NAMES else f"{some} and {len(names) - _NAMES:,} more"


@contextmanager
def within(where: str) -> Iterator[None]:
    """Inside, values that are refused for what they are become a fault of the JSON; its other errors pass."""
    try:
        yield
    except ReleaseError:
        raise
    except MixveilError as error:
        raise ManifestError(f"{where}: {error}") from None


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


def name(where: str, item: Any) -> str:
    """A name that others chose, and that people will read."""
    if not isinstance(item, str) or not checks.is_name(item):
        raise ManifestError(f"{where} must be {checks.A_NAME}, got {shown(item)}")
    return item


def moment(where: str, item: Any) -> str:
    """A time as releases have it: in UTC, to the second."""
    if not _is_moment(item):
        raise ManifestError(
            f"{where} must be a date and time in UTC, such as 2026-11-19T14:39:34+00:00, got {shown(item)}"
        )
    return str(item)


def _is_moment(item: Any) -> bool:
    try:
        found = datetime.fromisoformat(item)
    except (TypeError, ValueError):
        return False
    return found.utcoffset() == timedelta(0) and found.isoformat(timespec="seconds") == item


def count(where: str, item: Any) -> int:
    if type(item) is not int or not 0 < item < 1 << 48:
        raise ManifestError(f"{where} must be a positive whole number, got {shown(item)}")
    return item


def number(where: str, item: Any) -> float:
    try:
        found = float(item) if isinstance(item, int | float) and not isinstance(item, bool) else math.nan
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise ManifestError(f"{where} must be a finite number, got {shown(item)}")
    return found


def figure(where: str, item: Any) -> float:
    """A positive number whose square and inverse are finite."""
    found = number(where, item)
    if not 1 / _LARGEST <= found <= _LARGEST:
        raise ManifestError(f"{where} must be between {1 / _LARGEST:g} and {_LARGEST:g}, got {found:g}")
    return found


def fits(value: Any, hint: Any) -> bool:
    """Whether a JSON value has the type of a field: a whole number is a float, a flag is no number.

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
