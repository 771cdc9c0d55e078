"""The first step of the certified protocol as whole jobs: a party's class sums, and the server's directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mixveil.core import files
from mixveil.core.watching import Warn, Watch, unheard, unwatched
from mixveil.core.wording.notes import Note
from mixveil.data.opening import DataOptions, DataSpec
from mixveil.encoders.calibration import meaningless
from mixveil.features import projection as projections
from mixveil.features.opening import FeatureOptions
from mixveil.features.projection import Projection
from mixveil.releases import accounting, sums
from mixveil.releases.encode import stream_for
from mixveil.releases.ledger import Ledger
from mixveil.releases.records import check_output
from mixveil.releases.spending import Standing
from mixveil.releases.sums import Sums


@dataclass(frozen=True)
class Summed:
    """Class sums that were released, for their owner's eyes.

    Attributes:
        folder: Where they lie.
        sums: What leaves.
        warnings: What their owner should know.
        standing: What the ledger says of these records now.
    """

    folder: Path
    sums: Sums
    warnings: tuple[Note, ...]
    standing: Standing


def statistics(
    data: DataSpec,
    out: Path | str,
    *,
    projection: Path | str,
    mu: float,
    party: str = "party",
    recipient: str | None = None,
    budget: float | None = None,
    label_epsilon: float | None = None,
    label_budget: float | None = None,
    seed: int | None = None,
    options: DataOptions | None = None,
    cache: Path | str | None = None,
    ledger: Ledger | None = None,
    watch: Watch = unwatched,
    warn: Warn = unheard,
) -> Summed:
    """Release the noisy class sums of data through a public projection, every record (every unit) μ-GDP, labels
    excluded. Arguments are those of `mixveil.encode`."""
    out, options, ledger = Path(out), options or DataOptions(), ledger or Ledger()
    check_output(out, party)
    stream = stream_for(seed)
    images = options.open(data)
    owners = accounting.owners_of(ledger, images, watch)
    features = FeatureOptions(options, cache, watch)
    rows, digest, told = features.open_projected(images, Path(projection), certified=True, seeded=seed is not None)
    warnings = [
        *rows.warnings(),
        *told,
        *accounting.earlier_statistics(ledger, rows.projection, party),
        *accounting.copies(owners),
        *accounting.labels_were_shown(ledger, owners, label_epsilon),
        *meaningless(mu),
    ]
    for item in warnings:
        warn(item)
    with watch("sums", len(rows)) as step:
        written = sums.write_statistics(
            out,
            rows,
            digest,
            mu,
            party=party,
            stream=stream,
            label_epsilon=label_epsilon,
            recipient=recipient,
            budget=budget,
            label_budget=label_budget,
            owners=owners,
            ledger=ledger,
            progress=step,
        )
    return Summed(out, written, tuple(warnings), ledger.standing(owners))


@dataclass(frozen=True)
class Directions:
    """A projection onto the directions in which the classes differ.

    Attributes:
        path: The file.
        sha256: Its digest.
        projection: What it holds.
        base: How many directions the statistics were in.
    """

    path: Path
    sha256: str
    projection: Projection
    base: int


def directions(folders: Sequence[Path | str], out: Path | str, *, projection: Path | str) -> Directions:
    """Find the directions in which the classes differ, from all parties' statistics: a projection for their records.

    projection: the file of the one that the statistics went through."""
    path = Path(out)
    files.check_new(path)
    base, digest = projections.read(Path(projection))
    narrow = sums.directions([sums.read_statistics(Path(folder)) for folder in folders], base, digest)
    return Directions(path, projections.write(path, narrow), narrow, base.dimension)
