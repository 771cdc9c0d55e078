"""The audit of an owner's own releases of records: pixels, features, or projected features, and sweeps of them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from mixveil.audit import auditing
from mixveil.audit import sweep as sweeps
from mixveil.audit.auditing import limits_of, most_rows
from mixveil.audit.own_data import AuditedKind, OwnReleases, known_half, public_halves
from mixveil.audit.sweep import Ready, Sweep
from mixveil.audit.thumbnails import SmallImages
from mixveil.core.errors import ArgumentError, MismatchError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Dataset, Release, View
from mixveil.core.watching import Warn
from mixveil.core.wording.notes import Note, note
from mixveil.data.images import Images
from mixveil.data.opening import DataSpec
from mixveil.data.row_views import Subset
from mixveil.features.cache import Features
from mixveil.features.opening import FeatureOptions
from mixveil.features.projection import Projected
from mixveil.releases.ledger import Ledger
from mixveil.releases.traces import load_trace

Rows = Images | Features | Projected


def audited(
    own: OwnReleases,
    *,
    sweep: Sweep | None = None,
    projection: Path | str | None = None,
    covers: DataSpec | None = None,
) -> AuditedKind:
    """Attack releases of records. sweep, projection, covers: as for `mixveil.audit`."""
    opened, images, options = own.releases, own.images, own.options
    data, similar = _attacked(opened, images, own.public, projection, FeatureOptions(options, own.cache))
    known, others = public_halves(similar, data)
    view, told = _view(opened, known, own.ledger)
    perceptual, more = own.perceptual(data.shape)
    pictures = None
    if data is not images:
        shown = None if own.public is None else SmallImages(known_half(own.public))
        view, pictures = replace(view, pictures=shown), images
    ready = None if sweep is None else _prepared(sweep, opened, data, own.profile, own.seed, own.tell)
    attack = partial(
        auditing.audit,
        others=others,
        names=own.attacks,
        profile=own.profile,
        perceptual=perceptual,
        covers=None if covers is None else options.for_others.open(covers),
        unit="unit" if options.unit is None else options.unit,
        cache=own.training,
    )
    audits = 1 if sweep is None else 1 + len(sweep.values)
    first = sweeps.part_of(own.watch, 0, audits)
    found = attack(view, data, stream=SeededStream(own.seed), pictures=pictures, watch=first, tell=own.tell)
    swept = None
    if sweep is not None and ready is not None:
        swept = sweeps.run(sweep, ready, found, data, attack, seed=own.seed, pictures=pictures, watch=own.watch)
    return AuditedKind(replace(found, warnings=(*found.warnings, *told)), swept, more)


def _attacked(
    opened: tuple[Release, ...],
    images: Images,
    public: Images | None,
    projection: Path | str | None,
    features: FeatureOptions,
) -> tuple[Rows, Rows | None]:
    """The rows that the releases were made of, and public rows like them: pixels, features, or projected features."""
    if projection is not None:
        data, digest, _ = features.open_projected(images, projection, certified=False)
        if any(release.assets.get("projection") != digest for release in opened):
            raise MismatchError(f"{projection} is not the projection that these releases went through")
        if public is None:
            return data, None
        return data, features.open_projected(public, projection, certified=False)[0]
    if any("projection" in release.assets for release in opened):
        raise MismatchError("these releases went through a projection: give it (projection)")
    extractor = opened[0].extractor
    if extractor is None:
        if any(release.extractor is not None for release in opened):
            raise MismatchError("some of these releases are of features and some of pixels: audit them apart")
        return images, public
    if len({release.assets.get("features") for release in opened}) > 1:
        raise MismatchError("these releases are not all of the same features: audit them apart")
    loaded, stated = features.load(extractor), opened[0].assets["features"]
    if loaded.digest != stated:
        raise MismatchError(
            f"the weights of {extractor} differ: these releases need those with the digest {stated[:8]}, those at hand "
            f"have {loaded.digest[:8]}"
        )
    return features.of(images, loaded), None if public is None else features.of(public, loaded)


def _view(opened: tuple[Release, ...], public: Subset | None, ledger: Ledger) -> tuple[View, list[Note]]:
    """All releases; but if the traces of some are lost, only those whose traces are here, and what to say of it."""
    traces = [load_trace(release.id, len(release.payload), ledger.folder) for release in opened]
    kept = [(release, trace) for release, trace in zip(opened, traces, strict=True) if trace is not None]
    if not kept:
        return View(opened, None, public), []
    lost = [release for release, trace in zip(opened, traces, strict=True) if trace is None]
    view = View(tuple(release for release, _ in kept), tuple(trace for _, trace in kept), public)
    return view, [note("release-left-out", release=release.id[:8]) for release in lost]


def _prepared(sweep: Sweep, opened: tuple[Release, ...], data: Dataset, profile: str, seed: int, tell: Warn) -> Ready:
    """The encoders of all values; tells what the sweep will cost."""
    if len(opened) != 1:
        raise ArgumentError(f"a sweep varies one release, got {len(opened)}")
    ready = sweeps.calibrated(sweep, opened[0], data, seed=seed)
    figures = {"audits": len(sweep.values), "rows": min(len(data), most_rows(data, limits_of(profile)))}
    if sweep.name == "releases":
        tell(note("sweep-cost-with-encodings", **figures, encodings=int(sum(sweep.values))))
    else:
        tell(note("sweep-cost", **figures))
    return ready
