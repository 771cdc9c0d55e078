"""The whole jobs of a challenge: making one, with the page that is published, and scoring a guess, with a page for the
owner."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from safetensors.torch import save_file

from mixveil.audit import challenge_making
from mixveil.audit.challenge import CARD, ENCODINGS, PAGE, Challenge, ChallengeCard, parse, read_rows, read_text
from mixveil.audit.challenge_making import PreparedChallenge
from mixveil.audit.challenge_scoring import ImageScore, LinkageScore, read_guess, score_images, score_sources
from mixveil.audit.challenge_truth import TENSORS, TRUTH, ChallengeTruth, read_truth, truth_json
from mixveil.core import files
from mixveil.core.errors import ArgumentError
from mixveil.core.types import Batch, Calibration
from mixveil.core.watching import Warn, Watch, unheard, unwatched
from mixveil.core.wording.notes import Note
from mixveil.data.opening import DataOptions, DataSpec
from mixveil.releases import accounting
from mixveil.releases.envelope import File
from mixveil.releases.ledger import Entry, Ledger
from mixveil.report import challenge_pages

SCORE, SCORE_PAGE = "score.json", "score.html"


@dataclass(frozen=True)
class MadeChallenge:
    """A challenge that was made. folder: to publish; truth: to keep; card: what `challenge.json` says."""

    folder: Path
    truth: Path
    card: ChallengeCard
    warnings: tuple[Note, ...]


@dataclass(frozen=True)
class ChallengeScore:
    """What a guess is worth, for the owner's eyes. images, linkage: None where the guess says nothing of them; page:
    where the figures and pictures were written, if they were."""

    card: ChallengeCard
    images: ImageScore | None
    linkage: LinkageScore | None
    page: Path | None = None


def make_challenge(
    data: DataSpec,
    out: Path | str,
    *,
    truth: Path | str | None = None,
    encoder: str = "instahide",
    images: int = 100,
    encodings: int = 50,
    mu: float | None = None,
    tau: float | None = None,
    calibration: Calibration | None = None,
    alpha: float | None = None,
    noise: Literal["gaussian", "sphere"] | None = None,
    images_per_row: int | None = None,
    c1: float | None = None,
    c2: float | None = None,
    augmented: bool = False,
    patches: int | None = None,
    keypoints: int | None = None,
    clip: float | None = None,
    public: DataSpec | None = None,
    seed: int | None = None,
    options: DataOptions | None = None,
    ledger: Ledger | None = None,
    watch: Watch = unwatched,
    warn: Warn = unheard,
) -> MadeChallenge:
    """Make a challenge, so that others can try to break an encoder: a folder to publish, and one with the truth, to
    keep until the challenge is over. It is for images that may be shown: images of which the ledger has a release are
    refused, and the challenge is entered as one that promises nothing.

    Args:
        data: Where the private images are drawn from.
        out: The folder to publish. It must not exist.
        truth: The folder of the truth, which only you can read; else `out` with `.truth` at the end of its name.
        images, encodings: How many private images are drawn, and how many times each is encoded.
        encoder, mu, tau, calibration, clip, public: As in `encode`.
        alpha, noise, images_per_row, c1, c2, augmented, patches, keypoints: Settings of the encoder, as in `encode`.
        seed: For experiments only: an attacker who finds the seed has the truth.
        warn: Is told every warning before anything is entered or written.
    """
    out, ledger = Path(out), ledger or Ledger()
    hidden = out.with_name(f"{out.name}.truth") if truth is None else Path(truth)
    _check_apart(out, hidden)
    given = {"alpha": alpha, "noise": noise, "images_per_row": images_per_row, "c1": c1, "c2": c2}
    prepared = challenge_making.prepare(
        data,
        encoder=encoder,
        settings={**given, "augmented": augmented or None},
        images=images,
        encodings=encodings,
        mu=mu,
        tau=tau,
        calibration=calibration,
        clip=clip,
        public=public,
        patches=patches,
        keypoints=keypoints,
        seed=seed,
        options=options or DataOptions(),
        watch=watch,
    )
    owners = accounting.owners_of(ledger, prepared.rows, watch)
    accounting.check_never_released(ledger, owners)
    for item in prepared.notes:
        warn(item)
    row = prepared.settings.row_bytes(len(prepared.rows.classes))
    files.check_space(out, images * encodings * row)
    defence = prepared.encoder
    entry = Entry(
        prepared.id, accounting.CHALLENGE, "party", "everyone", defence.name, defence.sigma, None, None, None, images
    )
    with ledger.making(entry, owners):
        rows, answers = challenge_making.encoded(prepared, watch)
        ledger.confirm(prepared.rows, owners)
        card = _write(out, hidden, prepared, rows, answers)
    return MadeChallenge(out, hidden, card, prepared.notes)


def score_challenge(
    challenge: Path | str,
    truth: Path | str,
    guess: Path | str,
    *,
    out: Path | str | None = None,
    watch: Watch = unwatched,
) -> ChallengeScore:
    """Score a guess at a challenge.

    Args:
        challenge, truth: The two folders that `make_challenge` wrote. Folders of different challenges are refused.
        guess: A safetensors file with `images` (n, …) in the data's range, in any order; `sources` (rows, m) the
            private images of every row, numbered as you like from 0, −1 where it does not say; or both.
        out: A folder to make, for your eyes: `score.json`, and a page with images and guesses side by side.
    """
    folder, hidden, path = Path(challenge), Path(truth), Path(guess)
    target = None if out is None else Path(out)
    if target is not None:
        files.check_new(target)
    text = read_text(folder, CARD, "a challenge")
    card = parse(text)
    answers = read_truth(hidden, card, text)
    opened = Challenge(folder, card, read_rows(folder, card))
    guessed = read_guess(path, card)
    found, linked = None, None
    if guessed.images is not None:
        mirrors = card.settings.encoder.moved > 0
        found = score_images(guessed.images, answers.images, card.low, card.high, watch, mirrors=mirrors)
    if guessed.sources is not None:
        linked = score_sources(guessed.sources, answers)
    if target is None:
        return ChallengeScore(card, found, linked)
    whole = challenge_pages.score_json(card, found, linked)
    page = challenge_pages.score_page(whole, opened, answers, found, guessed.images)
    with files.atomic_folder(target, card.id[:8], 0o700) as made:
        files.write_file(made / SCORE, (json.dumps(whole, indent=2, allow_nan=False) + "\n").encode(), 0o600)
        files.write_file(made / SCORE_PAGE, page.encode(), 0o600)
    return ChallengeScore(card, found, linked, target / SCORE_PAGE)


def _check_apart(out: Path, hidden: Path) -> None:
    """Refuse folders that exist, and a truth that would be published."""
    shown, kept = out.resolve(), hidden.resolve()
    if kept.is_relative_to(shown):
        raise ArgumentError(f"truth = {hidden}: it would be published with {out}; choose a folder outside of it")
    if shown.is_relative_to(kept):
        raise ArgumentError(f"out = {out}: it lies inside {hidden}, which holds the truth; choose a folder outside")
    for folder in (out, hidden):
        files.check_new(folder)
        files.check_writable(folder)


def _write(out: Path, hidden: Path, prepared: PreparedChallenge, rows: Batch, answers: ChallengeTruth) -> ChallengeCard:
    """Write both folders, or neither. The truth is there first: a challenge without its truth could not be scored."""
    secret = answers.to_bytes(prepared.stream.fork("nonce").words(4))
    kept = False
    try:
        with files.atomic_folder(out, prepared.id[:8]) as shown:
            file = _write_rows(shown / ENCODINGS, rows)
            card = _card(prepared, answers, file, hashlib.sha256(secret).hexdigest())
            text = card.to_json()
            parse(text)  # what would be refused when read is not written
            files.write_file(shown / CARD, text.encode())
            files.write_file(shown / PAGE, challenge_pages.challenge_page(card, rows).encode())
            with files.atomic_folder(hidden, prepared.id[:8], 0o700) as own:
                files.write_file(own / TENSORS, secret, 0o600)
                files.write_file(own / TRUTH, truth_json(card, text, secret).encode(), 0o600)
            kept = True
    except BaseException:
        if kept and not out.exists():
            shutil.rmtree(hidden, ignore_errors=True)
        raise
    files.sync_folder(out.parent)
    return card


def _write_rows(path: Path, rows: Batch) -> File:
    """Write the encodings without holding them twice."""
    save_file({"x": rows.x, "y": rows.y}, path)
    path.chmod(0o644)
    with path.open("rb") as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return File(path.name, path.stat().st_size, digest, len(rows.y))


def _card(prepared: PreparedChallenge, answers: ChallengeTruth, file: File, digest: str) -> ChallengeCard:
    return ChallengeCard(
        id=prepared.id,
        settings=prepared.settings,
        classes=prepared.rows.classes,
        low=prepared.rows.low,
        high=prepared.rows.high,
        images=len(prepared.rows),
        encodings=prepared.encodings,
        private_per_row=answers.private_per_row,
        target=prepared.target,
        public=prepared.public,
        reproducible=prepared.stream.reproducible,
        file=file,
        truth_sha256=digest,
    )
