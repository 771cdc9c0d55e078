"""`mixveil encode`: from labelled images to a release on disk."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mixveil.cli import _common, _release
from mixveil.cli._common import escape
from mixveil.core.wording.notes import note
from mixveil.core.wording.sentences import plural
from mixveil.data.opening import DataOptions

if TYPE_CHECKING:
    from mixveil.releases.encode import Encoded

Calibration = Annotated[
    Literal["spectral", "theorem", "energy", "displacement"] | None,
    typer.Option(
        "--calibration",
        help="How --tau is met; energy and displacement are the paper's and do not keep it. Default: spectral.",
    ),
]
Mu = Annotated[
    float | None, typer.Option("--mu", help="Certified: every record (every unit, with --unit) μ-GDP, labels excluded.")
]
Tau = Annotated[float | None, typer.Option("--tau", help="Theorem 2's directional SNR, in (0, 1].")]
Encoder = Annotated[
    str,
    typer.Option(
        "--encoder",
        help="singular; gaussian (no pairing); or instahide, mixup, laplace or identity, which promise nothing.",
    ),
]
ImagesPerRow = Annotated[
    int | None,
    typer.Option("--images-per-row", help="Images in each row of mixup (default 2) or instahide (default 4)."),
]
LargestWeight = Annotated[
    float | None, typer.Option("--c1", help="The largest weight of an image in a row of instahide. Default: 0.65.")
]
PrivateShare = Annotated[
    float | None,
    typer.Option("--c2", help="The least share of the two private images, with --public, of instahide. Default: 0.3."),
]
Augmented = Annotated[
    bool, typer.Option("--augmented", help="Mirror and move every image at random before instahide mixes it.")
]
PatchCount = Annotated[
    int | None,
    typer.Option("--patches", help="Patches of --public images for mixup or instahide to mix in. Default: 10000."),
]
Keypoints = Annotated[
    int | None,
    typer.Option(
        "--keypoints", help="More than so many keypoints (SIFT) has each patch: default 40; 0 keeps flat ones too."
    ),
]
Screen = Annotated[
    str | None,
    typer.Option(
        "--screen",
        metavar="METRIC:X",
        help="Drop rows that show too much of a source: lpips:X (less than X apart), ssim:X or snr:X in dB (above X). "
        "Not with --mu.",
    ),
]
Device = Annotated[
    Literal["cpu", "cuda"] | None,
    typer.Option(
        "--device",
        help="Where Gaussian noise is drawn: cuda, on a GPU (it needs triton), or cpu. The release is as exact, and "
        "does not say which. Default: where the rows lie.",
    ),
]


@_common.data_options("unit", "classes")
def encode(
    data: _common.Data,
    out: _common.NewFolder,
    *,
    mu: Mu = None,
    tau: Tau = None,
    calibration: Calibration = None,
    encoder: Encoder = "singular",
    alpha: _common.Alpha = None,
    noise: _common.Noise = None,
    images_per_row: ImagesPerRow = None,
    c1: LargestWeight = None,
    c2: PrivateShare = None,
    augmented: Augmented = False,
    patches: PatchCount = None,
    keypoints: Keypoints = None,
    clip: _common.Clip = None,
    public: _common.Public = None,
    party: _common.Party = "party",
    recipient: _common.Recipient = None,
    budget: _common.Budget = None,
    label_epsilon: _common.LabelEpsilon = None,
    label_budget: _common.LabelBudget = None,
    screen: Screen = None,
    device: Device = None,
    seed: _common.Seed = None,
    options: DataOptions,
    projection: _common.ProjectionFile = None,
    backbone: _common.Backbone = None,
    stage: _common.Stage = None,
    mirror: _common.Mirror = False,
    normalisation: _common.Normalisation = None,
    cache: _common.Cache = None,
    as_json: _common.AsJson = False,
) -> None:
    """Encode DATA once, as a release that may leave this machine. Pairing and weights stay in your state folder, and
    the release is entered in your ledger before it is made (`mixveil ledger`).

    [bold]--mu[/] asks for a certified release: noise from public facts only. [bold]--tau[/] asks for Theorem 2's
    directional SNR: noise from the private data's own moments, not certified; with [bold]--screen[/], rows that show
    too much all the same are dropped.
    """
    asked = _common.asked(locals())
    _common.look_at_projection(projection)
    import mixveil

    made = mixveil.encode(**asked, watch=_common.progress, warn=_common.warning(quiet=as_json))
    if as_json:
        _common.print_json(_plain(made))
    else:
        _show(made)


def _show(made: Encoded) -> None:
    from mixveil.releases.accounting import spent_note

    _release.show(made.folder, made.manifest)
    _show_screening(made)
    if made.displacement is not None:
        _common.say(note("displacement-measured", **asdict(made.displacement)))
    _common.say(spent_note(made.standing))
    _common.say(f"What an audit needs stays with you: {escape(str(made.trace))}")


def _plain(made: Encoded) -> dict[str, Any]:
    from mixveil.releases.accounting import summary as spent

    return {
        "release": str(made.folder),
        **_release.summary(made.manifest),
        "trace": str(made.trace),
        "warnings": _common.plain(made.warnings),
        "displacement": None if made.displacement is None else asdict(made.displacement),
        "screening": _screening(made),
        "spent": spent(made.standing),
    }


def _screening(made: Encoded) -> dict[str, Any] | None:
    """What was dropped, for `--json`; None where nothing was screened."""
    screened, rows = made.screened, made.manifest.rows
    if screened is None:
        return None
    dropped = screened.records - rows
    return {
        "screen": str(screened.screen),
        "made": screened.records,
        "dropped": dropped,
        "share": dropped / screened.records,
        "pairing": None if made.broken is None else made.broken._asdict(),
    }


def _show_screening(made: Encoded) -> None:
    """For the owner's eyes: what was dropped, and what that does to the pairing."""
    told, broken = _screening(made), made.broken
    if told is None:
        return
    text = (
        f"For your eyes only: {told['dropped']:,} of {plural(told['made'], 'row')} ({told['share']:.1%}) were dropped."
    )
    if broken is not None:
        text += (
            f" Of the pairing's {plural(broken.cycles, 'cycle')} {broken.opened:,} opened into chains; "
            f"{plural(broken.both, 'record')} are left in both of their rows, {broken.one:,} in one, {broken.none:,} "
            f"in none."
        )
    if broken is not None and broken.opened:
        text += (
            " In an opened cycle there are fewer rows than records: an attacker who knows nothing of images cannot "
            "solve for any record of it. One who knows what images are like still gets what the attack lmmse gets "
            "(`mixveil audit`); and which rows are missing says something too, which Theorem 1 does not count."
        )
    _common.say(text)
