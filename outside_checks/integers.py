"""The integers of which releases are made, round(scale · N), against their exact law and against OpenDP's sampler.

A rounded Gaussian is not the discrete Gaussian of OpenDP: one integrates the density over a cell, the other takes it at
the integer. So they are not expected to be equal. Compared are:

- draws with the exact cells of the rounded Gaussian (60 digits), and their lowest bits: Pearson's chi-square, which
  must not be as large as happens once in 10⁷ samples; and their mean square, within 5.5 standard errors;
- the same for OpenDP's draws and its own law: another sampler passes the very same test;
- P̂(A) − Q̂(A) of both samples with the total variation of the two laws, where A are the integers that the rounded
  Gaussian is more likely to give. At scale 1,024, that of the grid, theory says 1.9 · 10⁻⁸, and no sample can see it;
  at scales about 1 they differ visibly, by as much as theory says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import mpmath
import numpy as np
import opendp.prelude as opendp

from mixveil.core.randomness import SecureStream
from outside_checks import laws
from outside_checks.laws import Integers
from outside_checks.lines import Fault, Line, fault

Draw = Callable[[int, float], Integers]
_OURS, _THEIRS = 4_000_000, 400_000  # draws a scale
_SCALES = (0.5, 1.0, 37.25, 1024.0)
_LEAST_P = 1e-7
_ERRORS = 5.5  # standard errors, beyond which a sample falls 4 times in 10⁸
_MODULI = (2, 8)


def lines(draw: Draw | None = None) -> list[Line]:
    found = []
    for scale in _SCALES:
        ours, theirs = (draw or rounded)(_OURS, scale), _opendp(scale)
        exact, discrete = _laws(scale)
        found += _follows(f"round({scale:g} N)", ours, exact)
        found += _follows(f"OpenDP's discrete Gaussian, scale {scale:g}", theirs, discrete)
        found.append(_apart(scale, ours, theirs, exact, discrete))
    return found


def faults() -> list[Fault]:
    planted: dict[str, Draw] = {
        "a scale 0.3 % too small": lambda n, scale: rounded(n, 0.997 * scale),
        "rounded down": lambda n, scale: np.floor(_normal(n) * scale).astype(np.int64),
        "normals of 8 bits": lambda n, scale: np.rint(np.rint(_normal(n) * 256) / 256 * scale).astype(np.int64),
        "tails cut at 3.5 σ": lambda n, scale: np.rint(_normal(n).clip(-3.5, 3.5) * scale).astype(np.int64),
        "the discrete Gaussian's law": _of_discrete_law,
    }
    return [fault(case, lambda draw=draw: lines(draw)) for case, draw in planted.items()]  # type: ignore[misc]


def rounded(n: int, scale: float) -> Integers:
    """As releases draw them."""
    found: Integers = SecureStream().rounded_normals(n, scale=scale).numpy()
    return found


def _normal(n: int) -> laws.Floats:
    found: laws.Floats = SecureStream().normal(n).numpy()
    return found


def _of_discrete_law(n: int, scale: float) -> Integers:
    law = np.array([float(value) for value in _laws(scale)[1]])
    places = np.searchsorted(law.cumsum(), SecureStream().uniform(n).numpy())
    found: Integers = places - len(law) // 2
    return found


@cache
def _opendp(scale: float) -> Integers:
    opendp.enable_features("contrib")
    space = opendp.vector_domain(opendp.atom_domain(T=int)), opendp.l2_distance(T=float)
    noise: Any = space >> opendp.m.then_gaussian(scale=scale)
    return np.array(noise([0] * _THEIRS), np.int64)


@cache
def _laws(scale: float) -> tuple[list[mpmath.mpf], list[mpmath.mpf]]:
    largest = math.ceil(12 * scale) + 2
    return laws.rounded_gaussian(scale, largest), laws.discrete_gaussian(scale, largest)


def _follows(name: str, draws: Integers, law: list[mpmath.mpf]) -> list[Line]:
    starts, probabilities = laws.cells(law, len(draws))
    p = laws.chi_square(laws.counted(draws, starts), probabilities)
    kind = "mpmath, exact cells; p-value"
    found = [Line(f"{name}, {len(starts) + 1} cells", p, ">=", _LEAST_P, 0.0, kind)]
    for modulus in _MODULI:
        p = laws.chi_square(np.bincount(draws % modulus, minlength=modulus), laws.residues(law, modulus))
        found.append(Line(f"{name} modulo {modulus}", p, ">=", _LEAST_P, 0.0, kind))
    square, error = laws.second_moment(draws, law)
    found.append(Line(f"{name}, mean square", square, "=", 1.0, _ERRORS * error, "mpmath, over the exact one"))
    return found


def _apart(scale: float, ours: Integers, theirs: Integers, exact: list[mpmath.mpf], discrete: list[mpmath.mpf]) -> Line:
    largest = len(exact) // 2
    likelier = np.array([a > b for a, b in zip(exact, discrete, strict=True)])
    shares = [float(likelier[np.clip(draws, -largest, largest) + largest].mean()) for draws in (ours, theirs)]
    sampling = math.hypot(*(0.5 / math.sqrt(len(draws)) for draws in (ours, theirs)))
    theory = laws.total_variation(exact, discrete)
    case = f"P(A) - Q(A) to OpenDP's, scale {scale:g}"
    return Line(case, shares[0] - shares[1], "=", theory, _ERRORS * sampling, "total variation in theory")
