"""The pictures of docs/results, as SVG files of their own."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from mixveil.report.lines import Curve, plot
from reproduce.rendering import fedaugmix, singular
from reproduce.rendering.stored import claims, rows

Points = Sequence[tuple[float, float]]
_PAPER = "5 4"


def files() -> dict[str, str]:
    """Every picture, by the name of its file."""
    return {
        "singular-table2.svg": _linear(),
        "singular-table3.svg": _networks(),
        "fedaugmix-table2.svg": _inverted(),
        "certified-rounds.svg": _rounds(),
    }


def _file(title: str, across: str, curves: Sequence[Curve]) -> str:
    values = sorted({x for curve in curves for x, _ in curve.points})
    drawn = plot(title, across, values, curves, shares=False, below=True)
    drawn = drawn.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg" font-family="system-ui" font-size="12"', 1)
    return drawn.replace("</title>", '</title><rect width="100%" height="100%" fill="#fff"/>', 1) + "\n"


def _linear() -> str:
    """Ours beside the paper's, a colour for each data set."""
    told, curves = claims("singular", "table2.csv"), list[Curve]()
    for style, (name, data) in enumerate(singular.SETS.items()):
        paper = [(float(claim["tau"]), float(claim["snr_db"])) for claim in told if claim["dataset"] == name]
        ours = [(row["tau"], row["SNR dB"]) for row in rows("singular", "table2.json", data=data)]
        curves += [Curve(f"{name}, ours", sorted(ours), style), Curve(f"{name}, paper", sorted(paper), style, _PAPER)]
    return _file("The paper's linear attack: SNR in dB", "τ", curves)


def _networks() -> str:
    told = claims("singular", "table3.csv")
    curves = [Curve("paper's U-Net, paper", sorted((float(c["tau"]), float(c["snr_db"])) for c in told), 0, _PAPER)]
    for style, (attack, name) in enumerate((("unet", "paper's U-Net, ours"), ("unet-strong", "our network"))):
        found = rows("singular", "table3.json", attack=attack)
        curves.append(Curve(name, sorted((row["tau"], row["SNR dB"]) for row in found), style))
    return _file("Networks against CIFAR-10: SNR in dB", "τ", curves)


def _inverted() -> str:
    """MNIST, untrained: the only set with all severities, and a stage where the attack works without a defence."""
    told = [c for c in claims("fedaugmix", "table2.csv") if (c["dataset"], c["stage"]) == ("MNIST", "untrained")]
    told = [claim for claim in told if claim["severity"] != "none"]
    curves = [Curve("paper", [(float(c["severity"]), float(c["ssim_percent"])) for c in told], 0, _PAPER)]
    for style, attack in enumerate(("paper", "strong", "adaptive")):
        points = [(float(c["severity"]), row["ssim %"]) for c in told for row in fedaugmix.attacked(attack, c)]
        name = "paper's attack, ours" if attack == "paper" else attack
        curves.append(Curve(name, points, style))
    return _file("Fed-AugMix, MNIST, untrained: SSIM in %", "severity", curves)


def _rounds() -> str:
    found = rows("certified", "rounds-cifar10.json", method="rounds")
    kinds = {
        "one party": (1, 1),
        "10, secure sums": (10, 10),
        "10, each noisy": (10, 1),
        "100, secure sums": (100, 100),
        "100, each noisy": (100, 1),
    }
    lines = {
        name: _means([(r["mu"], r["accuracy %"]) for r in found if (r["parties"], r["honest"]) == kind])
        for name, kind in kinds.items()
    }
    for parties in (10, 100):
        private = rows("certified", "rounds-dp-sgd.json", method="dp-sgd", parties=parties)
        lines[f"{parties}, DP-SGD"] = _means([(row["mu"], row["accuracy %"]) for row in private])
    return _file("CIFAR-10: accuracy in %", "μ", list(_curves(lines)))


def _curves(lines: Mapping[str, Points]) -> Iterator[Curve]:
    for style, (name, points) in enumerate(lines.items()):
        yield Curve(name, points, style)


def _means(points: Points) -> Points:
    """One point for each x."""
    return [(x, statistics.fmean(b for a, b in points if a == x)) for x in sorted({a for a, _ in points})]
