"""MixCon's tables beside ours."""

from __future__ import annotations

from reproduce.rendering.comparison import Comparison
from reproduce.rendering.figures import Figure, Ours
from reproduce.rendering.stored import Claim, Row, rows

PAPER = "mixcon"
READINGS = ("as printed", "vanilla trains", "vanilla trains, norm 1", "vanilla trains, λ = 1")
INVERTED = {"vanilla": "vanilla", "mixcon_0.1_0.01": "mixcon_beta0.01", "mixcon_0.1_0": "mixcon_beta0"}
SETS = {"MNIST": "mnist", "FashionMNIST": "fashion-mnist"}
SSIM, PSIM = ("ssim", "ssim_std", "ssim_worst"), ("psim", "psim_std", "psim_worst")


def _accuracies(claim: Claim, variant: str) -> list[Row]:
    return rows(PAPER, "synthetic.json", table="1", reading=variant, setting=claim["setting"])


def _inversions(claim: Claim, variant: str) -> list[Row]:
    reading, start = variant.rsplit(", from ", 1)
    found = rows(PAPER, "synthetic.json", table="2", reading=reading, start=start, setting=INVERTED[claim["setting"]])
    return [row for row in found if row["MSE"] is not None]


def _case(claim: Claim) -> tuple[str | None, str]:
    if "dataset" in claim:
        return SETS.get(claim["dataset"]), claim["method"]
    return "cifar10-vgg", claim["method"].partition("_")[0]


def _trained(claim: Claim, variant: str) -> list[Row]:
    case, method = _case(claim)
    return rows(PAPER, "images.json", case=case, method=method, attack="none")


def _attacked(attack: str, *names: str) -> Ours:
    def found(claim: Claim, variant: str) -> list[Row]:
        case, method = _case(claim)
        which = "inversion-gan" if attack == "inversion" and case == "cifar10-vgg" else attack
        return rows(PAPER, "images.json", case=case, method=method, attack=which)

    title = {"PSIM lpips-vgg": "VGG-16", "PSIM lpips-alex": "AlexNet"}.get(names[0], "")
    return Ours(title if attack == "inversion" else f"`{attack}`, ours alone", found, names)


def _parts(name: str) -> tuple[str, str, str]:
    return name, f"{name} std", f"{name} worst"


IMAGES = (
    Figure("accuracy, %", ("accuracy_percent",), (Ours("", _trained, ("accuracy",), 100.0),), 1),
    Figure("SSIM (best image)", SSIM, (_attacked("inversion", *_parts("SSIM")),)),
    Figure(
        "PSIM (best image)",
        PSIM,
        (_attacked("inversion", *_parts("PSIM lpips-vgg")), _attacked("inversion", *_parts("PSIM lpips-alex"))),
    ),
    Figure("SSIM (best image)", (), (_attacked("inversion-adaptive", *_parts("SSIM")),)),
)

COMPARISONS = (
    Comparison(
        PAPER,
        "1",
        "table1.csv",
        {"setting": "setting"},
        (
            Figure("training data, %", ("train_percent",), (Ours("", _accuracies, ("train %",)),), 1),
            Figure("test data, %", ("test_percent",), (Ours("", _accuracies, ("test %",)),), 1),
        ),
        READINGS,
    ),
    Comparison(
        PAPER,
        "2",
        "table2.csv",
        {"setting": "setting"},
        (
            Figure("MSE", ("mse",), (Ours("", _inversions, ("MSE",)),)),
            Figure("mean cosine", ("mean_cosine_similarity",), (Ours("", _inversions, ("cosine",)),), 3),
        ),
        tuple(f"{reading}, from {start}" for reading in READINGS for start in ("N(0, I)", "zeros")),
    ),
    Comparison(
        PAPER,
        "3 and 4",
        "table3-4.csv",
        {"dataset": "data", "method": "method", "lambda": "λ", "beta": "β"},
        IMAGES,
    ),
    Comparison(PAPER, "5", "table5.csv", {"method": "method"}, IMAGES),
)
