"""Fed-AugMix's tables beside ours."""

from __future__ import annotations

from reproduce.rendering.comparison import Comparison
from reproduce.rendering.figures import Figure, Ours
from reproduce.rendering.stored import Claim, Row, rows

PAPER = "fedaugmix"
SETS = {"MNIST": "mnist", "CIFAR-10": "cifar10", "CIFAR-100": "cifar100"}


def attacked(attack: str, claim: Claim) -> list[Row]:
    """The run of an attack with most steps."""
    defence = "none" if claim["severity"] == "none" else f"severity {claim['severity']}"
    wanted = {"dataset": SETS[claim["dataset"]], "stage": claim["stage"], "defence": defence, "attack": attack}
    found = rows(PAPER, "attack.json", work="table2", **wanted)
    most = max((row["steps"] for row in found), default=0)
    return [row for row in found if row["steps"] == most]


def _ours(attack: str, name: str, title: str = "") -> Ours:
    return Ours(title, lambda claim, variant: attacked(attack, claim), (name,))


def _trained(severity: float, name: str, title: str = "") -> Ours:
    def found(claim: Claim, variant: str) -> list[Row]:
        told = rows(PAPER, "accuracy.json", dataset=SETS[claim["dataset"]], method=claim["method"].lower())
        told = [row for row in told if row["severity"] == severity and row["variant"] in ("none", "whole")]
        most = max((row["rounds"] for row in told), default=0)
        return [row for row in told if row["rounds"] == most]

    return Ours(title, found, (name,))


COMPARISONS = (
    Comparison(
        PAPER,
        "2",
        "table2.csv",
        {"dataset": "data", "stage": "stage", "severity": "severity"},
        (
            Figure("MSE", ("mse",), (_ours("paper", "mse"),)),
            Figure("SSIM, %", ("ssim_percent",), (_ours("paper", "ssim %"),), 1),
            Figure("PSNR, dB", ("psnr_db",), (_ours("paper", "psnr dB"),), 1),
            Figure("SSIM, %", (), (_ours("strong", "ssim %", "`strong`, ours alone"),), 1),
            Figure("SSIM, %", (), (_ours("adaptive", "ssim %", "`adaptive`, ours alone"),), 1),
        ),
    ),
    Comparison(
        PAPER,
        "3",
        "table3.csv",
        {"dataset": "data", "method": "method"},
        (
            Figure("without, %", ("vanilla_percent",), (_trained(0.0, "test last %"),), 1),
            Figure("Fed-AugMix, %", ("fedaugmix_percent",), (_trained(2.0, "test last %"),), 1),
            Figure("without, %", (), (_trained(0.0, "own clients %", "own models, ours alone"),), 1),
            Figure("Fed-AugMix, %", (), (_trained(2.0, "own clients %", "own models, ours alone"),), 1),
        ),
    ),
)
