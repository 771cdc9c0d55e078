"""The audit of an owner's own releases of representations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mixveil.audit import representations
from mixveil.audit.found import Audit
from mixveil.audit.own_data import AuditedKind, OwnReleases, public_whole
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.core.wording.notes import Note
from mixveil.features.split.half import Half, read_half
from mixveil.releases.representations import check_takes


def audited(own: OwnReleases, *, client: Half | Path | str | None) -> AuditedKind:
    """Attack releases of representations. client: as for `mixveil.audit`."""
    if client is None:
        raise ArgumentError("client: these releases hold representations; give the client half that made them (client)")
    half = client if isinstance(client, Half) else read_half(client, "client")
    representations.check_client(own.releases, half)  # before public data are compared with these
    check_takes(half, own.images)
    known = public_whole(own.public, own.images)  # membership is not measured: no image is kept as a stranger
    perceptual, more = own.perceptual(own.images.shape)
    found = representations.audit(
        own.releases,
        own.images,
        client=half,
        public=known,
        names=own.attacks,
        profile=own.profile,
        stream=SeededStream(own.seed),
        watch=own.watch,
        perceptual=perceptual,
        cache=own.training,
    )
    return AuditedKind(_without_strangers(found), None, more)


def _without_strangers(found: Audit) -> Audit:
    """The same; attacks that lack public images do not say that this audit keeps some as strangers: it keeps none."""
    attacks = tuple(replace(run, why=None if run.why is None else _told(run.why)) for run in found.attacks)
    verdict, warnings = (tuple(_told(each) for each in notes) for notes in (found.verdict, found.warnings))
    return replace(found, attacks=attacks, verdict=verdict, warnings=warnings)


def _told(told: Note) -> Note:
    inside = {name: _told(value) if isinstance(value, Note) else value for name, value in told.figures.items()}
    return Note("too-few-public-images" if told.code == "too-few-public-rows" else told.code, inside)
