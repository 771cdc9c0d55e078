"""The picture of the README: digits that a party has, what leaves, what attacks make of it; and accuracy against μ.

    python -m docs.pictures.front          # writes docs/pictures/front.svg, half a minute on a core

The pictures come from an experiment with seeded noise on scikit-learn's digits, which may be shown. The curves are read
from results that are kept in this repository.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch
from torch import Tensor

import mixveil
from mixveil.audit.own_releases import Audited
from mixveil.features import projection_file
from mixveil.report.lines import Curve, plot
from mixveil.report.pictures import png

ROOT = Path(__file__).parents[2]
OUT = Path(__file__).with_name("front.svg")
SHOWN, FEW = 8, 4  # digits in the picture, the first of the set; rows of an update
MU = 2.0  # of the certified records
MUS = (0.5, 1.0, 2.0)  # of the plot
SEED = 0
SIDE, GAP = 40, 4
LEFT, TOP, WIDTH = 236, 32, 1056


class Line(NamedTuple):
    """One line of the picture. images: (SHOWN, 1, h, w) in [0, 1]."""

    title: str
    below: str
    images: Tensor


def main() -> None:
    with TemporaryDirectory() as folder:
        os.environ["MIXVEIL_STATE"] = str(Path(folder) / "state")
        lines = [*updates(Path(folder)), *records(Path(folder))]
    OUT.write_text(drawn(lines, curves()), encoding="utf-8")
    print(f"{OUT.relative_to(ROOT)}: {OUT.stat().st_size:,} bytes")


def best(found: Audited, metric: str) -> tuple[str, float, float]:
    """The attack with the best mean SSIM that passed its own test, its SSIM, and that of knowing nothing."""
    asked = [f for f in found.audit.figures if f.metric == metric and f.kind != "prior" and f.known is None]
    most = max(asked, key=lambda figure: figure.mean)
    return most.attack, most.mean, most.know_nothing or 0.0


def updates(folder: Path) -> list[Line]:
    """The originals; and what the best attack reads off updates of federated averaging of FEW digits each."""
    images = mixveil.open_data("digits:train")
    originals = images.take(torch.arange(SHOWN)).x
    read, reached = [], []
    for number in range(SHOWN // FEW):
        own = images.part(torch.arange(FEW * number, FEW * (number + 1)))
        out = folder / f"update-{number}"
        mixveil.update(own, out, network="linear", rows=FEW, batch=FEW, seed=SEED)
        found = mixveil.audit([out], own, public="digits:test", attacks=["gradient-rows", "invgrad"], seed=SEED)
        name, ssim, _ = best(found, "ssim")
        read.append(in_order(found, found.audit.images[name].float() / 255, FEW))
        reached.append(ssim)
    return [
        Line("a party's digits", "they never leave", originals),
        Line("FedAvg, no guarantee", f"best attack on 4 of them, SSIM {fmean(reached):.2f}", torch.cat(read)),
    ]


def records(folder: Path) -> list[Line]:
    """Certified records of two steps, drawn as pictures; and what the best attack makes of all of them."""
    projection, sums, task, out = (folder / name for name in ("projection", "sums", "task", "release"))
    half = MU / 2**0.5
    mixveil.prepare("digits:test", projection, backbone="none", mu=MU, parties=1, rows=1200, num_classes=10)
    mixveil.statistics("digits:train", sums, projection=projection, mu=half, seed=SEED)
    mixveil.directions([sums], task, projection=projection)
    mixveil.encode("digits:train", out, projection=task, mu=half, seed=SEED)
    names = ["decoder", "prior"]
    found = mixveil.audit(
        [out], "digits:train", projection=task, public="digits:test", attacks=names, seed=SEED, steps=300
    )
    name, ssim, nothing = best(found, "picture-ssim")
    fitted = projection_file.read(task)[0]
    sent = mixveil.read_release(out).payload.take(torch.arange(SHOWN)).x.flatten(1).double()
    pictures = fitted.mean.double() + sent @ torch.linalg.pinv(fitted.matrix.double())
    guessed = in_order(found, found.audit.pictures[name], SHOWN)
    return [
        Line(f"certified records, μ = {MU:g}", "what is sent of each digit", pictures.view(SHOWN, 1, 8, 8)),
        Line("what attackers make of it", f"best attack, SSIM {ssim:.2f}", guessed),
        Line("knowing nothing", f"mean public digit, SSIM {nothing:.2f}", uninformed(SHOWN)),
    ]


def in_order(found: Audited, images: Tensor, count: int) -> Tensor:
    """The guesses at the first rows of the release."""
    places = [int((found.audit.numbers == row).nonzero()[0, 0]) for row in range(count)]
    return images[places]


def uninformed(count: int) -> Tensor:
    """(count, 1, 8, 8) what an attacker guesses who looks at nothing: the mean of the public digits."""
    public = mixveil.open_data("digits:test")
    mean = public.take(torch.arange(len(public))).x.mean(0)
    return mean.expand(count, *mean.shape)


def curves() -> list[Curve]:
    """CIFAR-10: rounds of sums at each μ, DP-SGD at the same relation; and two levels without any guarantee."""
    rounds, peer = means("certified/rounds-cifar10.json"), means("certified/rounds-dp-sgd.json")
    series = {
        "rounds, secure sums": [rounds["rounds", 10, 10, mu] for mu in MUS],
        "rounds, each noisy": [rounds["rounds", 10, 1, mu] for mu in MUS],
        "DP-SGD": [peer["dp-sgd", 10, 1, mu] for mu in MUS],
    }
    found = [Curve(name, [*zip(MUS, ys, strict=True)], style) for style, (name, ys) in enumerate(series.items())]
    levels = {"FedAvg, no guarantee": "fedavg", "each party alone": "local"}
    for dashes, (name, method) in zip(("7 3", "2 3"), levels.items(), strict=True):
        level = without(method)
        found.append(Curve(name, [(MUS[0], level), (MUS[-1], level)], None, dashes))
    return found


def means(path: str) -> Mapping[tuple[str, int, int, float], float]:
    """The mean accuracy over repetitions, by method, parties, honest parties and μ."""
    runs: dict[tuple[str, int, int, float], list[float]] = defaultdict(list)
    for row in json.loads((ROOT / "reproduce" / path).read_text())["rows"]:
        given, figures = row["settings"], row["figures"]
        if given.get("parties") and given.get("data") == "cifar10":
            key = given["method"], given["parties"], given.get("honest") or 1, given["mu"]
            runs[key].append(figures["accuracy %"] / 100)
    return {key: fmean(values) for key, values in runs.items()}


def without(method: str) -> float:
    """The accuracy of a method without a guarantee: 10 parties, dealt by Dir(1)."""
    wanted = {"table": "5", "parties": 10, "beta": 1.0, "method": method}
    rows = json.loads((ROOT / "reproduce/singular/collaborative.json").read_text())["rows"]
    (found,) = [row["figures"] for row in rows if wanted.items() <= row["settings"].items()]
    return float(found["accuracy %"]) / 100


def panel(found: Sequence[Curve]) -> str:
    """The plot, to the right of the pictures."""
    made = plot("CIFAR-10, 10 parties: accuracy at each μ", "μ", MUS, found, shares=True, below=True)
    return made.replace("<svg ", f'<svg x="{LEFT + SHOWN * (SIDE + GAP) + 24}" y="0" ', 1)


def drawn(lines: Sequence[Line], found: Sequence[Curve]) -> str:
    """The whole picture as SVG: nothing in it is loaded from elsewhere."""
    parts = [f'<text x="{LEFT}" y="18" font-weight="600">What attackers get of digits of 8 × 8</text>']
    for number, line in enumerate(lines):
        parts += _line(line, TOP + number * (SIDE + 12))
    height = max(380, TOP + len(lines) * (SIDE + 12))
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"'
    font = 'xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif" font-size="12"'
    return f'<svg {font} {size}><rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}{panel(found)}</svg>\n'


def _line(line: Line, down: int) -> list[str]:
    right = LEFT - 10
    parts = [
        f'<text x="{right}" y="{down + 17}" text-anchor="end" font-weight="600">{line.title}</text>',
        f'<text x="{right}" y="{down + 33}" text-anchor="end" fill="#555">{line.below}</text>',
    ]
    for number, image in enumerate(line.images):
        place = f'x="{LEFT + number * (SIDE + GAP)}" y="{down}" width="{SIDE}" height="{SIDE}"'
        parts.append(f'<image {place} style="image-rendering:pixelated" href="{png(image)}"/>')
    return parts


if __name__ == "__main__":
    main()
