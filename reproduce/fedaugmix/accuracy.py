"""Fed-AugMix's Table III, Figures 4, 5 and 7: accuracy of FedAvg and FedProx, with and without Fed-AugMix.

python -m reproduce.fedaugmix.accuracy --data DIR --dataset mnist --seeds 3 --methods fedavg,fedprox --severity 0,2
python -m reproduce.fedaugmix.accuracy --data DIR --dataset mnist --methods fedavg --severity 0,2,4,6,8,10
python -m reproduce.fedaugmix.accuracy --data DIR --dataset mnist --methods fedavg --severity 2 --variants VARIANTS
python -m reproduce.fedaugmix.accuracy --data DIR --dataset mnist --choose --rates 0.02,0.05 --severity 0,2

100 clients, of which 10 train in a round; each class of the training set is dealt to them by Dir(0.1), and every client
keeps a quarter of its rows for testing. Severity 0 is training without Fed-AugMix. The paper gives neither rounds nor
rates nor the severity of its Table III, and has a ResNet-50 for CIFAR: ours are `RECIPES`. MNIST's rate was
looked for with `--choose`, which sets a sixth of the training rows aside before any are dealt and measures on those
alone: 0.05, 0.1 and 0.2 gave 91.3, 91.7 and 93.5 % after 10 rounds of FedAvg (one seed), and at 0.1 Fed-AugMix was seen
to learn as well. FedProx's μ and CIFAR's settings were not searched for.

Figures of accuracy, in percent, are of the global model: on all clients' test rows together, its mean over clients, on
the official test set; after the last round, as the mean of the last measurements (a tenth of the rounds), and the best
of all, which is chosen on the rows it is measured on; and `own`: after every client has trained the last model once
more for itself.

Rows that FILE has are not made again. With `--state` a run that was stopped goes on behind its last measurement;
`--minutes` stops by itself. Curves are kept beside FILE, in FILE-curves.json.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import itertools
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import TrainingError
from mixveil.core.first_weights import started
from mixveil.core.local_training import AugMix
from mixveil.core.randomness import SeededStream
from mixveil.data.images import Images
from mixveil.data.partition import set_aside
from mixveil.features.split.networks import network
from mixveil.federated.cohorts import CohortConfig, Cohorts, Labelled
from mixveil.report.results import provenance
from reproduce.enlarged import NAME, open_data
from reproduce.singular.shared import Row, keep, known

HERE = Path(__file__).parent
TITLE = "Fed-AugMix: accuracy, Table III and Figures 4, 5 and 7"
SET_ASIDE = 6  # one of so many training rows, to choose settings on
FEDPROX = 0.1
CLIENTS = 100


class Recipe(NamedTuple):
    """What a data set is trained with, by plain SGD at a constant rate. centre, spread: of its training pixels in each
    channel, by which images are scaled."""

    network: str
    rounds: int
    epochs: int
    batch: int
    rate: float
    centre: tuple[float, ...]
    spread: tuple[float, ...]


RECIPES = {
    "mnist": Recipe("lenet5", 100, 5, 32, 0.1, (0.1307,), (0.3081,)),
    "cifar10": Recipe("convnet", 300, 2, 32, 0.1, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": Recipe("convnet", 300, 2, 32, 0.1, (0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762)),
    NAME: Recipe("lenet5", 3, 1, 32, 0.1, (0.3063,), (0.3240,)),  # to try the scripts
}

VARIANTS: dict[str, dict[str, Any]] = {
    "whole": {},
    # Without the divergence views have no part in the loss: here each step has one view in place of each image.
    "views by cross-entropy": {"views": 1},
    "two views": {"views": 1},  # the image and one augmented view
    "no loss scaling": {"large": AugMix(1.0).weight},
}
"""Of Fed-AugMix, by what is unlike the paper's."""


class Stopped(Exception):  # noqa: N818
    """The time is over; the state is kept."""


@dataclass
class Run:
    """One run: its settings, and its state on disk."""

    settings: Row
    config: CohortConfig
    state: Path | None
    ends: float
    curve: list[dict[str, float]] = field(default_factory=list)
    before: dict[str, float] = field(default_factory=dict)
    after: int = 0
    weights: dict[str, Tensor] | None = None

    @property
    def path(self) -> Path | None:
        name = hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()[:16]
        return None if self.state is None else self.state / f"{name}.safetensors"

    def load(self, device: torch.device) -> None:
        """Go on where an earlier run stopped."""
        if self.path is None or not self.path.exists():
            return
        with safe_open(self.path, "pt") as file:
            told = json.loads(file.metadata()["told"])
            self.weights = {name: file.get_tensor(name).to(device) for name in file.keys()}  # noqa: SIM118
        self.curve, self.before, self.after = told["curve"], told["seconds"], told["round"]
        sys.stderr.write(f"going on behind round {self.after}\n")

    def done(self, number: int, weights: dict[str, Tensor], figures: Mapping[str, float], seconds: Row) -> None:
        """After a round."""
        if not figures:
            return
        self.curve.append({"round": number, **figures})
        sys.stderr.write(f"round {number}: {', '.join(f'{n} {v:.4f}' for n, v in figures.items())}\n")
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            told = {"round": number, "curve": self.curve, "seconds": self.spent(seconds)}
            save_file({n: w.cpu().contiguous() for n, w in weights.items()}, self.path, {"told": json.dumps(told)})
        if time.monotonic() > self.ends and number < self.config.rounds:
            raise Stopped

    def spent(self, seconds: Mapping[str, float]) -> dict[str, float]:
        return {part: self.before.get(part, 0.0) + seconds.get(part, 0.0) for part in {**self.before, **seconds}}


def octets(data: Images, rows: Tensor, device: torch.device) -> Labelled:
    """Images as uint8, which loses nothing of 8-bit files."""
    parts = []
    for part in torch.split(rows, 8192):
        x = data.take(part).x
        parts.append((x * 255).round().to(torch.uint8))
        if not torch.allclose(parts[-1].float() / 255, x, atol=1e-6):
            raise SystemExit(f"{data.name} does not have 8 bits a pixel")
    return Labelled(torch.cat(parts).to(device), data.labels[rows].to(device))


def wanted(asked: argparse.Namespace) -> Iterator[tuple[Row, CohortConfig]]:
    """Every run that is asked for: its settings for the results, and its configuration."""
    recipe = RECIPES[asked.dataset]
    rates = [float(rate) for rate in asked.rates.split(",")] if asked.rates else [recipe.rate]
    severities = [float(severity) for severity in asked.severity.split(",")]
    for seed, rate, severity, method, variant in itertools.product(
        range(asked.first_seed, asked.first_seed + asked.seeds),
        rates,
        severities,
        asked.methods.split(","),
        asked.variants.split(","),
    ):
        if not severity and variant != "whole":
            continue
        proximal = {"fedavg": None, "fedprox": asked.proximal}[method]
        config = CohortConfig(
            rounds=asked.rounds or recipe.rounds,
            epochs=asked.epochs or recipe.epochs,
            batch=asked.batch or recipe.batch,
            rate=rate,
            proximal=proximal,
            augmix=AugMix(severity, **VARIANTS[variant]) if severity else None,
            compared=variant != "views by cross-entropy",
            sizes=asked.sizes,
            clients=asked.clients,
            centre=recipe.centre,
            spread=recipe.spread,
            every=asked.every,
            seed=seed,
        )
        yield named(asked, config, method, severity, variant), config


def named(asked: argparse.Namespace, config: CohortConfig, method: str, severity: float, variant: str) -> Row:
    net = asked.network or RECIPES[asked.dataset].network
    settings: Row = {"dataset": asked.dataset, "network": net, "method": method, "severity": severity}
    settings |= {"variant": variant if severity else "none", "rounds": config.rounds, "epochs": config.epochs}
    settings |= {"batch": config.batch, "rate": config.rate, "mu": config.proximal, "clients": config.clients}
    settings |= {"of a round": config.cohort, "beta": config.beta, "sizes": config.sizes, "every": config.every}
    return settings | {"chosen on": "rows set aside" if asked.choose else "none", "seed": config.seed}


def data_of(asked: argparse.Namespace, device: torch.device) -> tuple[Labelled, Labelled, Images]:
    """What the clients share, what is tested on beside it, and the set."""
    data = open_data(f"{asked.dataset}:train", data_dir=asked.data)
    if asked.choose:
        stays, aside = set_aside(data.labels, SET_ASIDE, stream=SeededStream(0).fork("set aside"))
        return octets(data, stays, device), octets(data, aside, device), data
    test = open_data(f"{asked.dataset}:test", data_dir=asked.data)
    every, tested = torch.arange(len(data)), torch.arange(len(test))
    return octets(data, every, device), octets(test, tested, device), data


def trained(run: Run, dealt: Labelled, test: Labelled, data: Images, asked: argparse.Namespace) -> Row:
    """The figures of one run."""
    config, device = run.config, dealt.x.device
    if asked.choose:  # the clients' own test rows are not looked at
        config = replace(config, test_share=0.0)
    draws = DeviceStream(config.stream("first weights"))
    net = started(network(run.settings["network"], data.shape, len(data.classes)), draws, device)
    run.load(device)
    cohorts = Cohorts(net, dealt.x, dealt.labels, len(data.classes), config, test=test, graph=not asked.eager)
    sizes = sorted(len(client.train) for client in cohorts.clients)
    try:
        found = cohorts.run(
            after=run.after,
            weights=run.weights,
            on_round=lambda number, weights, figures: run.done(number, weights, figures, cohorts.clock.seconds),
        )
    except TrainingError:
        return {"collapsed": 1}
    spent = run.spent(found.seconds)
    personal = {} if asked.choose else cohorts.personal(found.weights)
    figures: Row = {}
    for part in ("clients", "by client", "test"):
        values = [100 * at[part] for at in run.curve if part in at]
        if values:
            last = values[-max(1, len(values) // 10) :]
            figures |= {
                f"{part} %": values[-1],
                f"{part} last %": statistics.fmean(last),
                f"{part} best %": max(values),
            }
    figures |= {f"own {part} %": 100 * value for part, value in personal.items()}
    figures |= {f"seconds {part}": value for part, value in sorted(spent.items())}
    return figures | {"fewest rows": sizes[0], "median rows": statistics.median(sizes), "most rows": sizes[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--dataset", choices=[*RECIPES], default="mnist")
    parser.add_argument("--network", help="else the recipe's")
    parser.add_argument("--methods", default="fedavg,fedprox")
    parser.add_argument("--severity", default="0,2", help="with commas; 0: without Fed-AugMix")
    parser.add_argument("--variants", default="whole", help=f"with commas, of: {', '.join(VARIANTS)}")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    for name in ("rounds", "epochs", "batch"):
        parser.add_argument(f"--{name}", type=int, help="else the recipe's")
    parser.add_argument("--rates", help="with commas; else the recipe's")
    parser.add_argument("--proximal", type=float, default=FEDPROX, help="of FedProx")
    parser.add_argument("--sizes", choices=["drawn", "equal"], default="drawn")
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--every", type=int, default=5, help="rounds between measurements")
    parser.add_argument("--choose", action="store_true", help="measure on training rows set aside, and on nothing else")
    parser.add_argument("--state", type=Path, help="a folder for runs that are not done")
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--eager", action="store_true", help="record no steps on a GPU")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    out: Path = asked.out or HERE / ("chosen.json" if asked.choose else "accuracy.json")
    about = provenance({"work": "reproduce.fedaugmix.accuracy", "pixels": "standardised"}, device=asked.device)
    ends, device = time.monotonic() + 60 * asked.minutes, torch.device(asked.device)
    runs = [(settings, config) for settings, config in wanted(asked) if not known(out, settings)]
    dealt, test, data = data_of(asked, device)
    for settings, config in runs:
        if time.monotonic() > ends:
            break
        run = Run(settings, config, asked.state, ends)
        try:
            figures = trained(run, dealt, test, data, asked)
        except Stopped:
            break
        curve = [{"settings": {**settings, "round": at.pop("round")}, "figures": at} for at in map(dict, run.curve)]
        keep(out, TITLE, {"settings": settings, "figures": figures}, about=about)
        with contextlib.redirect_stderr(io.StringIO()):  # what is measured was shown when it was
            keep(out.with_name(f"{out.stem}-curves.json"), f"{TITLE}: curves", *curve, about=about)
        if run.path is not None:
            run.path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
