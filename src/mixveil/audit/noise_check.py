"""Is the noise of a release what it should be? Only its owner can ask: it takes the records and the trace.

What is left of a row when its mean is taken away, over its deviation (`Observation`), must follow the encoder's law:
independent standard normals, or values on one sphere, or Laplace values. The thresholds are 6 and more deviations of
what is tested: honest noise hardly ever fails.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mixveil.core.types import NoiseLaw
from mixveil.core.wording.notes import Note, note

_BEYOND = 6.0  # deviations of a normal, for tests on many rows or values at once
_VALUES = 1 << 22  # at once
_MOST = 2000  # rows or values compared with each other


def faults(normals: Tensor, rows: Tensor, law: NoiseLaw, moved: float = 0.0) -> list[Note]:
    """What is wrong with (n, d) standardised noise; nothing if it is as it should be. rows: the energies of
    these rows, or of all of a larger set that they are a part of. moved: by how many deviations sums over rows may be
    off, where the rows were chosen among more; a single row may not."""
    n, d = normals.shape
    said = []
    columns = torch.linalg.vector_norm(normals, dim=0).square()
    if law == "laplace":
        return _not_laplace(normals, moved)
    if law == "sphere":
        if float((rows / d - 1).abs().max()) > 1e-3:
            said.append(note("noise-off-sphere"))
    elif worst := _odd_energies(rows, d):
        said.append(note("noise-odd-rows", rows=worst))
    if worst := _odd_energies(columns, n, moved):
        said.append(note("noise-odd-values", values=worst))
    if float((normals.mean(0) * math.sqrt(n)).abs().max()) > _BEYOND + 2 + moved:
        said.append(note("noise-not-centred"))
    if _related(normals):
        said.append(note("noise-shared-by-rows"))
    if _related(normals.T, moved):
        said.append(note("noise-shared-by-values"))
    fourth = sum(float(part.pow(4).sum()) for part in torch.split(normals, _rows_at_once(d))) / normals.numel()
    if law == "gaussian" and abs(fourth - 3) > (_BEYOND + moved) * math.sqrt(96 / normals.numel()) + 1e-3:
        said.append(note("noise-not-gaussian", fourth=fourth))
    return said


def noticed(rows: int, moved: float) -> Note:
    """What the tests of single values of so many rows can see, where rows were chosen."""
    share = 1 - (_BEYOND + 1 + moved) * math.sqrt(2 / (9 * rows))  # by the cube root, as `_odd_energies` has it
    if share <= 0:
        return note("verdict-weak-noise-unnoticed")
    return note("verdict-noise-tested-loosely", share=share**1.5)


def _rows_at_once(length: int) -> int:
    """Of so many values, where something of their size is made of them."""
    return max(1, _VALUES // length)


def _not_laplace(noise: Tensor, moved: float) -> list[Note]:
    """Standardised Laplace noise has the mean size 1/√2 (deviation 1/√2), and values that are not related."""
    said = []
    size = float(noise.abs().mean()) * math.sqrt(2)
    if abs(size - 1) > (_BEYOND + moved) / math.sqrt(noise.numel()) + 1e-3:
        said.append(note("noise-not-laplace", size=size))
    if _related(noise):
        said.append(note("noise-shared-by-rows"))
    if _related(noise.T, moved):
        said.append(note("noise-shared-by-values"))
    return said


def _odd_energies(energies: Tensor, degrees: int, moved: float = 0.0) -> int:
    """How many sums of squares are too far from a χ² law of so many degrees (Wilson and Hilferty's cube root)."""
    spread = 2 / (9 * degrees)
    scores = ((energies / degrees).clamp(min=1e-12).pow(1 / 3) - (1 - spread)) / math.sqrt(spread)
    odd = (scores.abs() > _BEYOND + 1 + moved) | (energies < 1e-3)  # of few values none at all is within 7 deviations
    return int(odd.sum()) if degrees >= 8 else 0


def _related(rows: Tensor, moved: float = 0.0) -> bool:
    """Whether two rows are correlated beyond chance (Fisher's transform, over up to 2,000 rows)."""
    length = rows.shape[1]
    if length < 16 or len(rows) < 2:
        return False
    some = rows[:_MOST]
    sums = some.sum(1)
    products = torch.addmm(torch.outer(sums, sums), some, some.T, beta=-1 / length)
    size = products.diagonal().clamp(min=1e-300).sqrt()
    correlation = (products / torch.outer(size, size)).fill_diagonal_(0).clamp(-1 + 1e-12, 1 - 1e-12)
    return float(correlation.abs().max().atanh()) * math.sqrt(length - 3) > _BEYOND + 2 + moved
