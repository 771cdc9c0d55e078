"""Making a challenge: private images are drawn, an encoder is set up for them, and each is encoded several times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mixveil.audit.challenge import MOST_IMAGES, PublicImages, check_size
from mixveil.audit.challenge_truth import ChallengeTruth, extra
from mixveil.core import randomness
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import Batch, Calibration, Encoder, Target, Trace
from mixveil.core.watching import Watch, unwatched
from mixveil.core.wording.notes import Note, note
from mixveil.data.covers import KEYPOINTS, Patches
from mixveil.data.images import Images
from mixveil.data.opening import DataOptions, DataSpec, open_both
from mixveil.encoders import calibration as calibrations
from mixveil.encoders.grid import stored_dtype
from mixveil.releases.encode import PatchesAsked, Source, check_public, chosen_target, configured, stream_for
from mixveil.releases.kinds.records import RecordSettings
from mixveil.releases.records import traced_in_memory

_OF_LEARNING = {"classes-drowned"}  # what a calibration says of training on rows: a challenge is not trained on


@dataclass(frozen=True)
class PreparedChallenge:
    """A challenge before anything is encoded.

    Attributes:
        rows: The private images that were drawn.
        numbers: (n,) which rows of the data they are.
        encoder: Ready, with all its settings.
        covers: The public patches that are mixed in, if any.
        notes: What the owner should know.
    """

    id: str
    rows: Images
    numbers: Tensor
    encodings: int
    encoder: Encoder
    covers: Patches | None
    target: Target | None
    public: PublicImages | None
    stream: Stream
    notes: tuple[Note, ...]

    @property
    def settings(self) -> RecordSettings:
        return RecordSettings(self.encoder, self.rows.shape)


def prepare(
    data: DataSpec,
    *,
    encoder: str,
    settings: dict[str, Any],
    images: int,
    encodings: int,
    mu: float | None,
    tau: float | None,
    calibration: Calibration | None,
    clip: float | None,
    public: DataSpec | None,
    patches: int | None,
    keypoints: int | None,
    seed: int | None,
    options: DataOptions,
    watch: Watch,
) -> PreparedChallenge:
    """Draw the images, and calibrate the encoder for them. settings: of the encoder, by their names in `encode`."""
    target, scheme = chosen_target(mu, tau, calibration), configured(encoder, settings)
    cut = PatchesAsked(patches, keypoints, settings.get("c2"))
    check_public(scheme, target, clip, public, cut, pixels=True)
    if not 2 <= images <= MOST_IMAGES:
        raise ArgumentError(f"images must be in 2…{MOST_IMAGES:,}, got {images:,}")
    stream = stream_for(seed)
    whole, known = open_both(data, public, options)
    if whole.units is not None:
        raise ArgumentError("a challenge is of single images: leave the units out")
    if len(whole) < images:
        raise ArgumentError(f"images = {images}: the data have {len(whole):,}; ask for fewer, or give more data")
    numbers = stream.fork("images").permutation(len(whole))[:images]
    drawn = whole.part(numbers)
    if covered := scheme.public_use == "covers" and known is not None:
        source = cut.source(drawn, known, stream.fork("patches"), watch)
    else:
        source = Source(drawn, known)
    ready, _, told = calibrations.calibrate(
        scheme,
        target,
        drawn,
        public=source.public,
        clip=clip,
        covers=None if source.covers is None else len(source.covers),
        stream=stream.fork("facts"),
        watch=watch,
    )
    check_size(images, encodings, RecordSettings(ready, drawn.shape), len(drawn.classes))
    mixed_in = None
    if known is not None:
        least = KEYPOINTS if keypoints is None else keypoints
        how = (len(source.covers), least) if source.covers is not None else (None, None)
        mixed_in = PublicImages(known.name, "covers" if covered else "facts", *how)
    notes = [note("challenge-images-shown", images=images), *source.notes]
    notes += [item for item in told if item.code not in _OF_LEARNING]
    notes += [note("challenge-seeded")] if seed is not None else []
    return PreparedChallenge(
        randomness.release_id(), drawn, numbers, encodings, ready, source.covers, target, mixed_in, stream, tuple(notes)
    )


def encoded(prepared: PreparedChallenge, watch: Watch = unwatched) -> tuple[Batch, ChallengeTruth]:
    """All rows, in one random order, and the truth about them. Every encoding has its own plan and its own draws."""
    rows, stream, n = prepared.rows, prepared.stream, len(prepared.rows)
    count = n * prepared.encodings
    place = stream.fork("order").permutation(count)
    x = torch.empty(count, *rows.shape, dtype=stored_dtype(prepared.encoder.index_bound))
    drawn: dict[str, Tensor] = {"y": torch.empty(count, len(rows.classes))}
    table = None
    with watch("encoding", count) as step:
        for number, here in enumerate(torch.split(place, n)):
            release, trace = traced_in_memory(
                rows,
                prepared.encoder,
                (),
                party="challenge",
                stream=stream.fork("encoding"),
                covers=prepared.covers,
            )
            (batch,) = release.payload.shards
            x[here] = batch.x
            table = trace.covers
            for name, values in {"y": batch.y, **_drawn(trace, n, number)}.items():
                if name not in drawn:
                    drawn[name] = torch.empty(count, *values.shape[1:], dtype=values.dtype)
                drawn[name][here] = values
            step(n)
    images = rows.take(torch.arange(n)).x.float()
    y, sources, weights = (drawn.pop(name) for name in ("y", "sources", "weights"))
    more = {"numbers": prepared.numbers, **drawn} | ({} if table is None else {"covers": table})
    return Batch(x, y), ChallengeTruth(images, rows.labels, sources, weights, more)


def _drawn(trace: Trace, n: int, number: int) -> dict[str, Tensor]:
    """What was drawn for the rows of one encoding, row i of image i."""
    members = torch.cat([torch.arange(n)[:, None], trace.partner], dim=1)
    public = members >= n
    found = {"sources": members.masked_fill(public, -1), "weights": trace.weight}
    if trace.covers is not None:
        found["patches"] = (members - n).masked_fill(~public, -1)
    return found | {"encoding": torch.full((n,), number)} | extra(trace.extra)
