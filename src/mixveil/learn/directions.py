"""The server's step between class sums and records, as a whole job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mixveil.core import files
from mixveil.features import projection_file
from mixveil.features.projection import Projection
from mixveil.features.shipped import located
from mixveil.learn import class_means
from mixveil.releases.kinds.sums import SumSettings
from mixveil.releases.reading import read_release


@dataclass(frozen=True)
class Directions:
    """A projection onto the directions in which classes differ. base: how many directions the statistics were in."""

    path: Path
    sha256: str
    projection: Projection
    base: int


def directions(folders: Sequence[Path | str] | Path | str, out: Path | str, *, projection: Path | str) -> Directions:
    """Find the directions in which the classes differ, from all parties' statistics: a projection for their records.

    projection: the file of the one that the statistics went through."""
    path = Path(out)
    files.check_new(path)
    base, digest = projection_file.read(located(projection))
    sums = [read_release(folder, SumSettings.name) for folder in files.as_paths(folders)]
    narrow = class_means.directions(sums, base, digest)
    return Directions(path, projection_file.write(path, narrow), narrow, base.dimension)
