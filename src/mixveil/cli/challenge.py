"""`mixveil challenge`: let others try to break an encoder, try it yourself, and score guesses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mixveil.cli import _common
from mixveil.cli import encode as options_of
from mixveil.cli._common import escape, number, out, print_json, say
from mixveil.data.opening import DataOptions

if TYPE_CHECKING:
    from mixveil.audit.challenge_attacking import AttackedChallenge
    from mixveil.report.challenges import ChallengeScore, MadeChallenge

app = typer.Typer(
    add_completion=False, help="Let others try to break an encoder, or try it, and score guesses.", no_args_is_help=True
)

Published = Annotated[Path, typer.Option("--out", help="The folder to publish. It must not exist.")]
Hidden = Annotated[
    Path | None,
    typer.Option(
        "--truth", help="The folder of the truth, which stays with you. Default: the other, with .truth added."
    ),
]
Encoder = Annotated[str, typer.Option("--encoder", help="instahide, mixup, singular, gaussian, laplace or identity.")]
ImageCount = Annotated[int, typer.Option("--images", help="Private images, which are drawn from DATA.")]
Encodings = Annotated[int, typer.Option("--encodings", help="Encodings of each image.")]
Seed = Annotated[
    int | None, typer.Option("--seed", help="For experiments only: an attacker who finds the seed has the truth.")
]
Folder = Annotated[Path, typer.Argument(metavar="CHALLENGE", help="The folder that was published.", show_default=False)]
Truth = Annotated[Path, typer.Argument(metavar="TRUTH", help="The folder of its truth.", show_default=False)]
Guess = Annotated[
    Path, typer.Option("--guess", help="A .safetensors file with images, sources or both. Nothing in it is run.")
]
ScoreFolder = Annotated[
    Path | None, typer.Option("--out", help="Write score.json and a page here, for your eyes only. It must not exist.")
]

AttackName = Annotated[
    str, typer.Option("--attack", help="An attack that guesses images, or who is in which row: carlini, luo or chen.")
]
Similar = Annotated[str | None, typer.Option("--public", help="Images like the private ones, which the attacker has.")]
Covers = Annotated[
    str | None,
    typer.Option(
        "--covers",
        help="The public images that rows were mixed with, where they were: the attacker cuts patches of their own.",
    ),
]
PatchCount = Annotated[
    int | None, typer.Option("--patches", help="So many patches. Default: as the challenge says, 10,000 at most.")
]
Steps = Annotated[
    int | None,
    typer.Option("--steps", help="At most so many steps for each network that the attack trains: without a GPU."),
]
AttackSeed = Annotated[
    int, typer.Option("--seed", help="Of the patches that the attacker cuts, and of the attack's draws.")
]
OwnTruth = Annotated[
    Path | None, typer.Option("--truth", help="For the owner: the folder of the truth, for the stages of --given.")
]
Given = Annotated[
    str | None,
    typer.Option(
        "--given",
        metavar="STAGES",
        help="With --truth: stages of the attack that take the truth instead of finding it, with commas between: "
        "alike, clusters, sources, weights, signs, moves.",
    ),
]
AttackCache = Annotated[
    Path | None,
    typer.Option(
        "--cache", help="Where networks and stages are kept: a stopped attack goes on. Else as MIXVEIL_CACHE says."
    ),
]


@app.command("make")
@_common.data_options("classes")
def make(
    data: _common.Data,
    folder: Published,
    *,
    truth: Hidden = None,
    encoder: Encoder = "instahide",
    images: ImageCount = 100,
    encodings: Encodings = 50,
    mu: options_of.Mu = None,
    tau: options_of.Tau = None,
    calibration: options_of.Calibration = None,
    alpha: _common.Alpha = None,
    noise: _common.Noise = None,
    images_per_row: options_of.ImagesPerRow = None,
    c1: options_of.LargestWeight = None,
    c2: options_of.PrivateShare = None,
    augmented: options_of.Augmented = False,
    patches: options_of.PatchCount = None,
    keypoints: options_of.Keypoints = None,
    clip: _common.Clip = None,
    public: _common.Public = None,
    seed: Seed = None,
    options: DataOptions,
    as_json: _common.AsJson = False,
) -> None:
    """Make a challenge of images that may be shown: a folder to publish, and one with the truth, to keep.

    Your ledger counts it as a release that promises nothing. Images of your other releases are refused.
    """
    asked = _common.asked(locals(), "folder")
    import mixveil

    made = mixveil.make_challenge(**asked, out=folder, watch=_common.progress, warn=_common.warning(quiet=as_json))
    if as_json:
        print_json(_made(made))
        return
    card = made.card
    shape = "×".join(map(str, card.settings.shape))
    say(
        f"[bold]{escape(str(made.folder))}[/]: {card.rows:,} rows, {card.images:,} images of {shape}, each encoded "
        f"{card.encodings:,} times by {card.settings.encoder.name}; publish this folder"
    )
    say(f"[bold]{escape(str(made.truth))}[/]: the truth, which stays with you until the challenge is over")


@app.command("attack")
@_common.data_options()
def attack(
    challenge: Folder,
    out_file: _common.NewFile,
    *,
    attack: AttackName = "carlini",
    public: Similar = None,
    covers: Covers = None,
    patches: PatchCount = None,
    truth: OwnTruth = None,
    given: Given = None,
    seed: AttackSeed = 0,
    steps: Steps = None,
    options: DataOptions,
    cache: AttackCache = None,
    as_json: _common.AsJson = False,
) -> None:
    """Run one attack on a challenge, and write its guess as a .safetensors file, to be scored.

    The owner may give some stages of the attack the truth (--truth, --given), to see where the defence holds.
    """
    asked = _common.asked(locals(), "out_file", "given")
    stages = [] if given is None else [stage.strip() for stage in given.split(",")]
    import mixveil

    with _common.attacking() as watch:
        made = mixveil.attack_challenge(**asked, out=out_file, given=stages, watch=watch)
    if as_json:
        print_json(made.plain())
    else:
        _show_guess(made)


@app.command()
def score(
    challenge: Folder, truth: Truth, guess: Guess, folder: ScoreFolder = None, as_json: _common.AsJson = False
) -> None:
    """Score a guess: how near its images come to the private ones, and in which rows it names them.

    Beside every figure stands what a guess gets that knows nothing of any single image.
    """
    import mixveil

    found = mixveil.score_challenge(challenge, truth, guess, out=folder, watch=_common.progress)
    if as_json:
        from mixveil.report.challenge_pages import score_json

        page = None if found.page is None else str(found.page)
        print_json({**score_json(found.card, found.images, found.linkage), "page": page})
    else:
        _show(found)


def _made(made: MadeChallenge) -> dict[str, Any]:
    return {
        "challenge": str(made.folder),
        "truth": str(made.truth),
        **made.card.plain(),
        "warnings": _common.plain(made.warnings),
    }


def _show_guess(made: AttackedChallenge) -> None:
    said = " ".join(map(str, made.notes))
    say(f"[bold]{escape(str(made.out))}[/]: {escape(said)}")


def _show(found: ChallengeScore) -> None:
    from rich.table import Table

    from mixveil.report.challenge_pages import score_notes

    images = found.images
    if images is not None:
        table = Table("figure", "guess", "mean image", "another image", title="Images, one guess each")
        columns = (images.found, images.mean_image, images.other_image)
        for name, title in (("ssim", "SSIM"), ("snr_db", "SNR in dB"), ("psnr_db", "PSNR in dB")):
            for part in ("mean", "median", "best") if getattr(images.found, name) is not None else ():
                table.add_row(f"{title}, {part}", *(number(getattr(getattr(of, name), part)) for of in columns))
        out.print(table)
    for told in score_notes(images, found.linkage):
        _common.say(told)
    if found.page is not None:
        say(f"Private images and guesses, for your eyes only: {escape(str(found.page))}")
