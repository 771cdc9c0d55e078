"""From releases to a trained head, and what it costs the parties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
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
from mixveil.learn.image_head import ImageHead
from mixveil.learn.layers import Layers, layers_of
from mixveil.learn.sequence_head import SequenceHead
from mixveil.releases.kinds.records import RecordSettings
from mixveil.releases.kinds.sums import SumSettings
from mixveil.releases.reading import read_release
from mixveil.theory import gdp, shared_noise


@dataclass(frozen=True)
class TrainedOn:
    """A release that a model was trained on.

    Attributes:
        kind: Of its payload.
        rows: How many records it was made of.
        mu: The μ that it promises a unit; None where it promises nothing.
        unit_rows: The most rows of a unit; `ANY_ROWS` where a unit was clipped as a whole.
        label_epsilon: Of randomised labels; 0 where μ covers labels; None where labels are shown.
    """

    id: str
    party: str
    kind: str
    rows: int
    mu: float | None
    unit_rows: int = 1
    label_epsilon: float | None = None


TrainedHead = Layers | ImageHead | SequenceHead
"""Layers on features, a ResNet-18 on images, or a plain sequence of layers on images."""


@dataclass(frozen=True)
class Trained:
    """A trained head on features, or a network on images.

    Attributes:
        how: Which head, and how it was trained.
        extractor: The features that the head takes.
        weights: The digest of the extractor's networks; None for pixels.
        projection: The digest of the projection of the releases; None where there is none.
        spent: μ of each party's records over all that it sent for this model; None where a release promises nothing.
        label_epsilon: Σε of labels, beside what μ covers; 0 where μ covers all; None where labels were shown.
        covered: Whether the μ of any release covers labels too: label_epsilon says nothing of those.
        units: Whether every promise is to units of several rows, not to records.
        honest: How many honest parties share the noise that spent rests on; 1: each party added all of it.
        alone: Where noise is shared: μ of each party's records whatever the other parties do.
    """

    head: TrainedHead
    how: Mapping[str, Any]
    classes: tuple[str, ...]
    extractor: Extractor
    weights: str | None
    projection: str | None
    sources: tuple[TrainedOn, ...]
    spent: Mapping[str, float | None]
    label_epsilon: Mapping[str, float | None]
    units: bool
    covered: bool = False
    honest: int = 1
    alone: Mapping[str, float] = field(default_factory=dict)

    @property
    def layers(self) -> Layers:
        return layers_of(self.head)

    @property
    def together(self) -> float | None:
        """μ of a record, or of a unit, that all these parties have, whatever other parties do: √Σμ² of what each
        party's own noise promises. Noise that is shared covers the record once, and the record is in the sum several
        times (`theory.shared_noise`). No release shows whether there is such a record."""
        own = [None if mu is None else self._alone(party, mu) for party, mu in self.spent.items()]
        return _all(own, gdp.compose)

    def _alone(self, party: str, mu: float) -> float:
        """What a party's own noise promises its records."""
        return self.alone.get(party, mu if self.honest == 1 else shared_noise.alone(mu, self.honest))


ProjectionWithDigest = tuple[Projection, str]
"""A projection and its digest."""


@dataclass(frozen=True)
class Job:
    """The releases that one model is trained on: all of records, or all of class sums."""

    releases: tuple[Release, ...]
    projection: ProjectionWithDigest | None

    @property
    def of_sums(self) -> bool:
        return isinstance(self.releases[0].envelope.settings, SumSettings)

    @property
    def rows(self) -> int:
        return sum(release.envelope.rows for release in self.releases)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.releases[0].classes

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
    job = Job(tuple(read_release(folder) for folder in folders), projection)
    kinds = {type(release.envelope.settings) for release in job.releases}
    if kinds == {RecordSettings}:
        _check_together(job.releases, projection)
    elif others := [release for release in job.releases if release.envelope.kind not in ("records", "sums")]:
        raise MismatchError(
            f"release {others[0].id[:8]} holds {others[0].envelope.kind}: models are trained on records or statistics"
        )
    elif kinds != {SumSettings}:
        raise MismatchError("train on records or on statistics, not on both: statistics find directions for records")
    elif projection is None:
        raise ArgumentError("statistics went through a projection: give it with --projection")
    else:
        check_together(job.releases, *projection)
    return job


def train(job: Job, *, progress: Progress = lambda _: None) -> Trained:
    """Train the noise-aware discriminant on a job."""
    projection = _projection(job)
    try:
        if job.of_sums:
            head = discriminant.from_sums(job.releases)
        else:
            head = discriminant.from_records(job.releases, projection, progress=progress)
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise TrainingError(f"these releases have no discriminant: {error}") from None
    how = {"head": "discriminant", "covariance_dropped": head.dropped}
    return checked(Layers.of(head, projection), how, job)


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

    state: the file of the training's state, written every `every` seconds; the caller removes it (`checkpoint.discard`)
    once the model is written. note, stop: as in `fit`.
    """
    check_mlp(job)
    source = Released(job.releases, group.device)
    about = {"head": "mlp", **asdict(recipe), "rows": source.rows, "device": group.device.type, "processes": group.size}
    same = {**about, "releases": [release.id for release in job.releases]}
    same.pop("processes")  # the result does not depend on their number
    saved = None if state is None else Saved(state, same, every)
    layers = fit(source, recipe, group=group, saved=saved, progress=progress, note=note, stop=stop).layers()
    if not all(bool(tensor.isfinite().all()) for layer in layers.layers for tensor in layer):
        raise TrainingError("the trained layers are not finite: use a smaller learning rate")
    layers.layers[-1][1][~source.classes_present] = -torch.inf  # no party has this class
    return checked(layers.after(_projection(job)), about, job)


def check_mlp(job: Job) -> None:
    if job.of_sums:
        raise ArgumentError("the head mlp is trained on records, not on statistics")


def _check_together(releases: Sequence[Release], projection: ProjectionWithDigest | None) -> None:
    """Refuse releases with different preparations or classes."""
    digest = "none" if projection is None else projection[1]
    first = releases[0]
    for release in releases:
        if (used := release.assets.get("projection", "none")) != digest:
            raise MismatchError(
                f"release {release.id[:8]} of {release.party} went through the projection {used[:8]}, not through "
                f"{digest[:8]}: give its own with --projection"
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


def trained_on(release: Release) -> TrainedOn:
    stated = release.envelope
    costs = (stated.mu, stated.unit_rows, stated.label_cost)
    return TrainedOn(stated.id, stated.party, stated.kind, stated.rows, *costs)


def checked(layers: Layers, how: Mapping[str, Any], job: Job, before: Sequence[TrainedOn] = ()) -> Trained:
    """Trained layers with what they were trained on; layers that are not finite are refused."""
    weight, bias = layers.layers[-1]
    hidden = [tensor for layer in layers.layers[:-1] for tensor in layer]
    present = torch.where(bias == -torch.inf, 0.0, bias)  # −∞ marks a class of no party
    if not all(bool(tensor.isfinite().all()) for tensor in (*hidden, weight, present)):
        raise TrainingError("the trained layers are not finite: a release has values that are too large or too small")
    return described(layers, how, job, before)


def described(head: TrainedHead, how: Mapping[str, Any], job: Job, before: Sequence[TrainedOn] = ()) -> Trained:
    """A trained head with what it was trained on, and what that cost. before: what it had learnt from before the
    job."""
    projection, digest = job.projection or (None, None)
    sources = (*before, *map(trained_on, job.releases))
    earlier = [
        TrainedOn(used.id, used.party, SumSettings.name, 0, used.mu or None, used.unit_rows, used.label_epsilon)
        for used in (projection.spent if projection else ())
    ]
    everything = list({item.id: item for item in (*earlier, *sources)}.values())
    spent: dict[str, float | None] = {}
    labels: dict[str, float | None] = {}
    for party in sorted({item.party for item in everything}):
        own = [item for item in everything if item.party == party]
        spent[party] = _all([item.mu for item in own], gdp.compose)
        labels[party] = _all([item.label_epsilon for item in own], sum)
    units = all(item.unit_rows > 1 for item in everything)
    made = (head, how, job.classes, job.extractor, job.weights, digest)
    covered = any(item.label_epsilon == 0 for item in everything)
    return Trained(*made, sources, spent=spent, label_epsilon=labels, units=units, covered=covered)


def _all(figures: list[float | None], total: Callable[[list[float]], float]) -> float | None:
    """The total of all figures; None where one is missing."""
    known = [figure for figure in figures if figure is not None]
    return total(known) if len(known) == len(figures) else None
