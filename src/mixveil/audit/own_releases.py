"""The whole job of an audit: an owner's own releases, and the data that they were made of, as their owner names them.

What would make an audit say that all is well where it is not (other data, a changed manifest, public data that are not
like the private ones) is refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mixveil.attacks.shared.training import TrainingCache
from mixveil.audit import auditing
from mixveil.audit import sweep as sweeps
from mixveil.audit.auditing import PROFILES, most_rows
from mixveil.audit.sweep import Ready, Sweep, Swept
from mixveil.audit.thumbnails import SmallImages
from mixveil.audit.verdict import Audit
from mixveil.core import checks
from mixveil.core.errors import ArgumentError, FalseClaimError, MismatchError
from mixveil.core.files import read_small
from mixveil.core.randomness import SeededStream
from mixveil.core.strict_json import MANIFEST_LIMIT
from mixveil.core.types import Dataset, Release, View
from mixveil.core.watching import Warn, unheard
from mixveil.core.wording.notes import Note, note
from mixveil.data.images import Images
from mixveil.data.opening import DataOptions, DataSpec
from mixveil.data.row_views import Subset
from mixveil.encoders.calibration import check_same_kind
from mixveil.features import lpips
from mixveil.features.cache import Features, cache_folder
from mixveil.features.lpips import Lpips
from mixveil.features.opening import FeatureOptions
from mixveil.features.projection import Projected
from mixveil.releases import accounting
from mixveil.releases.envelope import MANIFEST
from mixveil.releases.ledger import Ledger
from mixveil.releases.reading import read_release
from mixveil.releases.traces import load_trace, recorded_manifest

_MOST_OTHERS = 5000

Rows = Images | Features | Projected


@dataclass(frozen=True)
class Audited:
    """An audit of an owner's own releases, for the owner's eyes only. swept: the same at other settings, where a sweep
    was asked for; seed: of the attacks' own draws."""

    audit: Audit
    swept: Swept | None
    seed: int


def audit(
    releases: Sequence[Path | str],
    truth: DataSpec,
    *,
    public: DataSpec | None = None,
    attacks: Sequence[str] | None = None,
    profile: str = "quick",
    sweep: Sweep | str | None = None,
    seed: int = 0,
    steps: int | None = None,
    projection: Path | str | None = None,
    covers: DataSpec | None = None,
    options: DataOptions | None = None,
    cache: Path | str | None = None,
    ledger: Ledger | None = None,
    watch: Callable[[str], None] = lambda _: None,
    tell: Warn = unheard,
) -> Audited:
    """Attack your own releases in every way known here. `mixveil.write_report` makes the page, which only you should
    see.

    Of a certified release this is for knowing, not for choosing: to decide by it whether to send, or at which μ, would
    tell of the records, and void the certificate. A release for τ is not certified: look first, then decide.

    Args:
        releases: The folders of one release, or of several of the same data.
        truth: The data that they were made of.
        public: Similar data that an attacker may hold; half of them are the non-members.
        attacks: Names of those to run. Else all; those that train a network only with the profile `full`.
        profile: `quick`, or `full`, which tries more and trains networks.
        sweep: Curves, as `mu=1,2`: the same attacks on the data encoded at other settings, in memory.
        seed: Of the attacks' own draws, and of a sweep's encodings.
        steps: Attacks that train a network take at most so many: for machines without a GPU. They get less far then.
        projection: The file of the projection that the releases went through.
        covers: The public images that mixup or instahide mixed in; the attacker holds the very patches.
        watch, tell: Are told what is being done, and what a sweep will cost.
    """
    options, ledger = options or DataOptions(), ledger or Ledger()
    if steps is not None:
        checks.at_least("steps", steps, 1)
    asked = Sweep.parse(sweep) if isinstance(sweep, str) else sweep
    folders = [Path(folder) for folder in releases]
    opened = tuple(read_release(folder) for folder in folders)
    if not opened:
        raise ArgumentError("releases: none is given")
    images = options.open(truth)
    shown = None if public is None else options.for_others.open(public)
    owners = accounting.known_owners(ledger, images)
    data, similar = _attacked(opened, images, shown, projection, FeatureOptions(options, cache))
    known, others = _public(similar, data)
    _check_manifests(folders, opened, ledger)
    accounting.check_made_of(ledger, opened, owners)
    view, told = _view(opened, known, ledger)
    perceptual, unmeasured = _perceptual(data.shape, options)
    pictures = None
    if data is not images:
        view, pictures = replace(view, pictures=None if shown is None else SmallImages(_known_half(shown))), images
    ready = None if asked is None else _prepared(asked, opened, data, profile, seed, tell)
    attack = partial(
        auditing.audit,
        others=others,
        names=attacks,
        profile=profile,
        perceptual=perceptual,
        covers=None if covers is None else options.for_others.open(covers),
        unit="unit" if options.unit is None else options.unit,
        cache=TrainingCache(cache_folder() if cache is None else Path(cache), steps, watch=watch),
    )
    found = attack(view, data, stream=SeededStream(seed), pictures=pictures, watch=watch)
    swept = None
    if asked is not None and ready is not None:
        swept = sweeps.run(asked, ready, found, data, attack, seed=seed, pictures=pictures, watch=watch)
    certified = any(release.certified for release in opened) or (asked is not None and asked.name == "mu")
    more = list(unmeasured)
    if owners is not None:  # of all releases of these records: this audit saw only those it was given
        more.append(note("in-all", spent=accounting.spent_note(ledger.standing(owners))))
    more += [note("for-knowing")] if certified else []
    found = replace(found, warnings=(*found.warnings, *told), verdict=(*found.verdict, *more))
    return Audited(found, swept, seed)


def _attacked(
    opened: tuple[Release, ...],
    images: Images,
    public: Images | None,
    projection: Path | str | None,
    features: FeatureOptions,
) -> tuple[Rows, Rows | None]:
    """The rows that the releases were made of, and public rows like them: pixels, features, or projected features."""
    if projection is not None:
        data, digest, _ = features.open_projected(images, Path(projection), certified=False)
        if any(release.assets.get("projection") != digest for release in opened):
            raise MismatchError(f"{projection} is not the projection that these releases went through")
        if public is None:
            return data, None
        return data, features.open_projected(public, Path(projection), certified=False)[0]
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


def _check_manifests(folders: Sequence[Path], opened: tuple[Release, ...], ledger: Ledger) -> None:
    """Refuse a manifest that is not the one that was written here: the owner did not state its figures."""
    for folder, release in zip(folders, opened, strict=True):
        written = recorded_manifest(release.id, ledger.folder)
        if written is None:
            continue
        if written != sha256(read_small(folder / MANIFEST, MANIFEST_LIMIT)).hexdigest():
            raise FalseClaimError(f"{folder}: its manifest was changed since it was written here; do not send it")


def _public(public: Rows | None, data: Dataset) -> tuple[Subset | None, Tensor | None]:
    """Public data in two halves: what the attacker knows, and images that are not in the release."""
    if public is None:
        return None, None
    check_same_kind(data, public)
    half = len(public) // 2
    if half < 2:
        raise ArgumentError(f"{len(public)} rows are too few for public data")
    strange = torch.arange(1, len(public), 2)
    some = torch.linspace(0, half - 1, min(half, len(data), _MOST_OTHERS)).long()
    return _known_half(public), public.take(strange[some]).x


def _known_half(public: Any) -> Subset:
    """Every other row of public data: sets are often sorted by class."""
    return Subset(public, torch.arange(0, len(public), 2))


def _view(opened: tuple[Release, ...], public: Subset | None, ledger: Ledger) -> tuple[View, list[Note]]:
    """All releases; but if the traces of some are lost, only those whose traces are here, and what to say of it."""
    traces = [load_trace(release.id, len(release.payload), ledger.folder) for release in opened]
    kept = [(release, trace) for release, trace in zip(opened, traces, strict=True) if trace is not None]
    if not kept:
        return View(opened, None, public), []
    lost = [release for release, trace in zip(opened, traces, strict=True) if trace is None]
    view = View(tuple(release for release, _ in kept), tuple(trace for _, trace in kept), public)
    return view, [note("release-left-out", release=release.id[:8]) for release in lost]


def _perceptual(shape: tuple[int, ...], options: DataOptions) -> tuple[list[Lpips], list[Note]]:
    """LPIPS by the networks whose files are there, for images; and a note on those that are not."""
    if len(shape) != 3 or shape[0] not in (1, 3):
        return [], []
    found = lpips.found(options.folder)
    missing = {net: known.file for net, known in lpips.KNOWN.items() if net not in found}
    told = [note("lpips-not-measured", nets=[*missing], files=[*missing.values()])]
    return [lpips.load(net, options.folder) for net in found], told if missing else []


def _prepared(sweep: Sweep, opened: tuple[Release, ...], data: Dataset, profile: str, seed: int, tell: Warn) -> Ready:
    """The encoders of all values; tells what the sweep will cost."""
    if len(opened) != 1:
        raise ArgumentError(f"a sweep varies one release, got {len(opened)}")
    ready = sweeps.calibrated(sweep, opened[0], data, seed=seed)
    figures = {"audits": len(sweep.values), "rows": min(len(data), most_rows(data, PROFILES[profile]))}
    if sweep.name == "releases":
        tell(note("sweep-cost-with-encodings", **figures, encodings=int(sum(sweep.values))))
    else:
        tell(note("sweep-cost", **figures))
    return ready
