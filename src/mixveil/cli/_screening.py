"""What `encode` says of rows that it drops, and the option that asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mixveil.cli._common import out
from mixveil.core.errors import ArgumentError

if TYPE_CHECKING:
    from mixveil.releases.manifest import Manifest
    from mixveil.releases.screening import Measure, Screen
    from mixveil.theory.dropped_rows import BrokenCycles

ScreenOption = Annotated[
    str | None,
    typer.Option(
        "--screen",
        metavar="METRIC:X",
        help="Drop rows that show too much of a source: lpips:X (less than X apart), ssim:X or snr:X in dB (above X). "
        "Not with --mu.",
        show_default=False,
    ),
]


def chosen(
    text: str | None, *, mu: float | None, label_epsilon: float | None, backbone: str | None, projection: Path | None
) -> Screen | None:
    """The screen that was asked for, if any; refused is what does not go with it, before anything is read."""
    if text is None:
        return None
    from mixveil.releases.screening import NOT_CERTIFIED, NOT_PICTURES, NOT_PROTECTED, Screen

    screen = Screen.parse(text)
    if mu is not None:
        raise ArgumentError(f"--screen and --mu: {NOT_CERTIFIED}")
    if label_epsilon is not None:
        raise ArgumentError(f"--screen and --label-epsilon: {NOT_PROTECTED}")
    if backbone is not None or projection is not None:
        raise ArgumentError(f"--screen and --{'projection' if backbone is None else 'backbone'}: {NOT_PICTURES}")
    return screen


def distance(screen: Screen | None, data_dir: Path | None) -> Measure | None:
    """LPIPS by VGG16, where the screen needs it."""
    if screen is None or screen.metric != "lpips":
        return None
    from mixveil.data.opening import data_folder
    from mixveil.features.lpips import load

    return load("vgg", data_folder(data_dir))


def summary(written: Manifest) -> dict[str, Any] | None:
    """What was dropped, for `--json`; None where nothing was screened."""
    if written.screened is None:
        return None
    made, found = written.screened.records, _broken_cycles(written)
    return {
        "screen": str(written.screened.screen),
        "made": made,
        "dropped": made - written.rows,
        "share": (made - written.rows) / made,
        "pairing": None if found is None else found._asdict(),
    }


def show(written: Manifest) -> None:
    """For the owner's eyes: what was dropped, and what that does to the pairing."""
    if written.screened is None:
        return
    made, found = written.screened.records, _broken_cycles(written)
    dropped = made - written.rows
    text = f"For your eyes only: {dropped:,} of {made:,} rows ({dropped / made:.1%}) were dropped."
    if found is not None:
        text += (
            f" Of the pairing's {found.cycles:,} cycle(s) {found.opened:,} opened into chains; {found.both:,} "
            f"record(s) are left in both of their rows, {found.one:,} in one, {found.none:,} in none."
        )
    if found is not None and found.opened:
        text += (
            " In an opened cycle there are fewer rows than records: who knows nothing of images cannot solve for any "
            "record of it. Who knows what images are like still gets what the attack lmmse gets (`mixveil audit`); and "
            "which rows are missing says something too, which Theorem 1 does not count."
        )
    out.print(text, soft_wrap=True)


def _broken_cycles(written: Manifest) -> BrokenCycles | None:
    """Of the pairing in the owner's trace; None where records were not mixed in pairs."""
    from mixveil.releases.traces import load_trace
    from mixveil.theory.dropped_rows import broken_cycles

    trace = load_trace(written.id, written.rows)
    if trace is None or trace.kept is None or trace.partner.shape[1] != 1:
        return None
    return broken_cycles(trace.partner[:, 0], trace.kept)
