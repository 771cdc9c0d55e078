"""The first step of the certified protocol as whole jobs: a party's class sums, and the server's directions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mixveil.core.watching import Warn, Watch, unheard, unwatched
from mixveil.core.wording.notes import Note
from mixveil.data.opening import DataOptions, DataSpec
from mixveil.encoders.calibration import meaningless
from mixveil.features.opening import FeatureOptions
from mixveil.releases import accounting, sums
from mixveil.releases.encode import stream_for
from mixveil.releases.envelope import Envelope
from mixveil.releases.ledger import Ledger
from mixveil.releases.spending import Standing
from mixveil.releases.writing import check_output


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
    sums: Envelope
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
