"""From releases to a model that a party can use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mixveil.errors import ArgumentError, MismatchError
from mixveil.extractor import Extractor
from mixveil.projection import Projection
from mixveil.release import read_release
from mixveil.statistics import Sums, check_together, is_statistics, read_statistics
from mixveil.theory import gdp
from mixveil.train import discriminant
from mixveil.train.linear import Linear
from mixveil.types import Progress, Release


@dataclass(frozen=True)
class Source:
    """A release that a model was trained on. mu: what its units were promised; None: nothing. unit_rows: the most rows
    that one unit has; label_epsilon: of randomised labels; None: they were shown."""

    id: str
    party: str
    kind: str
    rows: int
    mu: float | None
    unit_rows: int = 1
    label_epsilon: float | None = None


@dataclass(frozen=True)
class Trained:
    """A linear layer on features. spent: μ of each party's records over all that it sent for this model; None where
    something of it promised nothing; label_epsilon: the same of each record's label, None where one was shown; units:
    whether all of it was promised to units of several rows, and not to records. weights: the digest of the networks
    before it; projection: of the projection that the releases went through; dropped: how much of the private covariance
    was noise."""

    linear: Linear
    classes: tuple[str, ...]
    extractor: Extractor
    weights: str | None
    projection: str | None
    sources: tuple[Source, ...]
    spent: Mapping[str, float | None]
    label_epsilon: Mapping[str, float | None]
    units: bool
    dropped: float


def train(
    folders: Sequence[Path],
    projection: tuple[Projection, str] | None = None,
    *,
    progress: Progress = lambda _: None,
) -> Trained:
    """Train on releases of records, or of class sums, that belong together. projection: the one they went through, with
    its digest."""
    if not folders:
        raise ArgumentError("no release is given")
    kinds = {is_statistics(folder) for folder in folders}
    if len(kinds) > 1:
        raise MismatchError("train on records or on statistics, not on both: statistics find directions for records")
    if kinds == {True}:
        return _from_sums([read_statistics(folder) for folder in folders], projection)
    return _from_records([read_release(folder) for folder in folders], projection, progress)


def _from_sums(parts: Sequence[Sums], projection: tuple[Projection, str] | None) -> Trained:
    if projection is None:
        raise ArgumentError("statistics went through a projection: give it with --projection")
    check_together(parts, *projection)
    head = discriminant.from_sums(parts)
    sources = tuple(
        Source(
            part.id,
            part.party,
            "sums",
            sum(part.counts),
            part.mu,
            part.unit_rows,
            None if part.reproducible else part.label_epsilon,
        )
        for part in parts
    )
    return _trained(head, parts[0].classes, sources, projection)


def _from_records(
    releases: Sequence[Release], projection: tuple[Projection, str] | None, progress: Progress
) -> Trained:
    digest = None if projection is None else projection[1]
    for release in releases:
        made_with = release.assets.get("projection")
        if made_with != digest:
            raise MismatchError(
                f"release {release.id[:8]} of {release.party} went through "
                f"{'no projection' if made_with is None else f'the projection {made_with[:8]}'}, not through "
                f"{'none' if digest is None else digest[:8]}: give its own with --projection"
            )
        if release.classes != releases[0].classes or release.shape != releases[0].shape:
            raise MismatchError(
                f"{release.party} and {releases[0].party} do not have the same classes in the same order, of the same "
                f"shape"
            )
    if projection is not None:
        _check_against(releases, projection[0])
    if len({release.id for release in releases}) != len(releases):
        raise MismatchError("the same release is given twice: it would count twice")
    head = discriminant.from_records(releases, None if projection is None else projection[0], progress=progress)
    sources = tuple(
        Source(
            r.id,
            r.party,
            "records",
            len(r.payload),
            next((g.nominal for g in r.guarantees if g.name == "gdp"), None),
            getattr(r.encoder, "unit_rows", 1),
            None if r.reproducible else r.label_epsilon,
        )
        for r in releases
    )
    return _trained(head, releases[0].classes, sources, projection)


def _check_against(releases: Sequence[Release], projection: Projection) -> None:
    """Refuse records that their projection cannot have made, or whose statistics went by another name."""
    parties = {used.party for used in projection.spent}
    for release in releases:
        clip = getattr(release.encoder, "clip", None) or projection.clip
        if release.shape != (projection.dimension,) or clip > projection.clip * (1 + 1e-6):
            raise MismatchError(
                f"release {release.id[:8]} of {release.party} has rows of {release.shape} clipped to {clip:g}, its "
                f"projection has ({projection.dimension},) clipped to {projection.clip:g}"
            )
        if projection.classes and release.classes != projection.classes:
            raise MismatchError(f"{release.party} does not have the classes of the statistics, in the same order")
        if parties and release.party not in parties:
            raise MismatchError(
                f"{release.party} sent records, but no statistics under that name: what both cost together is not known"
            )


def _trained(
    head: discriminant.Discriminant,
    classes: tuple[str, ...],
    sources: tuple[Source, ...],
    projection: tuple[Projection, str] | None,
) -> Trained:
    found, digest = projection if projection is not None else (None, None)
    earlier = [
        Source(used.id, used.party, "sums", 0, used.mu or None, used.unit_rows, used.label_epsilon)
        for used in (found.spent if found else ())
    ]
    everything = list({item.id: item for item in (*earlier, *sources)}.values())
    spent: dict[str, float | None] = {}
    labels: dict[str, float | None] = {}
    for party in sorted({item.party for item in everything}):
        own = [item for item in everything if item.party == party]
        spent[party] = _all([item.mu for item in own], gdp.compose)
        labels[party] = _all([item.label_epsilon for item in own], sum)
    return Trained(
        linear=Linear.of(head, found),
        classes=classes,
        extractor=found.extractor if found else Extractor(),
        weights=found.weights if found else None,
        projection=digest,
        sources=sources,
        spent=spent,
        label_epsilon=labels,
        units=all(item.unit_rows > 1 for item in everything),
        dropped=head.dropped,
    )


def _all(figures: list[float | None], together: Callable[[list[float]], float]) -> float | None:
    """All figures together; None where one is missing."""
    known = [figure for figure in figures if figure is not None]
    return together(known) if len(known) == len(figures) else None
