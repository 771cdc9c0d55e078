"""Argument checks. Each error names the argument, its value and what would be right."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mixveil.core.errors import ArgumentError, TooFewRowsError

if TYPE_CHECKING:
    from torch import Tensor

LONGEST_NAME = 64
A_NAME = f"one line of 1 to {LONGEST_NAME} printable characters"

_TINY = 1e-100
_LARGEST = 1e30


def finite_positive(name: str, value: float) -> float:
    """A positive number whose square and inverse are finite.

    >>> finite_positive("sigma", 2.0)
    2.0
    """
    value = _number(name, value)
    _in(math.isfinite(value) and value > 0, name, value, "positive and finite")
    return _in(_TINY <= value <= 1 / _TINY, name, value, f"between {_TINY:g} and {1 / _TINY:g}")


def _number(name: str, value: float) -> float:
    """A float, also from numbers of other libraries."""
    if isinstance(value, bool | str):
        raise ArgumentError(f"{name} must be a number, got {value!r:.60}")
    return float(value)


def size(name: str, value: float) -> float:
    """A size of records or of noise: positive, and far from the limits of float32."""
    return _in(1 / _LARGEST <= value <= _LARGEST, name, value, f"between {1 / _LARGEST:g} and {_LARGEST:g}")


def place(name: str, value: float) -> float:
    """A centre of records: finite, and no farther from zero than their size may be."""
    return _in(abs(value) <= _LARGEST, name, value, f"finite, and between {-_LARGEST:g} and {_LARGEST:g}")


def fraction(name: str, value: float) -> float:
    """A value in (0, 1]."""
    return _in(0 < _number(name, value) <= 1, name, value, "in (0, 1]")


def probability(name: str, value: float) -> float:
    """A value in (0, 1), both ends excluded."""
    return _in(0 < value < 1, name, value, "in (0, 1)")


def cap(name: str, value: float) -> float:
    """A cap on mixing weights, in [0.5, 1): at 0.5 all weights are one half, at 1 a row could be a bare record."""
    return _in(0.5 <= value < 1, name, value, "in [0.5, 1)")


def name(argument: str, value: str) -> str:
    """A name that others will read, no longer than that of a key.

    >>> name("party", "the clinic in the north")
    'the clinic in the north'
    """
    if not is_name(value):
        raise ArgumentError(f"{argument} must be {A_NAME}, got {value!r:.80}")
    return value


def is_name(value: str) -> bool:
    return value.isprintable() and 0 < len(value) <= LONGEST_NAME


def _in(fits: bool, name: str, value: float, domain: str) -> float:
    if not fits:
        raise ArgumentError(f"{name} must be {domain}, got {value}")
    return float(value)


def at_least(name: str, value: int, least: int) -> int:
    """A whole number of at least `least`."""
    if value < least:
        raise ArgumentError(f"{name} must be at least {least}, got {value}")
    return int(value)


def rows_within(index: Tensor, n: int) -> Tensor:
    """Row numbers in 0…n − 1."""
    if len(index) and not (int(index.min()) >= 0 and int(index.max()) < n):
        raise ArgumentError(f"row numbers must be in 0…{n - 1}, got {int(index.min())}…{int(index.max())}")
    return index


def enough_rows(n: int, least: int = 2) -> int:
    """At least `least` rows.

    >>> enough_rows(1)
    Traceback (most recent call last):
    mixveil.core.errors.TooFewRowsError: at least 2 rows are needed, got 1: a record without a partner has no cover
    """
    if n < least:
        raise TooFewRowsError(f"at least {least} rows are needed, got {n}: a record without a partner has no cover")
    return n
