"""Singularized mixup's tables beside ours."""

from __future__ import annotations

from reproduce.rendering.comparison import Comparison
from reproduce.rendering.figures import Figure, Ours
from reproduce.rendering.stored import Claim, Row, rows

PAPER = "singular"
SETS = {"MNIST": "mnist", "CIFAR-10": "cifar10", "CIFAR-100": "cifar100", "Tiny-ImageNet": "tiny-imagenet"}
BEST = "best epoch on the test set %"
MODES = {"re-mixed in every batch": "re-mixed every batch: no release", "one release": "one release"}
OWN = {"mnist": "resnet18, layer4", "cifar10": "resnet18, layer4"}
"""The paper's own networks, where they were measured; the others' features are of EfficientNet-Lite0."""
HEADS = {"a linear head": "linear", "three layers": "mlp"}


def _by_data(file: str, claim: Claim) -> list[Row]:
    return rows(PAPER, file, data=SETS.get(claim["dataset"]), tau=float(claim["tau"]))


def _screened(claim: Claim, variant: str) -> list[Row]:
    return _by_data("table1.json", claim)


def _linear(claim: Claim, variant: str) -> list[Row]:
    return _by_data("table2.json", claim)


def _network(claim: Claim, variant: str) -> list[Row]:
    return rows(PAPER, "table3.json", attack="unet", tau=float(claim["tau"]))


def _strong(claim: Claim, variant: str) -> list[Row]:
    return rows(PAPER, "table3.json", attack="unet-strong", tau=float(claim["tau"]))


def _learnt(claim: Claim, variant: str) -> list[Row]:
    """Accuracy at the nominal τ; InstaHide's are those of its own folder."""
    data = SETS[claim["dataset"]]
    if claim["method"] == "instahide_k4":
        found = rows("instahide", "accuracy.json", data=data, mode="inside", k=4)
        most = max((row["epochs"] for row in found), default=0)
        wanted = variant == "re-mixed in every batch"
        return [row for row in found if wanted and row["epochs"] == most]
    backbone = OWN.get(data, "efficientnet_lite0, head")
    return rows(PAPER, "accuracy.json", data=data, backbone=backbone, mode=MODES[variant], **{"nominal tau": 1e-6})


def _as_named(claim: Claim, variant: str) -> list[Row]:
    """The accuracies of both, under one name."""
    return [
        {**row, "last": row["accuracy %"] if "accuracy %" in row else row["plain %"]} for row in _learnt(claim, variant)
    ]


def _together(table: str, method: str) -> Ours:
    titles = {"fedprox": "ours, its setting", "fedprox-tuned": "ours, tuned", "one-shot": "one release"}

    def found(claim: Claim, variant: str) -> list[Row]:
        wanted = {"parties": int(claim["parties"]), "beta": float(claim["beta"]), "rho": float(claim.get("rho") or 1)}
        head = HEADS.get(variant, "linear")
        return rows(PAPER, "collaborative.json", table=table, method=method, head=head, **wanted)

    return Ours(titles.get(method, "re-mixed in every batch"), found, ("accuracy %",))


def _collaborative(table: str) -> tuple[Figure, ...]:
    fedprox = tuple(_together(table, method) for method in ("fedprox", "fedprox-tuned"))
    records = tuple(_together(table, method) for method in ("one-shot", "remixed"))
    return (
        Figure("FedProx, %", ("fedprox_percent",), fedprox),
        Figure("singularized mixup, %", ("singular_percent",), records),
    )


COMPARISONS = (
    Comparison(
        PAPER,
        "1",
        "table1.csv",
        {"dataset": "data", "tau": "τ"},
        (
            Figure("rows left out, %", ("excluded_percent",), (Ours("LPIPS < 0.7", _screened, ("LPIPS < 0.7 %",)),)),
            Figure("rows left out, %", (), (Ours("LPIPS < 0.9", _screened, ("LPIPS < 0.9 %",)),)),
        ),
    ),
    Comparison(
        PAPER,
        "2",
        "table2.csv",
        {"dataset": "data", "tau": "τ"},
        (
            Figure("SNR, dB", ("snr_db", "snr_db_std"), (Ours("", _linear, ("SNR dB", "SNR dB std")),)),
            Figure("SSIM", ("ssim", "ssim_std"), (Ours("", _linear, ("SSIM", "SSIM std")),), 3),
            Figure("LPIPS", ("lpips", "lpips_std"), (Ours("", _linear, ("LPIPS", "LPIPS std")),), 3),
        ),
    ),
    Comparison(
        PAPER,
        "3",
        "table3.csv",
        {"tau": "τ"},
        (
            Figure(
                "SNR, dB (best)",
                ("snr_db", "snr_db_std", "best_snr_db"),
                (Ours("", _network, ("SNR dB", "SNR dB std", "best SNR dB")),),
            ),
            Figure("SSIM", ("ssim", "ssim_std"), (Ours("", _network, ("SSIM", "SSIM std")),), 3),
            Figure("LPIPS", ("lpips", "lpips_std"), (Ours("", _network, ("LPIPS", "LPIPS std")),), 3),
            Figure("SNR, dB", (), (Ours("`unet-strong`, ours alone", _strong, ("SNR dB", "SNR dB std")),)),
        ),
    ),
    Comparison(
        PAPER,
        "4",
        "table4.csv",
        {"method": "method", "dataset": "data"},
        (
            Figure("accuracy, %", ("accuracy_percent",), (Ours("ours, last epoch", _as_named, ("last",)),)),
            Figure("accuracy, %", (), (Ours("best epoch on the test set", _learnt, (BEST,)),)),
        ),
        ("re-mixed in every batch", "one release"),
    ),
    Comparison(PAPER, "5", "table5.csv", {"parties": "parties", "beta": "β"}, _collaborative("5"), tuple(HEADS)),
    Comparison(PAPER, "6", "table6.csv", {"parties": "parties", "beta": "β", "rho": "ρ"}, _collaborative("6")),
)
