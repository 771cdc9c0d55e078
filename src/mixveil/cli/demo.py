"""`mixveil demo`: the whole walk on scikit-learn's digits."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mixveil.cli._common import AsJson, out, print_json
from mixveil.cli._release import summary
from mixveil.cli.audit import audit
from mixveil.cli.calibrate import calibrate
from mixveil.cli.encode import encode
from mixveil.cli.verify import verify

if TYPE_CHECKING:
    from torch import Tensor

_SHADES = " ░▒▓█"


def demo(
    folder: Annotated[Path, typer.Option("--out", help="The folder to make. It must not exist.")] = Path("demo-out"),
    mu: Annotated[float, typer.Option("--mu", help="The guarantee of the release.")] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Encode the digits, show what could be learned of them, verify the release, and attack it."""
    from mixveil.files import check_new

    check_new(folder)
    os.environ.setdefault("MIXVEIL_STATE", str(folder / "state"))
    release = folder / "release"
    if as_json:
        print_json(_figures(release, mu))
        return
    out.rule("1. What would a release of the digits give away?", align="left")
    calibrate("digits:train", mu=mu, tau=0.1)
    out.rule(f"2. Encode them, certified at μ = {mu:g}", align="left")
    encode("digits:train", release, mu=mu, party="demo")
    out.rule("3. The receiver checks it", align="left")
    verify(release)
    out.rule("4. Look: two digits, and what leaves of them", align="left")
    _look(release)
    out.rule("5. The owner attacks it, before anything leaves", align="left")
    audit([release], "digits:train", folder / "audit", public="digits:test")


def _figures(release: Path, mu: float) -> dict[str, object]:
    """The same walk, for a program."""
    import mixveil
    from mixveil import calibration

    digits, stream = mixveil.open_data("digits:train"), mixveil.SecureStream()
    wanted = calibration.targets(mu, 0.1)
    found = calibration.survey(digits, mixveil.Singular(), wanted, public=None, clip=None, seed=0)
    encoder, guarantees, warnings = calibration.calibrate(mixveil.Singular(), mixveil.Mu(mu), digits, stream=stream)
    mixveil.write_release(release, digits, encoder, guarantees, party="demo", stream=stream)
    stated = mixveil.verify_release(release)
    rows = [asdict(item) for item in found]
    return {"calibrations": rows, "release": str(release), "verified": True, **summary(stated), "warnings": warnings}


def _look(release: Path) -> None:
    import torch

    from mixveil.data import open_data
    from mixveil.release import read_release

    rows = torch.tensor([0, 1])
    images = open_data("digits:train").take(rows).x
    released = read_release(release).payload.take(rows).x
    for row in range(8):
        pictures = [_shade(image[0, row]) for image in (*images, *(_stretch(x) for x in released))]
        out.print("  " + "  ".join(pictures[:2]) + "   →   " + "  ".join(pictures[2:]))


def _stretch(x: Tensor) -> Tensor:
    """Released values to [0, 1], as an eye would see them best."""
    return (x - x.min()) / (x.max() - x.min())


def _shade(line: Tensor) -> str:
    return "".join(_SHADES[min(4, int(value * 5))] * 2 for value in line.tolist())
