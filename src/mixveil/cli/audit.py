"""`mixveil audit` and `mixveil report`: look at what an attacker gets."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mixveil.cli import _common, _spending, _sweep
from mixveil.cli._common import (
    AsJson,
    Cache,
    Classes,
    DataDir,
    Depth,
    Grey,
    ProjectionFile,
    Size,
    Unit,
    err,
    escape,
    number,
    out,
    print_json,
)
from mixveil.core.wording.notes import Note, note

if TYPE_CHECKING:
    from torch import Tensor

    from mixveil.audit.auditing import Audit
    from mixveil.core.types import Release, Trace, View
    from mixveil.data.opening import Images
    from mixveil.features.cache import Features
    from mixveil.features.extractor import Extractor
    from mixveil.features.lpips import Lpips
    from mixveil.releases.spending import Owners

Releases = Annotated[
    list[Path], typer.Argument(metavar="RELEASE…", help="One release, or several of the same data.", show_default=False)
]
Truth = Annotated[str, typer.Option("--truth", help="The data that the releases were made of: as DATA of encode.")]
PublicData = Annotated[
    str | None, typer.Option("--public", help="Similar data that an attacker may hold; half of them as non-members.")
]
Names = Annotated[
    str | None,
    typer.Option(
        "--attacks",
        help="Attacks to run, with commas between. Default: all; those that train a network only with --profile full.",
        show_default=False,
    ),
]
OutDir = Annotated[Path, typer.Option("--out", help="The folder to make, for your eyes only. It must not exist.")]

_MOST_OTHERS = 5000


def audit(
    releases: Releases,
    truth: Truth,
    out_dir: OutDir,
    public: PublicData = None,
    attacks: Names = None,
    profile: Annotated[
        Literal["quick", "full"], typer.Option("--profile", help="full tries more, and trains networks.")
    ] = "quick",
    sweep: _sweep.SweepOption = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the attacks' own draws, and of a sweep's encodings.")] = 0,
    data_dir: DataDir = None,
    size: Size = None,
    grey: Grey = False,
    depth: Depth = None,
    unit: Unit = None,
    classes: Classes = None,
    projection: ProjectionFile = None,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Attack your own release in every way known here, and write a report that only you should see.

    Of a certified release (--mu) this is for knowing, not for choosing: to decide by it whether to send, or at which μ,
    would tell of the records, and void the certificate. To choose, audit and sweep public data, in another
    state folder (MIXVEIL_STATE). A release for --tau is not certified: look first, then decide.
    """
    from functools import partial

    from mixveil.attacks.shared.training import TrainingCache
    from mixveil.audit import sweep as sweeps
    from mixveil.audit.auditing import audit as run
    from mixveil.core.errors import MismatchError
    from mixveil.core.files import check_new
    from mixveil.core.randomness import SeededStream
    from mixveil.data.opening import open_data
    from mixveil.features.cache import cache_folder
    from mixveil.releases.records import read_release
    from mixveil.releases.traces import load_trace
    from mixveil.report.audit_page import to_json, write_audit

    asked = _sweep.parsed(sweep)
    check_new(out_dir)
    opened = tuple(read_release(folder) for folder in releases)
    data: Any = open_data(
        truth, data_dir=data_dir, size=size, grey=grey, depth=depth, unit=unit, classes=_common.class_names(classes)
    )
    similar: Any = None if public is None else open_data(public, data_dir=data_dir, size=size, grey=grey, depth=depth)
    owners = _spending.known_owners(data)
    images, shown = data, similar
    if projection is not None:
        data, digest = _common.open_projected(data, projection, data_dir, cache, certified=False)
        if any(release.assets.get("projection") != digest for release in opened):
            raise MismatchError(f"{projection} is not the projection that these releases went through")
        if similar is not None:
            similar, _ = _common.open_projected(similar, projection, data_dir, cache, certified=False)
    elif any("projection" in release.assets for release in opened):
        raise MismatchError("these releases went through a projection: give it with --projection")
    elif (extractor := opened[0].extractor) is not None:
        data = _features(opened, extractor, data, data_dir, cache)
        similar = None if similar is None else _features(opened, extractor, similar, data_dir, cache)
    elif any(release.extractor is not None for release in opened):
        raise MismatchError("some of these releases are of features and some of pixels: audit them apart")
    known, others = _public(similar, data)
    _check_manifests(releases, opened)
    _check_owners(opened, owners)
    found_traces = [load_trace(release.id, len(release.payload)) for release in opened]
    view, left_out = _view(opened, found_traces, known)
    perceptual, unmeasured = _perceptual(data.shape, data_dir)
    of_features = data is not images
    if of_features:
        view = replace(view, pictures=_pictures(shown))
    ready = None if asked is None else _sweep.prepared(asked, opened, data, profile, seed)
    attack = partial(
        run,
        others=others,
        names=None if attacks is None else [name.strip() for name in attacks.split(",")],
        profile=profile,
        perceptual=perceptual,
        unit="unit" if unit is None else unit,
    )
    pictures = images if of_features else None
    swept = None
    with err.status("attacking") if err.is_terminal else _nothing() as status:

        def watch(name: str) -> None:
            if status:
                status.update(f"attacking: {name}")

        kept = cache_folder() if cache is None else cache
        attack = partial(attack, cache=TrainingCache(kept, watch=watch))
        found = attack(view, data, stream=SeededStream(seed), pictures=pictures, watch=watch)
        if asked is not None and ready is not None:
            swept = sweeps.run(asked, ready, found, data, attack, seed=seed, pictures=pictures, watch=watch)
    certified = any(release.certified for release in opened) or (asked is not None and asked.name == "mu")
    verdict = (*found.verdict, *unmeasured, *_counted(owners), *([note("for-knowing")] if certified else []))
    found = replace(found, warnings=(*found.warnings, *left_out), verdict=verdict)
    how = _provenance(seed)
    write_audit(out_dir, found, how, swept)
    if as_json:
        print_json({**to_json(found, how, swept), "report": str(out_dir / "report.html")})
        return
    show(found)
    if swept is not None:
        _sweep.show(swept)
    out.print(f"Report, private, for your eyes only: {escape(str(out_dir / 'report.html'))}", soft_wrap=True)


def _features(
    opened: tuple[Release, ...], extractor: Extractor, images: Images, data_dir: Path | None, cache: Path | None
) -> Features:
    """The features that all the releases say they are of. Other weights would make other ones."""
    from mixveil.core.errors import MismatchError

    if len({release.assets.get("features") for release in opened}) > 1:
        raise MismatchError("these releases are not all of the same features: audit them apart")
    loaded = _common.load_extractor(extractor, data_dir)
    stated = opened[0].assets["features"]
    if loaded.digest != stated:
        raise MismatchError(
            f"these releases are of features of {extractor} with the digest {stated[:8]}, and the weights at hand have "
            f"{loaded.digest[:8]}: they are others"
        )
    return _common.features_of(images, loaded, cache)


def _counted(owners: Owners | None) -> list[Note]:
    """What the ledger says of all releases of these records: this audit saw only those it was given."""
    return [] if owners is None else [note("in-all", spent=_spending.sentence(owners))]


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of an audit.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Make the page of an audit anew from its figures and pictures."""
    _common.look_at_json(folder / "audit.json", "an audit")
    from mixveil.report.audit_page import render

    page = render(folder)
    if as_json:
        print_json({"report": str(page)})
    else:
        out.print(escape(str(page)), soft_wrap=True)


def _check_manifests(folders: list[Path], opened: tuple[Release, ...]) -> None:
    """A manifest that is not the one that was written here is refused: its figures are somebody else's."""
    from hashlib import sha256

    from mixveil.core.errors import FalseClaimError
    from mixveil.core.files import read_small
    from mixveil.core.strict_json import MANIFEST_LIMIT
    from mixveil.releases.records import MANIFEST
    from mixveil.releases.traces import recorded_manifest

    for folder, release in zip(folders, opened, strict=True):
        written = recorded_manifest(release.id)
        if written is None:
            continue
        if written != sha256(read_small(folder / MANIFEST, MANIFEST_LIMIT)).hexdigest():
            raise FalseClaimError(f"{folder}: its manifest was changed since it was written here; do not send it")


def _check_owners(opened: tuple[Release, ...], owners: Owners | None) -> None:
    """The ledger knows whose the rows of a release are: an audit of other data would say that all is well."""
    import numpy as np

    from mixveil.core.errors import ArgumentError, WrongTruthError
    from mixveil.releases.ledger import Ledger

    for release in opened:
        made_of = None if owners is None else Ledger().owners_of(release.id)
        if made_of is None or owners is None:
            continue
        if len(made_of.records) != len(owners.records) or not np.array_equal(made_of.records, owners.records):
            same = int(np.isin(owners.records, made_of.records).sum())
            raise WrongTruthError(
                f"release {release.id[:8]} was made of other data, or in another order: {same:,} of these "
                f"{len(owners.records):,} images are among its {len(made_of.records):,}"
            )
        if owners.units is not None and made_of.units is not None and not np.array_equal(made_of.units, owners.units):
            raise ArgumentError(f"release {release.id[:8]} was made for other units than --unit says")


def _public(opened: Any, data: Any) -> tuple[Any, Tensor | None]:
    """Public data in two halves: what the attacker knows, and images that are not in the release."""
    import torch

    from mixveil.core.errors import ArgumentError

    if opened is None:
        return None, None
    if opened.shape != data.shape or (opened.low, opened.high) != (data.low, data.high):
        raise ArgumentError(
            f"the public data have the shape {opened.shape} and values in {opened.low:g}…{opened.high:g}, the private "
            f"ones {data.shape} and {data.low:g}…{data.high:g}"
        )
    half = len(opened) // 2
    if half < 2:
        raise ArgumentError(f"{len(opened)} rows are too few for public data")
    strange = torch.arange(1, len(opened), 2)
    return _known_half(opened), opened.take(
        strange[torch.linspace(0, half - 1, min(half, len(data), _MOST_OTHERS)).long()]
    ).x


def _known_half(opened: Any) -> Any:
    """Every other row of public data: sets are often sorted by class."""
    import torch

    from mixveil.data.row_views import Part

    return Part(opened, torch.arange(0, len(opened), 2))


def _pictures(images: Any) -> Any:
    """The images behind the features that the attacker knows."""
    from mixveil.audit.images_behind_features import SmallImages

    return None if images is None else SmallImages(_known_half(images))


def _view(opened: tuple[Release, ...], traces: list[Trace | None], public: Any) -> tuple[View, list[Note]]:
    """All releases; but if the traces of some are lost, only those whose traces are here, and what to say of it."""
    from mixveil.core.types import View

    kept = [(release, trace) for release, trace in zip(opened, traces, strict=True) if trace is not None]
    if not kept:
        return View(opened, None, public), []
    said = [
        note("release-left-out", release=release.id[:8])
        for release, trace in zip(opened, traces, strict=True)
        if trace is None
    ]
    return View(tuple(release for release, _ in kept), tuple(trace for _, trace in kept), public), said


def _perceptual(shape: tuple[int, ...], data_dir: Path | None) -> tuple[list[Lpips], list[Note]]:
    """LPIPS by the networks whose files are there, for images; and a note on those that are not."""
    if len(shape) != 3 or shape[0] not in (1, 3):
        return [], []
    from mixveil.data.opening import data_folder
    from mixveil.features import lpips

    folder = data_folder(data_dir)
    found = lpips.found(folder)
    missing = {net: known.file for net, known in lpips.KNOWN.items() if net not in found}
    said = [note("lpips-not-measured", nets=" and ".join(missing), files=" and ".join(missing.values()))]
    return [lpips.load(net, folder) for net in found], said if missing else []


def _provenance(seed: int) -> dict[str, Any]:
    from importlib.metadata import version

    import torch

    command = shlex.join(["mixveil", *sys.argv[1:]])
    return {"command": command, "mixveil": version("mixveil"), "torch": torch.__version__, "seed": seed}


def show(found: Audit) -> None:
    from rich.table import Table

    from mixveil.audit.figures import attack_title, caption
    from mixveil.audit.metrics.catalogue import METRICS

    left_out = {metric.code for metric in METRICS if not metric.brief}
    table = Table("attack", "figure", "mean", "worst", "knowing nothing", "ceiling")
    for row in found.figures:
        if row.metric in left_out:
            continue
        mean = f"[bold red]{number(row.mean)}[/]" if row.beaten else number(row.mean)
        figure = escape(str(caption(row.metric, row.of, row.know_nothing, found.unit)))
        table.add_row(
            attack_title(row.attack), figure, mean, number(row.worst), number(row.know_nothing), number(row.ceiling)
        )
    out.print(table)
    for item in found.attacks:
        if item.status != "ran":
            out.print(f"[dim]{item.attack}: {item.status}: {escape(str(item.why))}[/]", soft_wrap=True)
    for told in found.verdict:
        out.print(f"• {escape(str(told))}", soft_wrap=True)
    for warning in found.warnings:
        _common.warn(str(warning))


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()
