"""Releases against the canary auditor of jax-privacy.

A release is made again and again, as a party makes it: of records that hold the canary, and of the same records with
its worst neighbour in its place. The score is the optimal one of an attacker who knows all else: the log-likelihood
ratio, pairing and weights of mixed records known. From the rates at all thresholds (Clopper and Pearson, corrected for
their number) the auditor computes a lower bound on ε at a δ, right with probability 1 − 10⁻⁶, whatever the mechanism.
One above the ε that mixveil states at that δ would refute its claim.

The auditor's `epsilon_from_gdp` is not used. Version 2.0.0 takes the size of a negative μ for a bound, which it is not:
on 6,000 normals a side, one standard deviation apart, it said ε ≥ 4.85 at δ = 10⁻⁵, where ε is 4.38.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jax_privacy.auditing import CanaryScoreAuditor
from numpy.typing import NDArray
from torch import Tensor

from mixveil.core.randomness import SecureStream
from mixveil.core.types import Encoder, Mu
from mixveil.data.images import Images, from_tensors
from mixveil.encoders.gaussian import Gaussian
from mixveil.encoders.noisy import EXAMPLE
from mixveil.encoders.singular import Singular
from mixveil.features.cache import Features
from mixveil.features.extractor import Extractor
from mixveil.features.projection import HeldRows, Projection
from mixveil.releases.records import traced_in_memory
from mixveil.releases.sums import class_sums
from mixveil.theory import gdp
from outside_checks.lines import Fault, Line, fault

_REPETITIONS = 6000
_SIGNIFICANCE = 1e-6
_DELTAS = (1e-5, 0.01, 0.1)
_MU = 1.0
_VALUES = 16
Scores = NDArray[np.float64]
Audited = Callable[[float], tuple[Scores, Scores]]
"""From how much of the stated noise is really there to scores of releases with the canary, and with its neighbour."""


def lines(noise: float = 1.0) -> list[Line]:
    """noise: how much of the stated σ is added."""
    return [line for name, audited in _AUDITS.items() for line in _bounds(name, *audited(noise))]


def faults() -> list[Fault]:
    return [
        fault(f"{name} with half of the stated σ", lambda a=audited, n=name: _bounds(n, *a(0.5)))  # type: ignore[misc]
        for name, audited in _AUDITS.items()
    ]


def _bounds(name: str, inside: Scores, outside: Scores) -> list[Line]:
    auditor = CanaryScoreAuditor(inside, outside)
    found = []
    for delta in _DELTAS:
        bound = float(auditor.epsilon_clopper_pearson(_SIGNIFICANCE, delta=delta))
        stated = gdp.epsilon(_MU, delta)
        found.append(Line(f"ε of {name}, δ = {delta:g}", stated, ">=", bound, 0.0, "jax-privacy, lower bound"))
    return found


def _singular(noise: float) -> tuple[Scores, Scores]:
    return _records(Singular().calibrate(Mu(_MU), EXAMPLE)[0], noise)


def _gaussian(noise: float) -> tuple[Scores, Scores]:
    return _records(Gaussian().calibrate(Mu(_MU), EXAMPLE)[0], noise)


def _records(stated: Any, noise: float) -> tuple[Scores, Scores]:
    """Four records of 16 values; the first is the canary, at the clip norm, and its neighbour the opposite."""
    actual: Encoder = replace(stated, sigma=noise * stated.sigma)
    worlds = tuple(_images(sign) for sign in (1.0, -1.0))
    return tuple(_scored(world, worlds, stated, actual) for world in worlds)  # type: ignore[return-value]


def _images(sign: float) -> Images:
    z = torch.zeros(4, _VALUES, dtype=torch.float64)
    z[:, 0::2] = 0.1
    z[0] = sign * 0.5  # of norm 2, the clip norm
    return from_tensors((z + 0.5).float().view(4, 1, 4, 4), torch.zeros(4, dtype=torch.long), classes=2)


def _scored(world: Images, worlds: tuple[Images, ...], stated: Any, actual: Encoder) -> Scores:
    stream, rows, found = SecureStream(), torch.arange(4), np.empty(_REPETITIONS)
    for turn in range(_REPETITIONS):
        release, trace = traced_in_memory(world, actual, (), party="p", stream=stream.fork("release"))
        x = release.payload.take(rows).x.double().flatten(1)
        seen = stated.observation(trace)
        inside, outside = (seen.mean(other, rows).x for other in worlds)
        deviation = stated.deviation(trace.weight)[:, None]
        ratio = (x - (inside + outside) / 2) * (inside - outside) / deviation**2
        found[turn] = float(ratio.sum())
    return found


def _sums(noise: float) -> tuple[Scores, Scores]:
    """Class sums of four records of two classes; the neighbour of the canary is of the other class, at a right angle:
    that is as far apart as two contributions can be."""
    worlds = []
    for label, direction in ((0, 0), (1, 1)):
        z = torch.full((4, _VALUES), 0.1)
        z[0] = torch.eye(_VALUES)[direction]
        worlds.append(_projected(z, torch.tensor([label, 0, 1, 1])))
    stream = SecureStream()
    totals = [_released(world, 1e-6, stream) for world in worlds]  # a million times less noise: what they are
    towards = totals[0] - totals[1]
    found = [
        np.array([float((_released(world, noise, stream) * towards).sum()) for _ in range(_REPETITIONS)])
        for world in worlds
    ]
    return found[0], found[1]


def _released(rows: HeldRows, noise: float, stream: SecureStream) -> Tensor:
    payload: Tensor = class_sums(rows, "0" * 64, _MU / noise, party="p", stream=stream.fork("release")).payload
    return payload


def _projected(z: Tensor, labels: Tensor) -> HeldRows:
    """Rows that enter sums as they are, at clip norm 1."""
    data = from_tensors(torch.zeros(len(z), 1, 4, 4), labels, classes=2)
    features = Features(data, lambda index: z[index], Extractor(), _VALUES)
    ones, none = torch.ones(_VALUES), torch.zeros(0)
    projection = Projection(
        mean=0 * ones,
        matrix=torch.eye(_VALUES),
        clip=1.0,
        separation=ones,
        norms=ones,
        sample=none.view(0, _VALUES),
        prints=none.view(0, 8),
        extractor=Extractor(),
        weights="0" * 64,
        origin="public",
        about={},
        means=none.view(0, _VALUES),
        precision=none,
    )
    return HeldRows(features, projection, z)


_AUDITS: dict[str, Audited] = {"singular": _singular, "gaussian": _gaussian, "class sums": _sums}
