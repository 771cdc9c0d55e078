"""What InstaHide's recipe learns (§5.1, §5.2, App. E): ResNet-18 from scratch, on encodings.

    MIXVEIL_DATA=DIR python -m reproduce.instahide.accuracy --what table2 [--epochs 200] [--out FILE]

- table2: CIFAR-10, inside the data set, k = 4: encoded again for every epoch, as the paper trains; one release, the
  same encodings in every epoch; and in the clear.
- mnist: the same with k = 4 inside, and k = 4 and 6 with CIFAR-10 as public images.
- ks: CIFAR-10, k = 1 … 6. alpha: Laplace noise beside InstaHide of two images with weights 1 − α and α.
- overhead: seconds of an epoch with the encoding and without, in turns. trial: seconds of an epoch, by ways to run it.
- dpsgd: MNIST by DP-SGD at ε = 3, a small network, Opacus.

Every accuracy is the last epoch's, of test images as they are (plain) and as the mean over ten encodings of each
(encoded). Several trainings share a GPU, a CUDA stream each. A training keeps its state in --state: a command that was
stopped, or that reached --seconds, goes on where it was. Runs that are in the file already are kept.
`reproduce.instahide.gather` makes tables of such files.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mixveil.core import checkpoint, files
from mixveil.core.checkpoint import Saved
from mixveil.core.errors import TrainingStopped
from mixveil.core.randomness import SeededStream
from mixveil.learn.image_training import ImageTraining
from reproduce.instahide import dpsgd, speed
from reproduce.instahide.runs import Run, Sets, covers_for, loaded, runs, source_of, tested

HERE = Path(__file__).parent
PARTS = ("table2", "inside", "release", "vanilla", "mnist", "ks", "alpha", "overhead", "trial", "dpsgd")
PAPER_ROW = {
    "vanilla": "vanilla",
    "inside": "inside_k{k}",
    "cross": "cross_k{k}",
    "release": "inside_k{k}",
    "dpsgd": "dpsgd",
}
Row = dict[str, Any]


class Work:
    """The data that trainings share, and how they are run."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen = chosen
        self.device = torch.device(chosen.device)
        self.sets: dict[str, Sets] = {}
        self.covers: Tensor | None = None
        self.stop_at = time.monotonic() + chosen.seconds

    def started(self, run: Run) -> ImageTraining:
        chosen, sets = self.chosen, self.data(run.data)
        covers = self.public(sets) if run.mode == "cross" else None
        augment = augments(run, chosen)
        measure = tested(run, sets, covers, max(1, run.epochs // 20), max(1, run.epochs // 4))
        about = {**run.plain(), "rows": len(sets.x), "width": chosen.width, "batch": chosen.batch, "augment": augment}
        return ImageTraining(
            source_of(run, sets, covers, augment=augment),
            run.recipe(chosen.width, chosen.batch),
            saved=Saved(self.state(run), about, chosen.every),
            measure=measure,
            note=lambda text: say(f"{run.name}: {text}"),
            stop=lambda: time.monotonic() > self.stop_at,
            graph=not chosen.no_graph,
            compiled=chosen.compiled,
        )

    def data(self, name: str) -> Sets:
        if name not in self.sets:
            self.sets[name] = loaded(name, self.device, self.chosen.rows)
        return self.sets[name]

    def public(self, sets: Sets) -> Tensor:
        if self.covers is None:
            self.covers = covers_for(sets, self.device, self.chosen.rows, SeededStream(0).fork("covers"))
        return self.covers

    def state(self, run: Run) -> Path:
        return Path(self.chosen.state) / f"{run.name}.training"


def together(work: Work, waiting: list[Run], results: Results) -> bool:
    """All runs, so many at a time, step by step in turns. False where some are not finished."""
    going: list[tuple[Run, ImageTraining, Iterator[int], float]] = []
    finished = True
    while waiting or going:
        while waiting and len(going) < work.chosen.side:
            if time.monotonic() > work.stop_at:
                say(f"no time left for {', '.join(run.name for run in waiting)}")
                finished, waiting = False, []
                break
            run = waiting.pop(0)
            training = work.started(run)
            going.append((run, training, training.steps(), time.monotonic()))
        for item in [*going]:
            run, training, steps, begun = item
            try:
                next(steps)
            except StopIteration:
                results.keep(run, training, time.monotonic() - begun)
                checkpoint.discard(work.state(run))
                going.remove(item)
            except TrainingStopped as stopped:
                say(f"{run.name}: {stopped}")
                results.unfinished(run, training)
                finished = False
                going.remove(item)
    return finished


class Results:
    """The file: provenance, and for every run its settings, figures and learning curve."""

    def __init__(self, path: Path, chosen: argparse.Namespace) -> None:
        self.path, self.chosen = path, chosen
        self.rows: list[Row] = json.loads(path.read_text())["runs"] if path.exists() else []
        self.stopped: list[Row] = []

    def settings(self, run: Run) -> Row:
        chosen = self.chosen
        return {
            **run.plain(),
            "width": chosen.width,
            "batch": chosen.batch,
            "rows": chosen.rows,
            "augment": augments(run, chosen),
        }

    def known(self, run: Run) -> bool:
        return any(row["settings"] == self.settings(run) for row in self.rows)

    def keep(self, run: Run, training: ImageTraining, seconds: float) -> None:
        last = training.curve[-1]
        figures = {name: last.get(name) for name in ("loss", "plain %", "encoded %")}
        row = {
            "settings": self.settings(run),
            "figures": {**figures, **paper(run), "seconds": seconds, "side by side": self.chosen.side},
            "falls": list(training.recipe.falls),
            "about": about(self.chosen),
            "curve": training.curve,
        }
        say(f"{run.name}: {row['figures']}")
        self.rows = [old for old in self.rows if old["settings"] != row["settings"]] + [row]
        self.write()

    def unfinished(self, run: Run, training: ImageTraining) -> None:
        """What is known so far of a run that goes on later: no result."""
        self.stopped.append({"settings": self.settings(run), "about": about(self.chosen), "curve": training.curve})
        self.write()

    def add(self, row: Row) -> None:
        told = {name: value for name, value in about(self.chosen).items() if name not in row["settings"]}
        self.rows.append({**row, "about": told})
        self.write()

    def write(self) -> None:
        whole = {"title": "InstaHide: accuracy of training from scratch on encodings", "runs": self.rows}
        whole |= {"unfinished": self.stopped} if self.stopped else {}
        files.write_whole(self.path, (json.dumps(whole, indent=1, allow_nan=False) + "\n").encode())


def augments(run: Run, chosen: argparse.Namespace) -> bool:
    """Whether images are moved and mirrored before they are encoded. A release is made once."""
    return run.data == "cifar10" and run.mode != "release" and not chosen.no_augment


def paper(run: Run) -> Row:
    """The paper's accuracies of this run, in percent (Table 2)."""
    if run.mode not in PAPER_ROW:
        return {}
    with (HERE / "claims" / "table2.csv").open() as file:
        told = {row["method"]: row.get(run.data) for row in csv.DictReader(file)}
    row = PAPER_ROW[run.mode].format(k=run.k)
    found = {"paper plain %": told.get(row), "paper encoded %": told.get(f"{row}_in_inference")}
    return {name: float(value) for name, value in found.items() if value}


def about(chosen: argparse.Namespace) -> Row:
    gpu = torch.device(chosen.device).type == "cuda"
    told = {"commit": chosen.commit} if chosen.commit else {}
    return {
        **told,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name() if gpu else "cpu",
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "graph": gpu and not chosen.no_graph,
        "compiled": chosen.compiled,
    }


def table(rows: Sequence[Row]) -> str:
    """Ours beside the paper's."""
    lines = [f"{'run':44} {'plain':>7} {'paper':>7} {'encoded':>8} {'paper':>7} {'seconds':>8}"]
    for row in rows:
        figures, settings = row["figures"], row["settings"]
        if "mode" in settings:
            parts = [
                settings["data"],
                settings["mode"],
                settings["k"] and f"k={settings['k']}",
                settings["alpha"] and f"α={settings['alpha']}",
                f"{settings['epochs']} epochs",
            ]
            cells = [
                _cell(figures.get(name))
                for name in ("plain %", "paper plain %", "encoded %", "paper encoded %", "seconds")
            ]
            lines.append(
                f"{' '.join(str(p) for p in parts if p):44} {cells[0]:>7} {cells[1]:>7} {cells[2]:>8} "
                f"{cells[3]:>7} {cells[4]:>8}"
            )
        else:
            lines.append(f"{settings} {figures}")
    return "\n".join(lines)


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def say(text: str) -> None:
    sys.stderr.write(f"{datetime.now(UTC):%H:%M:%S} {text}\n")
    sys.stderr.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", nargs="+", choices=PARTS, default=["table2"])
    parser.add_argument("--epochs", type=int, help="of every run; default: the paper's")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", help="runs whose names hold this text")
    parser.add_argument("--side", type=int, default=1, help="trainings at a time")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long, keeping states")
    parser.add_argument("--every", type=float, default=60.0, help="seconds between states")
    parser.add_argument("--state", type=Path, default=Path("build/instahide"))
    parser.add_argument("--rows", type=int, help="so many images only, for a trial")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--no-augment", action="store_true")
    parser.add_argument("--no-graph", action="store_true")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--repeats", type=int, default=5, help="of overhead")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--commit", help="of these sources, to be kept with the runs")
    parser.add_argument("--out", type=Path, default=HERE / "runs.json")
    chosen = parser.parse_args()
    if (chosen.rows is not None or chosen.width != 64) and chosen.out.parent == HERE:
        parser.error("--rows and --width are for trials: name another file with --out")
    torch.backends.cudnn.benchmark = True
    chosen.state.mkdir(parents=True, exist_ok=True)
    work, results = Work(chosen), Results(chosen.out, chosen)
    whole = True
    for what in chosen.what:
        if what in ("overhead", "trial"):
            for row in getattr(speed, what)(work.data("cifar10"), chosen, say):
                results.add(row)
            continue
        if what == "dpsgd":
            for row in dpsgd.dpsgd(work.data("mnist"), chosen.epochs or dpsgd.EPOCHS, 0, say):
                paper_row = paper(Run("mnist", "dpsgd")) if row["settings"]["private"] else {}
                results.add({**row, "figures": {**row["figures"], **paper_row}})
            continue
        wanted = [run for run in runs(what, chosen.epochs, chosen.seeds) if (chosen.only or "") in run.name]
        whole &= together(work, [run for run in wanted if not results.known(run)], results)
    sys.stdout.write(table(results.rows) + "\n")
    if not whole:
        raise SystemExit("not all runs are finished: the same command goes on")


if __name__ == "__main__":
    main()
