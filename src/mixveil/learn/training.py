"""From releases to a model that a party can use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from mixveil.core.checkpoint import EVERY, Saved
from mixveil.core.errors import ArgumentError, MismatchError, TrainingError
from mixveil.core.types import Progress, Release
from mixveil.features.extractor import Extractor
from mixveil.features.projection import Projection
from mixveil.learn import discriminant
from mixveil.learn.batches import Released
from mixveil.learn.class_means import check_together
from mixveil.learn.distributed import ALONE, Group
from mixveil.learn.fit import TrainingRecipe, fit
from mixveil.learn.layers import Layers
from mixveil.releases.reading import read_release
from mixveil.theory import gdp


@dataclass(frozen=True)
class TrainedOn:
    """A release that a model was trained on.

    Attributes:
        id: of the release.
        party: the party that sent it.
        kind: `records`, `sums` or `updates`.
        rows: how many records it was made of.
        mu: the μ that it promises a unit; None where it promises nothing.
        unit_rows: the most rows that a unit has.
        label_epsilon: ε of randomised labels; None where labels are shown.
    """

    id: str
    party: str
    kind: str
    rows: int
    mu: float | None
    unit_rows: int = 1
    label_epsilon: float | None = None


@dataclass(frozen=True)
class Trained:
    """A trained head on features.

    Attributes:
        layers: the head.
        how: which head, and how it was trained.
        classes: the names of the classes.
        extractor: the features that the head takes.
        weights: the digest of the extractor's networks; None for pixels.
        projection: the digest of the projection of the releases; None where there is none.
        sources: the releases.
        spent: μ of each party's records over all that it sent for this model; None where a release promises nothing.
        label_epsilon: the same for labels; None where labels were shown.
        units: whether every promise is to units of several rows, not to records.
    """

    layers: Layers
    how: Mapping[str, Any]
    classes: tuple[str, ...]
    extractor: Extractor
    weights: str | None
    projection: str | None
    sources: tuple[TrainedOn, ...]
    spent: Mapping[str, float | None]
    label_epsilon: Mapping[str, float | None]
    units: bool

    @property
    def together(self) -> float | None:
        """μ of a record, or of a unit, that all these parties have: √Σμ². No release shows whether there is one."""
        return _all(list(self.spent.values()), gdp.compose)


ProjectionWithDigest = tuple[Projection, str]
"""A projection and its digest."""


@dataclass(frozen=True)
class Job:
    """The releases that one model is trained on: records that belong together, or statistics."""

    releases: tuple[Release, ...]
    sums: tuple[Release, ...]
    projection: ProjectionWithDigest | None

    @property
    def rows(self) -> int:
        return sum(len(release) for release in self.releases) + sum(part.envelope.rows for part in self.sums)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.releases[0].classes if self.releases else self.sums[0].classes

    @property
    def inputs(self) -> int:
        """How many features of an image the model takes."""
        if self.projection is not None:
            return self.projection[0].mean.numel()
        return torch.Size(self.releases[0].shape).numel()

    @property
    def extractor(self) -> Extractor:
        if self.projection is not None:
            return self.projection[0].extractor
        return self.releases[0].extractor or Extractor()

    @property
    def weights(self) -> str | None:
        """The digest of the extractor's networks; None for pixels."""
        return self.releases[0].assets.get("features") if self.projection is None else self.projection[0].weights


def opened(folders: Sequence[Path], projection: ProjectionWithDigest | None = None) -> Job:
    """Open releases, and refuse those that do not belong together. projection: the one they went through."""
    if not folders:
        raise ArgumentError("no release is given")
    releases = tuple(read_release(folder) for folder in folders)
    kinds = {release.envelope.kind for release in releases}
    if kinds == {"records"}:
        _check_together(releases, projection)
        return Job(releases, (), projection)
    if kinds != {"sums"}:
        raise MismatchError("train on records or on statistics, not on both: statistics find directions for records")
    if projection is None:
        raise ArgumentError("statistics went through a projection: give it with --projection")
    check_together(releases, *projection)
    return Job((), releases, projection)


def train(job: Job, *, progress: Progress = lambda _: None) -> Trained:
    """Train the noise-aware discriminant on a job."""
    projection = _projection(job)
    try:
        if job.sums:
            head = discriminant.from_sums(job.sums)
        else:
            head = discriminant.from_records(job.releases, projection, progress=progress)
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise TrainingError(f"these releases have no discriminant: {error}") from None
    if not (bool(head.weight.isfinite().all()) and bool((head.bias < torch.inf).all())):
        raise TrainingError("the discriminant is not finite: a release has values that are too large or too small")
    how = {"head": "discriminant", "covariance_dropped": head.dropped}
    return _trained(Layers.of(head, projection), how, job)


def train_mlp(
    job: Job,
    *,
    recipe: TrainingRecipe,
    group: Group = ALONE,
    state: Path | None = None,
    every: float = EVERY,
    progress: Progress = lambda _: None,
    note: Callable[[str], None] = lambda text: None,
    stop: Callable[[], bool] = lambda: False,
) -> Trained:
    """Train the paper's classifier on the records of a job.

    state: the file for the state of the training, written every `every` seconds, from which it continues after a kill.
    The caller removes it (`checkpoint.discard`) once the model is written. note, stop: as in `fit`.
    """
    check_mlp(job)
    source = Released(job.releases, group.device)
    about = {"head": "mlp", **asdict(recipe), "rows": source.rows, "device": group.device.type, "processes": group.size}
    on = {**about, "releases": [release.id for release in job.releases]}
    on.pop("processes")  # the result does not depend on their number
    saved = None if state is None else Saved(state, on, every)
    model = fit(source, recipe, group=group, saved=saved, progress=progress, note=note, stop=stop)
    layers = model.layers()
    if not all(bool(tensor.isfinite().all()) for layer in layers.layers for tensor in layer):
        raise TrainingError("the trained layers are not finite: use a smaller learning rate")
    layers.layers[-1][1][~source.classes_present] = -torch.inf  # no party has this class
    return _trained(layers.after(_projection(job)), about, job)


def check_mlp(job: Job) -> None:
    if job.sums:
        raise ArgumentError("the head mlp is trained on records, not on statistics")


def _check_together(releases: Sequence[Release], projection: ProjectionWithDigest | None) -> None:
    """Refuse releases with different preparations or classes."""
    digest = None if projection is None else projection[1]
    first = releases[0]
    for release in releases:
        made_with = release.assets.get("projection")
        if made_with != digest:
            raise MismatchError(
                f"release {release.id[:8]} of {release.party} went through "
                f"{'no projection' if made_with is None else f'the projection {made_with[:8]}'}, not through "
                f"{'none' if digest is None else digest[:8]}: give its own with --projection"
            )
        if release.assets != first.assets or release.extractor != first.extractor:
            raise MismatchError(
                f"{release.party} has features of {release.extractor or 'no network'}, {first.party} of "
                f"{first.extractor or 'no network'}, or of other weights: they do not belong together"
            )
        if release.classes != first.classes or release.shape != first.shape:
            raise MismatchError(
                f"{release.party} and {first.party} do not have the same classes in the same order, of the same shape"
            )
    if projection is not None:
        _check_against(releases, projection[0])
    if len({release.id for release in releases}) != len(releases):
        raise MismatchError("the same release is given twice: it would count twice")


def _check_against(releases: Sequence[Release], projection: Projection) -> None:
    """Refuse records that the projection cannot have made, and records of a party that sent no statistics."""
    parties = {used.party for used in projection.spent}
    for release in releases:
        clip = projection.clip if release.encoder.clip is None else release.encoder.clip
        if release.shape != (projection.dimension,) or clip > projection.clip * (1 + 1e-6):
            raise MismatchError(
                f"release {release.id[:8]} of {release.party} has rows of {release.shape} clipped to {clip:g}, its "
                f"projection has ({projection.dimension},) clipped to {projection.clip:g}"
            )
        if projection.classes and release.classes != projection.classes:
            raise MismatchError(f"{release.party} does not have the classes of the statistics, in the same order")
        if parties and release.party not in parties:
            raise MismatchError(
                f"{release.party} sent records, but no statistics under that name: their total cost is not known"
            )


def _projection(job: Job) -> Projection | None:
    return None if job.projection is None else job.projection[0]


def _sources(job: Job) -> tuple[TrainedOn, ...]:
    rows = [*(len(release) for release in job.releases), *(part.envelope.rows for part in job.sums)]
    return tuple(
        TrainedOn(r.id, r.party, r.envelope.kind, n, r.mu, r.unit_rows, None if r.reproducible else r.label_epsilon)
        for r, n in zip((*job.releases, *job.sums), rows, strict=True)
    )


def _trained(layers: Layers, how: Mapping[str, Any], job: Job) -> Trained:
    absent = layers.layers[-1][1] == -torch.inf  # classes of no party
    finite = all(bool(tensor.isfinite().all()) for weight, bias in layers.layers[:-1] for tensor in (weight, bias))
    weight, bias = layers.layers[-1]
    if not finite or not bool(weight.isfinite().all()) or not bool((bias.isfinite() | absent).all()):
        raise TrainingError("the trained layers are not finite: a release has values that are too large or too small")
    found, digest = job.projection or (None, None)
    sources = _sources(job)
    earlier = [
        TrainedOn(used.id, used.party, "sums", 0, used.mu or None, used.unit_rows, used.label_epsilon)
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
        layers=layers,
        how=how,
        classes=job.classes,
        extractor=job.extractor,
        weights=job.weights,
        projection=digest,
        sources=sources,
        spent=spent,
        label_epsilon=labels,
        units=all(item.unit_rows > 1 for item in everything),
    )


def _all(figures: list[float | None], total: Callable[[list[float]], float]) -> float | None:
    """The total of all figures; None where one is missing."""
    known = [figure for figure in figures if figure is not None]
    return total(known) if len(known) == len(figures) else None
