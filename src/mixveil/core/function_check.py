"""Whether this machine's log, sqrt, sin and cos are as near as exact rounding takes them to be.

`rounded_normals` proves its bounds from `SINGLE` and `DOUBLE`, which are several times what mathematical libraries
state. A library that is worse would void that proof without a sign, so noise for releases asks here first, once a
process: float32 against float64 and float64 against mpmath, at the same places on every machine."""

from __future__ import annotations

import math
import threading
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from mixveil.core.errors import StreamError
from mixveil.core.rounded_normals import DOUBLE, EXTREME, SINGLE, Doubles

_SINGLES, _DOUBLES = 1 << 14, 48
_lock = threading.Lock()
_GOLDEN = (math.sqrt(5) - 1) / 2


def places(count: int) -> Doubles:
    """(count,) numbers in (0, 1), evenly spread and without a pattern."""
    spread: Doubles = np.modf(np.arange(1, count + 1) * _GOLDEN)[0]
    return spread


def single_errors(count: int) -> dict[str, float]:
    """The largest errors of float32 at so many places: relative of log and sqrt, absolute of sin and cos."""
    u = np.concatenate([places(count), 2.0 ** (-11 * places(count)), 1 - 2.0 ** (-10 * places(count))])
    u = u[(u >= 2.0**-11) & (u < 1 - 2.0**-10)].astype(np.float32)
    angle = (math.pi * (2 * places(count) - 1)).astype(np.float32)
    wide, turn = u.astype(np.float64), angle.astype(np.float64)
    return {
        "log": _relative(np.log(u), np.log(wide)),
        "sqrt": _relative(np.sqrt(u), np.sqrt(wide)),
        "sin": _absolute(np.sin(angle), np.sin(turn)),
        "cos": _absolute(np.cos(angle), np.cos(turn)),
    }


def double_errors(count: int) -> dict[str, float]:
    """The same of float64, and of log1p, against mpmath."""
    u = np.concatenate([places(count) / 2, EXTREME ** places(count) / 2])
    angle = math.pi * (2 * places(count) - 1)
    found = {"log": np.log(u), "log1p": np.log1p(-u), "sqrt": np.sqrt(u), "sin": np.sin(angle), "cos": np.cos(angle)}
    return {name: _worst(name, angle if name in ("sin", "cos") else u, got) for name, got in found.items()}


def _worst(name: str, at: Doubles, got: Doubles) -> float:
    import mpmath

    real = mpmath.mp.clone()  # its own: other threads may use that of the module
    real.prec = 200
    exact: Any = (lambda v: real.log(1 - v)) if name == "log1p" else getattr(real, name)
    pairs = [(exact(real.mpf(v)), real.mpf(value)) for v, value in zip(at.tolist(), got.tolist(), strict=True)]
    if name in ("sin", "cos"):
        return max(float(abs(true - value)) for true, value in pairs)
    return max(float(abs(true - value) / abs(true)) for true, value in pairs)


def check_functions() -> None:
    """Refuse to make noise where a function is further off than the proof allows."""
    with _lock:
        _check_once()


@lru_cache(maxsize=1)
def _check_once() -> None:
    for kind, errors, accuracy in (
        ("float32", single_errors(_SINGLES), SINGLE),
        ("float64", double_errors(_DOUBLES), DOUBLE),
    ):
        for name, error in errors.items():
            allowed = {"sin": accuracy.trig, "cos": accuracy.trig, "sqrt": 2 * accuracy.unit}.get(name, accuracy.log)
            if not error <= allowed:
                raise StreamError(
                    f"{name} of {kind} is off by {error:.1e} on this machine, and exact rounding allows {allowed:.1e}: "
                    f"install another build of numpy"
                )


def _relative(got: npt.NDArray[Any], true: Doubles) -> float:
    return float(np.max(np.abs(got.astype(np.float64) - true) / np.abs(true)))


def _absolute(got: npt.NDArray[Any], true: Doubles) -> float:
    return float(np.max(np.abs(got.astype(np.float64) - true)))
