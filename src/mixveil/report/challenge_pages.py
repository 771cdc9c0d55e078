"""The two pages of a challenge: what is published, and what a guess is worth."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, NamedTuple

from torch import Tensor

from mixveil.audit.challenge import CARD, ENCODINGS, RECOVERED, RULES, SCORED, Challenge, ChallengeCard
from mixveil.audit.challenge_scoring import ImageScore, LinkageScore
from mixveil.audit.challenge_truth import ChallengeTruth
from mixveil.audit.thumbnails import LARGEST, shrunk
from mixveil.core.types import Batch, Mu
from mixveil.core.wording.notes import Note, note
from mixveil.data.moves import mirrored
from mixveil.report.pages import environment
from mixveil.report.pictures import png

FORMAT, VERSION = "mixveil-challenge-score", 1
_ENCODINGS_SHOWN, _IMAGES_SHOWN = 8, 100
_BASELINES = ("found", "mean_image", "other_image")


class ShownImage(NamedTuple):
    """A private image on the page of a score. near: the SSIM of its guess; row: of the encoding that is shown, −1 where
    none holds the image; original, encoding, guess: pictures."""

    number: int
    near: float
    row: int
    original: str
    encoding: str
    guess: str


def challenge_page(card: ChallengeCard, rows: Batch) -> str:
    """The page that is published: what the challenge is, how to read it, and how to hand in a guess. rows: as they are
    written; the first few are shown."""
    plain = card.plain()
    text: str = (
        environment()
        .get_template("challenge.html.j2")
        .render(
            card=card,
            settings={"encoder": card.settings.encoder.name, **plain["payload"]["encoder"]["settings"]},
            shape="×".join(map(str, card.settings.shape)),
            dtype=str(rows.x.dtype).removeprefix("torch."),
            encodings=ENCODINGS,
            description=CARD,
            module=type(card.settings.encoder).__module__,
            known=_known(card),
            unpromised=card.settings.encoder.unpromised,
            rules=RULES,
            scored=[*(note(code, recovered=RECOVERED) for code in SCORED), *_mirrored(card)],
            pictures=[_stretched(row) for row in rows.x[:_ENCODINGS_SHOWN].float()] if _pictures(card) else [],
        )
    )
    return text


def score_json(card: ChallengeCard, images: ImageScore | None, linkage: LinkageScore | None) -> dict[str, Any]:
    """What a guess is worth, as data."""
    found: dict[str, Any] | None = None
    if images is not None:
        found = {name: asdict(getattr(images, name)) for name in _BASELINES}
        for figures in found.values():
            for name in ("ssim", "snr_db", "psnr_db"):
                figures[name] = None if figures[name] is None else figures[name]._asdict()
        turned = None if images.mirrored is None else images.mirrored.tolist()
        found |= {"assigned": images.assigned.tolist(), "each": images.each.tolist(), "mirrored": turned}
    linked = None
    if linkage is not None:
        both = {"found": linkage.found._asdict(), "chance": linkage.chance._asdict()}
        linked = {**both, "per_row": linkage.per_row}
    return {
        "format": FORMAT,
        "version": VERSION,
        "challenge": card.id,
        "encoder": card.settings.encoder.name,
        "sizes": {"images": card.images, "encodings": card.encodings, "rows": card.rows},
        "recovered_ssim": RECOVERED,
        "images": found,
        "linkage": linked,
        "notes": [item.plain() for item in score_notes(images, linkage)],
    }


def score_notes(images: ImageScore | None, linkage: LinkageScore | None) -> list[Note]:
    """What to say of a guess in a sentence each."""
    told = []
    if images is not None and images.found.recovered is not None:
        nothing, others = images.mean_image.recovered, images.other_image.recovered
        figures = {"recovered": images.found.recovered, "nothing": nothing, "others": others}
        told.append(note("challenge-recovered", ssim=RECOVERED, **figures))
    if images is not None and images.mirrored is not None:
        told.append(note("challenge-mirrored"))
    if linkage is not None:
        chance = {"chance_whole": linkage.chance.whole, "chance_some": linkage.chance.some}
        told.append(note("challenge-linked", **linkage.found._asdict(), **chance))
    return told


def score_page(
    whole: dict[str, Any],
    challenge: Challenge,
    truth: ChallengeTruth,
    images: ImageScore | None,
    guess: Tensor | None,
) -> str:
    """The page of a score, for the owner: every private image, the encoding in which it weighs most, and its guess; the
    nearest first."""
    shown = []
    if images is not None and guess is not None and _pictures(challenge.card):
        shown = _shown(challenge, truth, images, guess[images.assigned])
    text: str = environment().get_template("score.html.j2").render(score=whole, shown=shown, names=_BASELINES)
    return text


def _shown(challenge: Challenge, truth: ChallengeTruth, images: ImageScore, guess: Tensor) -> list[ShownImage]:
    """guess: (n, …) of every private image."""
    card, rows = challenge.card, truth.heaviest_rows()
    span = card.high - card.low
    taken = guess if images.mirrored is None else mirrored(guess, images.mirrored)
    found = []
    for number in images.each.argsort(descending=True)[:_IMAGES_SHOWN].tolist():
        row = int(rows[number])
        both = truth.images[number], taken[number]
        original, guessed = (png(shrunk((image.double() - card.low) / span, LARGEST)) for image in both)
        encoding = "" if row < 0 else _stretched(challenge.release[row][0])
        found.append(ShownImage(number, float(images.each[number]), row, original, encoding, guessed))
    return found


def _known(card: ChallengeCard) -> list[Note]:
    """What is known of how the encodings were made."""
    told = [note("challenge-order")]
    if card.public is not None and card.public.use == "covers":
        named = {"name": card.public.name, "patches": card.public.patches, "keypoints": card.public.keypoints}
        told.append(note("challenge-covers", **named))
    elif card.public is not None:
        told.append(note("challenge-facts", name=card.public.name))
    if isinstance(card.target, Mu) and not card.reproducible:
        together = math.sqrt(card.encodings) * card.target.value
        told.append(note("challenge-mu", mu=card.target.value, encodings=card.encodings, together=together))
    elif card.target is not None and not isinstance(card.target, Mu):
        told.append(note("challenge-tau", tau=card.target.value, calibration=card.target.calibration))
    return [*told, note("challenge-randomness-seeded" if card.reproducible else "challenge-randomness")]


def _mirrored(card: ChallengeCard) -> list[Note]:
    return [note("challenge-mirrored")] if card.settings.encoder.moved else []


def _pictures(card: ChallengeCard) -> bool:
    return len(card.settings.shape) == 3 and card.settings.shape[0] in (1, 3)


def _stretched(row: Tensor) -> str:
    """A row as a picture, stretched to its own range."""
    low, high = row.amin(), row.amax()
    return png(shrunk((row - low) / (high - low).clamp(min=1e-12), LARGEST))
