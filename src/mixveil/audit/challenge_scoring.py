"""What a guess at a challenge is worth: images and who is in which row, each beside what chance gives.

A guess is a file of somebody else's: everything in it is checked before it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from torch import Tensor

from mixveil.audit.challenge import RECOVERED, ChallengeCard
from mixveil.audit.challenge_truth import ChallengeTruth
from mixveil.audit.figures import finite
from mixveil.audit.metrics.sources import Links, linked, matched
from mixveil.core import files, tensor_files
from mixveil.core.errors import DataFormatError, PixelError, ShardFormatError, UnreadableFileError
from mixveil.core.watching import Watch, unwatched
from mixveil.data import similarity
from mixveil.data.moves import mirrored

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_WHOLE = (torch.int16, torch.int32, torch.int64)
_MOST_DB = 999.0


class ChallengeGuess(NamedTuple):
    """images: (n, …) in any order; sources: (rows, m) private images in any numbering, −1 where it does not say."""

    images: Tensor | None
    sources: Tensor | None


class Summary(NamedTuple):
    """Of one figure over all private images."""

    mean: float
    median: float
    best: float


@dataclass(frozen=True)
class ImageFigures:
    """How near guesses come to the private images. ssim, recovered: None where rows are no images."""

    ssim: Summary | None
    recovered: float | None
    snr_db: Summary
    psnr_db: Summary


@dataclass(frozen=True)
class ImageScore:
    """Guesses at images, each image having one guess.

    Attributes:
        found: Of the guess that was handed in.
        mean_image: Of the mean of all private images in the place of each: knowing nothing of any single image.
        other_image: Of another private image in the place of each, one-to-one and as near as possible: what images
            that are like the private ones, and are not they, get by the same comparison.
        assigned: (n,) which of the guesses each private image was given.
        each: (n,) the SSIM of every private image with its guess; the SNR in dB where rows are no images.
        mirrored: (n,) of which guesses the mirror image was taken, as it is nearer; None where images were not mirrored
            before they were mixed, and guesses count as they are.
    """

    found: ImageFigures
    mean_image: ImageFigures
    other_image: ImageFigures
    assigned: Tensor = field(repr=False)
    each: Tensor = field(repr=False)
    mirrored: Tensor | None = field(default=None, repr=False)


@dataclass(frozen=True)
class LinkageScore:
    """Guesses at who is in which row. chance: of the same guess with its rows shuffled, numbered as well as possible
    too; the mean of twenty such guesses. per_row: how many private images it names in a row at most."""

    found: Links
    chance: Links
    per_row: int


def read_guess(path: Path, card: ChallengeCard) -> ChallengeGuess:
    """The guess in a file. It is refused where it is no safetensors file, too large, or does not fit the challenge."""
    files.check_there(path, "the file of a guess (.safetensors)")
    values = card.images * torch.Size(card.settings.shape).numel()
    most = 8 * (values + card.rows * card.private_per_row) + tensor_files.HEADER + 8
    try:
        with files.opened(path, most) as file:
            tensor_files.check_header(file, path, metadata=("format",))
            with tensor_files.mapped(file, path) as opened:
                names = sorted(opened.keys())
                if not names or {*names} - {"images", "sources"}:
                    raise DataFormatError(f"{path}: a guess holds images, sources or both, it holds {len(names)} names")
                held = {name: opened.get_tensor(name).clone() for name in names}
    except (UnreadableFileError, ShardFormatError, SafetensorError) as error:
        raise DataFormatError(f"{path} is not a guess: {error}") from None
    return ChallengeGuess(
        check_images(str(path), held.get("images"), card), check_sources(str(path), held.get("sources"), card)
    )


def score_images(
    guess: Tensor, truth: Tensor, low: float, high: float, watch: Watch = unwatched, *, mirrors: bool = False
) -> ImageScore:
    """Guesses (n, …) at the private images (n, …), both in the data's own values. Guesses are brought into the range
    first; then every image is given one of them, so that the sum of SSIM (of SNR, where rows are no images) is as large
    as it can be. mirrors: images were mirrored at random before they were mixed, so that no attacker can tell an image
    from its mirror image: of every guess, and of what knows nothing, the nearer of both counts."""
    x, guesses = ((images.double().clamp(low, high) - low) / (high - low) for images in (truth, guess))
    pictures = x.dim() == 4
    with watch("comparing", 2) as step:
        close = _closeness(x, guesses, mirrors)
        step(1)
        among = _closeness(x, x, mirrors)
        step(1)
    assigned = matched(close)
    among.fill_diagonal_(-2 * _MOST_DB)
    turned = _mirror_nearer(x, guesses[assigned]) if mirrors else None
    taken = guesses[assigned] if turned is None else mirrored(guesses[assigned], turned)
    others = [x.mean(0).expand_as(x), x[matched(among)]]
    if mirrors:
        others = [mirrored(images, _mirror_nearer(x, images)) for images in others]
    return ImageScore(
        found=_figures(x, taken),
        mean_image=_figures(x, others[0]),
        other_image=_figures(x, others[1]),
        assigned=assigned,
        each=(similarity.ssim if pictures else _snr)(x, taken),
        mirrored=turned,
    )


def score_sources(guess: Tensor, truth: ChallengeTruth) -> LinkageScore:
    """Guesses (rows, m) at the private images of every row. Their numbers are taken for those private images with which
    most of them are right, one-to-one."""
    found, chance = linked(guess, truth.sources, len(truth.images), renamed=True)
    return LinkageScore(found, chance, guess.shape[1])


def check_images(where: str, images: Tensor | None, card: ChallengeCard) -> Tensor | None:
    """Refuse images that a challenge cannot be scored by. where: what holds them."""
    if images is None:
        return None
    due = (card.images, *card.settings.shape)
    if images.dtype not in _FLOATS or images.shape != due:
        raise DataFormatError(f"{where}: images must be floats of {due}, got {images.dtype} of {tuple(images.shape)}")
    if not bool(images.isfinite().all()):
        raise PixelError(f"{where}: a value of images is not finite")
    return images


def check_sources(where: str, sources: Tensor | None, card: ChallengeCard) -> Tensor | None:
    """The same of sources."""
    if sources is None:
        return None
    most = card.private_per_row
    fits = sources.dim() == 2 and len(sources) == card.rows and 1 <= sources.shape[1] <= most
    if sources.dtype not in _WHOLE or not fits:
        due = f"whole numbers of ({card.rows}, 1{f' to {most}' if most > 1 else ''})"
        raise DataFormatError(f"{where}: sources must be {due}, got {sources.dtype} of {tuple(sources.shape)}")
    if not -1 <= int(sources.min()) <= int(sources.max()) < card.images:
        raise DataFormatError(
            f"{where}: sources must be in −1…{card.images - 1}, got {int(sources.min())}…{int(sources.max())}"
        )
    return sources.long()


def _closeness(truth: Tensor, guess: Tensor, mirrors: bool) -> Tensor:
    """(n, m) SSIM of every guess at every image, or of its mirror image; dB where rows are no images."""
    near: Callable[[Tensor, Tensor], Tensor] = similarity.ssim_of_all if truth.dim() == 4 else _snr_matrix
    found = near(truth, guess).double()
    return torch.maximum(found, near(truth, guess.flip(3)).double()) if mirrors else found


def _mirror_nearer(truth: Tensor, guess: Tensor) -> Tensor:
    """(n,) whether the mirror image of each guess has the larger SSIM."""
    return similarity.ssim(truth, guess.flip(3)) > similarity.ssim(truth, guess)


def _snr_matrix(truth: Tensor, guess: Tensor) -> Tensor:
    """(n, m) dB of every guess at every row."""
    found = torch.empty(len(truth), len(guess), dtype=torch.float64)
    for row, x in enumerate(truth):
        found[row] = _snr(x.expand_as(guess), guess)
    return found.clamp(-_MOST_DB, _MOST_DB)


def _snr(truth: Tensor, guess: Tensor) -> Tensor:
    return similarity.snr_db(truth, guess).nan_to_num(nan=torch.inf)  # black, and guessed so


def _figures(truth: Tensor, guess: Tensor) -> ImageFigures:
    ssim = similarity.ssim(truth, guess) if truth.dim() == 4 else None
    return ImageFigures(
        ssim=None if ssim is None else _summary(ssim),
        recovered=None if ssim is None else float((ssim > RECOVERED).double().mean()),
        snr_db=_summary(_snr(truth, guess)),
        psnr_db=_summary(similarity.psnr_db(truth, guess)),
    )


def _summary(values: Tensor) -> Summary:
    return Summary(finite(values.mean()), finite(values.median()), finite(values.amax()))
