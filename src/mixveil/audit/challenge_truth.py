"""The hidden half of a challenge: the private images, and what every row was made of. It stays with the owner until the
challenge is over."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from mixveil.audit.challenge import CARD, ENCODINGS, ChallengeCard, check_format, parsed_file, read_text
from mixveil.core import strict_json
from mixveil.core.errors import DataFormatError, HashError, MismatchError, ReleaseError, ShapeError
from mixveil.releases.envelope import File
from mixveil.releases.reading import stated_tensors

FORMAT, VERSION = "mixveil-challenge-truth", 1
TRUTH, TENSORS = "truth.json", "truth.safetensors"
_EXTRA = "extra."
_HEADER = 64 << 10


@dataclass(frozen=True)
class ChallengeTruth:
    """What a challenge hides. Private images are numbered in the order of `images`.

    Attributes:
        images: (n, …) the private images, in the data's own values.
        labels: (n,) their classes.
        sources: (rows, k) for every row of the encodings its own image and its partners; −1 for a public patch.
        weights: (rows, k) their weights.
        more: What else was drawn, by name: `numbers` (n,) the rows of the data that the images are; `encoding` (rows,)
            the encoding that each row is of; `patches` (rows, k) the numbers of public patches, −1 for private images,
            and `covers` (p, 4) where they were cut; `extra.…` what else the encoder drew for a row, such as signs.
    """

    images: Tensor = field(repr=False)
    labels: Tensor = field(repr=False)
    sources: Tensor = field(repr=False)
    weights: Tensor = field(repr=False)
    more: Mapping[str, Tensor] = field(default_factory=dict, repr=False)

    @property
    def private_per_row(self) -> int:
        return int((self.sources >= 0).sum(1).max())

    def heaviest_rows(self) -> Tensor:
        """(n,) the row in which each private image has its largest weight; −1 where it is in none."""
        weights, held = self.weights.flatten(), self.sources.flatten()
        order = weights.argsort(descending=True, stable=True)
        order = order[held[order] >= 0]
        first = torch.full((len(self.images),), len(order))
        first.scatter_reduce_(0, held[order], torch.arange(len(order)), "amin")
        row = torch.cat([order // self.sources.shape[1], torch.tensor([-1])])
        return row[first]

    @property
    def extra(self) -> dict[str, Tensor]:
        """What else the encoder drew for every row, by its names in `Trace.extra`."""
        return {name.removeprefix(_EXTRA): drawn for name, drawn in self.more.items() if name.startswith(_EXTRA)}

    def to_bytes(self, nonce: Tensor) -> bytes:
        """The file. nonce: a secret number, without which its hash could be used to try images."""
        whole = {"images": self.images, "labels": self.labels, "sources": self.sources, "weights": self.weights}
        whole |= {"nonce": nonce, **self.more}
        return save({name: values.contiguous() for name, values in whole.items()})


def extra(drawn: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What an encoder drew beside pairing and weights, by its names in `ChallengeTruth.more`."""
    return {_EXTRA + name: values for name, values in drawn.items()}


def truth_json(card: ChallengeCard, card_text: str, tensors: bytes) -> str:
    """`truth.json`: which published files this is the truth of."""
    published = {CARD: hashlib.sha256(card_text.encode()).hexdigest(), ENCODINGS: card.file.sha256}
    file = File(TENSORS, len(tensors), hashlib.sha256(tensors).hexdigest(), card.rows)
    whole = {"format": FORMAT, "version": VERSION, "id": card.id, "published": published, "file": asdict(file)}
    return json.dumps(whole, indent=2, sort_keys=True) + "\n"


def read_truth(folder: Path, card: ChallengeCard, card_text: str) -> ChallengeTruth:
    """The truth of a challenge. That of another one, or of one that was changed, is refused."""
    whole = strict_json.mapping(TRUTH, strict_json.loads(read_text(folder, TRUTH, "the truth of a challenge")))
    check_format(whole, FORMAT, VERSION)
    strict_json.only(TRUTH, whole, {"format", "version", "id", "published", "file"})
    published = strict_json.mapping("published", whole["published"])
    strict_json.only("published", published, {CARD, ENCODINGS})
    if whole["id"] != card.id:
        shown = strict_json.shown(whole["id"])
        raise MismatchError(f"{folder} is the truth of the challenge {shown}, not of {card.id}")
    if published != {CARD: hashlib.sha256(card_text.encode()).hexdigest(), ENCODINGS: card.file.sha256}:
        raise HashError(f"{CARD} is not as it was written with {folder}: it was changed, or the truth was")
    file = parsed_file("file", whole["file"], TENSORS)
    if file.sha256 != card.truth_sha256:
        raise HashError(f"{folder / TRUTH}: its hash of {TENSORS} is not the one that the challenge was made with")
    try:
        tensors = stated_tensors(folder / TENSORS, file, file.bytes, _HEADER)
    except ReleaseError as error:
        raise type(error)(f"not the truth of this challenge: {error}") from None
    return _checked(folder / TENSORS, tensors, card)


def _checked(path: Path, tensors: dict[str, Tensor], card: ChallengeCard) -> ChallengeTruth:
    if missing := {"images", "labels", "sources", "weights"} - tensors.keys():
        raise DataFormatError(f"{path}: missing {', '.join(sorted(missing))}")
    images, labels, sources, weights = (tensors.pop(name) for name in ("images", "labels", "sources", "weights"))
    sizes = images.shape == (card.images, *card.settings.shape) and labels.shape == (card.images,)
    pairing = sources.dim() == 2 and sources.shape == weights.shape and len(sources) == card.rows and sources.numel()
    if not sizes or not pairing:
        raise ShapeError(f"{path}: its tensors do not have the sizes that {CARD} says")
    kinds = [x.dtype for x in (images, weights, sources, labels)]
    if kinds != [torch.float32, torch.float32, torch.int64, torch.int64]:
        raise DataFormatError(f"{path}: images and weights must be float32, sources and labels int64")
    within = bool(((images >= card.low) & (images <= card.high)).all())
    if not bool(weights.isfinite().all()):
        raise DataFormatError(f"{path}: a weight is not finite")
    if not within or not -1 <= int(sources.min()) <= int(sources.max()) < card.images:
        raise DataFormatError(f"{path}: images or sources are outside the range that {CARD} says")
    return ChallengeTruth(images, labels, sources, weights, tensors)
