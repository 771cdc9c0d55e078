"""The tables of docs/mixcon.md, from `synthetic.json`, `images.json` and `sweep.json`, beside the paper's figures.

python -m reproduce.mixcon.tables
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from mixveil.report.results import read_results
from reproduce.instahide.break_tables import table
from reproduce.singular.shared import Row

HERE = Path(__file__).parent
SETS = {"MNIST": "mnist", "FashionMNIST": "fashion-mnist"}
ORDER = ("vanilla", "unicon", "mixcon")
ATTACKS = ("inversion", "inversion-gan", "inversion-adaptive", "knowing nothing")


def rows_of(name: str) -> list[Row]:
    path = HERE / name
    return [{**row["settings"], **row["figures"]} for row in read_results(path).rows] if path.exists() else []


def claims(name: str) -> list[dict[str, str]]:
    with (HERE / "claims" / name).open() as file:
        return list(csv.DictReader(file))


def spread(values: Iterable[float | None], digits: int = 1) -> str:
    """Mean ± standard deviation."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    more = f" ± {statistics.stdev(known):.{digits}f}" if len(known) > 1 else ""
    return f"{statistics.mean(known):.{digits}f}{more}"


def accuracies() -> str:
    """Table 1, by reading."""
    rows = [row for row in rows_of("synthetic.json") if row["table"] == "1"]
    paper = {line["setting"]: f"{line['train_percent']} / {line['test_percent']}" for line in claims("table1.csv")}
    readings = list(dict.fromkeys(row["reading"] for row in rows))
    lines = []
    for setting in dict.fromkeys(row["setting"] for row in rows):
        cells = [setting.replace("_", ", "), paper.get(setting, "–")]
        for reading in readings:
            here = [row for row in rows if (row["reading"], row["setting"]) == (reading, setting)]
            cells.append(f"{spread(row['train %'] for row in here)} / {spread(row['test %'] for row in here)}")
        lines.append(cells)
    return table(["train / test accuracy, %", "paper", *readings], lines)


def inversions() -> str:
    """Table 2, by reading, from N(0, I)."""
    rows = [row for row in rows_of("synthetic.json") if row["table"] == "2" and row["start"] != "zeros"]
    readings, lines = list(dict.fromkeys(row["reading"] for row in rows)), []
    for setting in dict.fromkeys(row["setting"] for row in rows):
        own = [row for row in rows if row["setting"] == setting]
        cells = [setting.replace("_", ", "), f"{own[0][_MSE]} / {own[0][_COSINE]}"]
        for reading in readings:
            here = [row for row in own if row["reading"] == reading]
            cells.append(f"{spread((row['MSE'] for row in here), 2)} / {spread((row['cosine'] for row in here), 3)}")
        lines.append(cells)
    return table(["MSE / mean cosine", "paper", *readings], lines)


_MSE, _COSINE = "paper's MSE", "paper's cosine"


def images() -> str:
    """Tables 3, 4 and 5: accuracy, and SSIM and PSIM of every attack."""
    rows = rows_of("images.json")
    paper: dict[tuple[str, str], dict[str, str]] = {}
    for line in claims("table3-4.csv"):
        if line["dataset"] in SETS:  # SVHN's are not CIFAR-10's
            paper[SETS[line["dataset"]], line["method"]] = line
    for line in claims("table5.csv"):
        paper["cifar10-vgg", line["method"].partition("_")[0]] = line
    lines = []
    wanted = [(case, m, a) for case in dict.fromkeys(row["case"] for row in rows) for m in ORDER for a in ATTACKS]
    for case, method, attack in wanted:
        here = [row for row in rows if (row["case"], row["method"], row["attack"]) == (case, method, attack)]
        if not here or (attack == "knowing nothing" and method != "vanilla"):
            continue
        trained = [row for row in rows if (row["case"], row["method"], row["attack"]) == (case, method, "none")]
        lines.append(_line(case, method, attack, here, trained, paper.get((case, method), {})))
    head = ["data and network", "method", "accuracy, %", "paper", "attack", "SSIM (best image)", "paper"]
    return table([*head, "PSIM VGG (best)", "PSIM AlexNet", "paper"], lines)


def _line(
    case: str, method: str, attack: str, here: Sequence[Row], trained: Sequence[Row], claim: dict[str, str]
) -> list[str]:
    first, own = here[0], attack == ("inversion-gan" if case == "cifar10-vgg" else "inversion")
    alike = f"{first['SSIM']:.2f} ± {first['SSIM std']:.2f} ({first['SSIM worst']:.2f})"
    said = f"{claim['ssim']} ± {claim['ssim_std']} ({claim['ssim_worst']})" if own and claim else ""
    near = f"{claim['psim']} ± {claim['psim_std']} ({claim['psim_worst']})" if own and claim else ""
    psim = [f"{first[f'PSIM lpips-{net}']:.2f} ({first[f'PSIM lpips-{net} worst']:.2f})" for net in ("vgg", "alex")]
    nothing = attack == "knowing nothing"
    accuracy = "" if nothing else spread(100 * row["accuracy"] for row in trained)
    published = "" if nothing or not claim else claim["accuracy_percent"]
    return [
        f"{case}, {first['network']}",
        "" if nothing else method,
        accuracy,
        published,
        attack,
        alike,
        said,
        *psim,
        near,
    ]


def sweeps() -> str:
    """Figure 3 as a table: what is within a point of the accuracy without a penalty, least recovered first."""
    lines = []
    for data in dict.fromkeys(row["data"] for row in rows_of("sweep.json")):
        rows = [row for row in rows_of("sweep.json") if row["data"] == data]
        bare = next(row for row in rows if row["penalty"] == "none")
        good = [row for row in rows if row["accuracy"] >= bare["accuracy"] - 0.01]
        for row in [bare, *sorted((row for row in good if row is not bare), key=lambda row: row["SSIM"])[:6]]:
            setting = "no penalty" if row is bare else f"λ = {row['lambda']:g}, β = {row['beta']:g}"
            marked = " **marked**" if row["marked"] else ""
            figures = [f"{100 * row['accuracy']:.1f}", f"{row['mean distance']:.3f}", f"{row['SSIM']:.2f}"]
            lines.append([data, setting + marked, *figures, f"{row['SSIM worst']:.2f}"])
    head = ["data", "setting", "accuracy, %", "mean distance", "SSIM", "best image"]
    return table(head, lines)


def main() -> None:
    for title, made in (("Table 1", accuracies), ("Table 2", inversions), ("Tables 3 to 5", images), ("Sweep", sweeps)):
        sys.stdout.write(f"{title}\n\n{made()}\n")


if __name__ == "__main__":
    main()
