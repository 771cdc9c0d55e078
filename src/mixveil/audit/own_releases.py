"""The whole job of an audit: an owner's own releases, and the data that they were made of, as their owner names them.

What would make an audit say that all is well where it is not (other data, a changed manifest, public data that are not
like the private ones) is refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from mixveil.audit import own_records, own_representations, own_updates
from mixveil.audit.found import Audit
from mixveil.audit.own_data import AuditedKind, OwnReleases
from mixveil.audit.sweep import Sweep, Swept
from mixveil.core import checks
from mixveil.core.errors import ArgumentError, FalseClaimError, MismatchError
from mixveil.core.files import as_paths, read_small
from mixveil.core.strict_json import MANIFEST_LIMIT
from mixveil.core.types import Release
from mixveil.core.watching import Observe, Warn, unheard, unobserved
from mixveil.core.wording.notes import note
from mixveil.data.images import Images
from mixveil.data.opening import DataOptions, DataSpec
from mixveil.features.split.half import Half
from mixveil.releases import accounting
from mixveil.releases.envelope import MANIFEST
from mixveil.releases.ledger import Ledger
from mixveil.releases.reading import read_release
from mixveil.releases.traces import recorded_manifest


class _Kind(NamedTuple):
    """The audit of releases of one kind, and the arguments that only such releases have. part: the rows of the data
    that the releases were made of."""

    audited: Callable[..., AuditedKind]
    takes: frozenset[str]
    part: Callable[[tuple[Release, ...], Images], Images] = lambda _, images: images


_KINDS = {
    "records": _Kind(own_records.audited, frozenset({"sweep", "projection", "covers"})),
    "representations": _Kind(own_representations.audited, frozenset({"client"})),
    "updates": _Kind(own_updates.audited, frozenset(), own_updates.trained_on),
}


@dataclass(frozen=True)
class Audited:
    """An audit of an owner's own releases, for the owner's eyes only. swept: the same at other settings, where a sweep
    was asked for; seed: of the attacks' own draws."""

    audit: Audit
    swept: Swept | None
    seed: int


def audit(
    releases: Sequence[Path | str] | Path | str,
    truth: DataSpec,
    *,
    public: DataSpec | None = None,
    client: Half | Path | str | None = None,
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
    watch: Observe = unobserved,
    tell: Warn = unheard,
) -> Audited:
    """Attack your own releases in every way known here. `mixveil.write_report` makes the page, which only you should
    see.

    Of a certified release this is for knowing, not for choosing: to decide by it whether to send, or at which μ, would
    tell of the records, and void the certificate. A release for τ is not certified: look first, then decide.

    Args:
        releases: The folders of one release, or of several of the same data.
        truth: The data that they were made of; of an update, of fewer rows the first.
        public: Similar data that an attacker may hold; of releases of records, half of them are the non-members.
        client: The client half that made representations, or its folder; attackers have it too.
        attacks: Names of those to run. Else all; those that train a network only with the profile `full`.
        profile: `quick`, or `full`, which tries more and trains networks.
        sweep: Curves, as `mu=1,2`: the same attacks on the data encoded at other settings, in memory.
        seed: Of the attacks' own draws, and of a sweep's encodings.
        steps: Attacks that train a network take at most so many: for machines without a GPU. They get less far then.
        projection: The file of the projection that the releases went through.
        covers: The public images that mixup or instahide mixed in; the attacker holds the very patches.
        watch: Is told what is being done, and how much of all is done.
        tell: Is told what the audit lacks and takes before it begins, and what each attack found when it has ended.
    """
    options, ledger = options or DataOptions(), ledger or Ledger()
    if steps is not None:
        checks.at_least("steps", steps, 1)
    asked = Sweep.parse(sweep) if isinstance(sweep, str) else sweep
    folders = as_paths(releases)
    opened = tuple(read_release(folder) for folder in folders)
    kind = _kind_of(opened)
    special = _taken(kind, {"sweep": asked, "projection": projection, "covers": covers, "client": client})
    _check_manifests(folders, opened, ledger)
    images = _KINDS[kind].part(opened, options.open(truth))
    shown = None if public is None else options.for_others.open(public)
    owners = accounting.known_owners(ledger, images)
    accounting.check_made_of(ledger, opened, owners)
    own = OwnReleases(opened, images, shown, options, ledger, attacks, profile, seed, steps, cache, watch, tell)
    found, swept, more = _KINDS[kind].audited(own, **special)
    if owners is not None:  # of all releases of these records: this audit saw only those it was given
        more = [*more, note("in-all", spent=accounting.spent_note(ledger.standing(owners)))]
    first, *rest = found.verdict
    if any(release.certified for release in opened):
        rest = [note("for-knowing"), *rest]
    elif asked is not None and asked.name == "mu":
        rest = [note("for-choosing"), *rest]
    return Audited(replace(found, verdict=(first, *rest, *more)), swept, seed)


def _kind_of(opened: Sequence[Release]) -> str:
    """The kind of all these releases."""
    kinds = sorted({release.envelope.kind for release in opened})
    if not kinds:
        raise ArgumentError("releases: none is given")
    if len(kinds) > 1:
        raise MismatchError(f"these releases are of different kinds, {' and '.join(kinds)}: audit them apart")
    if kinds[0] not in _KINDS:
        raise MismatchError(f"release {opened[0].id[:8]} holds {kinds[0]}, and audits are of {' or '.join(_KINDS)}")
    return kinds[0]


def _taken(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the arguments that releases of a kind have; any other that is given is refused."""
    for name, value in given.items():
        if value is not None and name not in _KINDS[kind].takes:
            others = next(other for other, known in _KINDS.items() if name in known.takes)
            raise ArgumentError(f"{name}: this is for releases of {others}, and these are of {kind}; leave it out")
    return {name: given[name] for name in sorted(_KINDS[kind].takes)}


def _check_manifests(folders: Sequence[Path], opened: tuple[Release, ...], ledger: Ledger) -> None:
    """Refuse a manifest that is not the one that was written here: the owner did not state its figures."""
    for folder, release in zip(folders, opened, strict=True):
        written = recorded_manifest(release.id, ledger.folder)
        if written is None:
            continue
        if written != sha256(read_small(folder / MANIFEST, MANIFEST_LIMIT)).hexdigest():
            raise FalseClaimError(f"{folder}: its manifest was changed since it was written here; do not send it")
