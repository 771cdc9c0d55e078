"""MixCon's Tables 3, 4 and 5: accuracy, and what inversion recovers of images, with and without its loss.

python -m reproduce.mixcon.images run --cases mnist,fashion-mnist --data-dir DIR --work WORK
python -m reproduce.mixcon.images tables --data-dir DIR --work WORK
python -m reproduce.mixcon.images panels --data-dir DIR --work WORK --out panels.html

`run` trains every network of the cases (on a GPU they take turns), attacks what it makes of the first 100 test
images, and keeps halves, figures and recovered images in WORK; what is there is not made again. `tables` measures them
and adds to `images.json` beside this file. `panels` shows them as the paper's Figures 4, 5 and 6 do; the page holds
images of the data sets. SVHN is not at hand: CIFAR-10 stands in for it with LeNet-5, at SVHN's settings.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mixveil import open_data
from mixveil.attacks.catalogue import attacks
from mixveil.attacks.representations.inversion import Inversion
from mixveil.attacks.shared.training import TrainingCache, with_cache
from mixveil.core.checkpoint import discard
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Attack, View
from mixveil.data.images import Images
from mixveil.data.similarity import mse, ssim
from mixveil.features import lpips
from mixveil.features.split.half import read_half, write_half
from mixveil.learn.split import SplitJob, in_turns, measured
from mixveil.learn.split_training import Penalty, SplitRecipe
from mixveil.releases.representations import in_memory
from mixveil.report.pages import environment
from mixveil.report.pictures import png
from mixveil.report.results import provenance
from reproduce.singular.shared import given, keep

HERE = Path(__file__).parent
TITLE = "MixCon: accuracy and inversion, Tables 3, 4 and 5"
IMAGES = 100
METHODS: tuple[tuple[str, Penalty], ...] = (("vanilla", "none"), ("unicon", "unicon"), ("mixcon", "mixcon"))
LENET = SplitRecipe()
VGG = SplitRecipe(
    epochs=300, falls=(150, 250), batch=300, learning_rate=0.1, momentum=0.1, weight_decay=5e-4, augmented=True
)


class Case(NamedTuple):
    """A data set and a network at the paper's settings. zeta: the weight of total variation in its attack."""

    data: str
    network: str
    recipe: SplitRecipe
    weight: float
    beta: float
    zeta: float
    methods: tuple[tuple[str, Penalty], ...] = METHODS


CASES = {
    "mnist": Case("mnist", "lenet5", LENET, 1.0, 1e-4, 1e-5),
    "fashion-mnist": Case("fashion-mnist", "lenet5", LENET, 1.0, 1e-4, 1e-5),
    "cifar10": Case("cifar10", "lenet5", LENET, 0.5, 1e-4, 0.01),
    "cifar10-vgg": Case("cifar10", "vgg16", VGG, 1.0, 1e-8, 0.01, (METHODS[0], METHODS[2])),
}


def recipes(case: Case, seeds: int, epochs: int | None) -> Iterator[tuple[str, int, SplitRecipe]]:
    """Every training of a case. epochs: fewer than the paper's; the rate falls at the same shares of them."""
    own = case.recipe
    if epochs is not None:
        own = replace(own, epochs=epochs, falls=tuple(fall * epochs // own.epochs for fall in own.falls))
    for name, penalty in case.methods:
        weight, beta = (0.0 if penalty == "none" else case.weight), (case.beta if penalty == "mixcon" else 0.0)
        for seed in range(seeds):
            yield name, seed, replace(own, penalty=penalty, weight=weight, beta=beta, seed=seed)


def train(name: str, case: Case, asked: argparse.Namespace) -> None:
    """Train what is not there."""
    wanted = []
    for method, seed, recipe in recipes(case, asked.seeds, asked.epochs):
        folder = asked.work / name / f"{method}-{seed}"
        if not (folder / "training.json").exists():
            wanted.append((folder, recipe))
    if not wanted:
        return
    job = SplitJob.of(open_data(f"{case.data}:train", data_dir=asked.data_dir), case.network, None)
    tested = open_data(f"{case.data}:test", data_dir=asked.data_dir)
    start = time.monotonic()
    (asked.work / name).mkdir(parents=True, exist_ok=True)
    states = [folder.with_suffix(".training") for folder, _ in wanted]
    asked_for = [(recipe, state) for (_, recipe), state in zip(wanted, states, strict=True)]
    for number, trained in in_turns(job, asked_for, note=print):
        folder, recipe = wanted[number]
        figures = measured(trained, tested)
        folder.mkdir(exist_ok=True)
        write_half(folder / "client", trained.client)
        told = {"recipe": asdict(recipe), "tested": figures.plain(), "loss": trained.curve[-1]["loss"]}
        (folder / "training.json").write_text(json.dumps(told, indent=1))
        discard(states[number])
        print(name, folder.name, told["tested"], f"{time.monotonic() - start:.0f} s", flush=True)


def attack(name: str, case: Case, asked: argparse.Namespace) -> None:
    """Attack what every client half makes of the first test images."""
    tested = open_data(f"{case.data}:test", data_dir=asked.data_dir).part(torch.arange(IMAGES))
    public = open_data(f"{case.data}:train", data_dir=asked.data_dir)
    for which in asked.attacks.split(","):
        for method, seed, _ in recipes(case, min(asked.seeds, asked.attacked_seeds), asked.epochs):
            folder = asked.work / name / f"{method}-{seed}"
            path = folder / f"{which}.safetensors"
            if path.exists():
                continue
            start = time.monotonic()
            client = read_half(folder / "client", "client")
            view = View((in_memory(tested, client),), public=public, client=client)
            guess = given(_attack(which, case, asked)(view, stream=SeededStream(seed).fork(which)).images)
            seconds = time.monotonic() - start
            save_file({"images": guess.float().contiguous(), "seconds": torch.tensor(seconds)}, path)
            alike = ssim(tested.take(torch.arange(IMAGES)).x, guess.clamp(0, 1))
            print(name, folder.name, which, f"SSIM {float(alike.mean()):.3f}, {seconds:.0f} s", flush=True)


def _attack(which: str, case: Case, asked: argparse.Namespace) -> Attack:
    if which == "inversion":
        return Inversion(zeta=case.zeta)
    cache = TrainingCache(max_steps=asked.steps, watch=lambda text: None)
    return with_cache(attacks()[which](), cache)


def tables(asked: argparse.Namespace) -> None:
    """Measure what is in WORK."""
    about = provenance({"images": IMAGES, "work": "reproduce.mixcon.images"}, device=asked.measured_on)
    nets = [lpips.load(net, asked.data_dir) for net in lpips.found(asked.data_dir)]
    rows = []
    for name, case in CASES.items():
        if not (asked.work / name).exists():
            continue
        tested = open_data(f"{case.data}:test", data_dir=asked.data_dir).part(torch.arange(IMAGES))
        truth = tested.take(torch.arange(IMAGES)).x.double()
        mean = _mean(open_data(f"{case.data}:train", data_dir=asked.data_dir))
        for folder in sorted(path for path in (asked.work / name).iterdir() if (path / "training.json").exists()):
            rows += list(_rows(name, case, folder, truth, mean.expand_as(truth), nets))
    keep(asked.out or HERE / "images.json", TITLE, *rows, about=about)


def _rows(
    name: str, case: Case, folder: Path, truth: Tensor, mean: Tensor, nets: list[lpips.Lpips]
) -> Iterator[dict[str, Any]]:
    told = json.loads((folder / "training.json").read_text())
    method, _, seed = folder.name.rpartition("-")
    recipe = told["recipe"]
    shared = {"case": name, "network": case.network, "method": method, "lambda": recipe["weight"]}
    shared |= {"beta": recipe["beta"], "epochs": recipe["epochs"], "seed": int(seed)}
    tested = {key: told["tested"][key] for key in ("accuracy", "least", "mean", "most")}
    yield {"settings": {**shared, "attack": "none"}, "figures": tested}
    found = {path.stem: load_file(path) for path in sorted(folder.glob("*.safetensors"))}
    for which, of in {**found, "knowing nothing": {"images": mean, "seconds": torch.zeros(())}}.items():
        guess = of["images"].double().nan_to_num(nan=0.0).clamp(0, 1)
        alike = ssim(truth, guess).clamp(min=0)  # the paper's scale begins at 0
        figures = {"SSIM": float(alike.mean()), "SSIM std": float(alike.std()), "SSIM worst": float(alike.max())}
        figures["MSE"] = float(mse(truth, guess).mean())
        for net in nets:
            near = 1 - net(truth, guess)
            figures |= {f"PSIM {net.name}": float(near.mean()), f"PSIM {net.name} std": float(near.std())}
            figures[f"PSIM {net.name} worst"] = float(near.max())
        figures["seconds"] = float(of["seconds"])
        yield {"settings": {**shared, "attack": which}, "figures": figures}


def _mean(data: Images) -> Tensor:
    """The mean image: what an attacker guesses who looks at nothing."""
    parts = [data.take(part).x.double().sum(0) for part in torch.split(torch.arange(len(data)), 4096)]
    return torch.stack(parts).sum(0) / len(data)


PANELS = """<!doctype html><html lang="en"><meta charset="utf-8"><title>MixCon: recovered images</title>
<style>body{font:14px system-ui;margin:2rem}img{width:44px;height:44px;image-rendering:pixelated;margin:1px}
th{text-align:left;padding-right:1rem;font-weight:400}</style>
{% for case, rows in panels.items() %}<h2>{{ case }}</h2><table>{% for name, sources in rows %}<tr><th>{{ name }}</th>
<td>{% for source in sources %}<img src="{{ source }}" alt="">{% endfor %}</td></tr>{% endfor %}</table>{% endfor %}"""


def panels(asked: argparse.Namespace) -> None:
    """A page with originals and what each attack recovers, for every case, method and attack."""
    found: dict[str, list[tuple[str, list[str]]]] = {}
    for name, case in CASES.items():
        folders = sorted((asked.work / name).glob("*-0")) if (asked.work / name).exists() else []
        if folders:
            tested = open_data(f"{case.data}:test", data_dir=asked.data_dir)
            rows = [("original", [png(x) for x in tested.take(torch.arange(asked.shown)).x])]
            for folder in folders:
                accuracy = json.loads((folder / "training.json").read_text())["tested"]["accuracy"]
                for path in sorted(folder.glob("*.safetensors")):
                    images = load_file(path)["images"][: asked.shown].nan_to_num(nan=0.0).clamp(0, 1)
                    title = f"{folder.name.rpartition('-')[0]} ({accuracy:.1%}), {path.stem}"
                    rows.append((title, [png(image) for image in images]))
            found[name] = rows
    (asked.out or Path("panels.html")).write_text(
        environment().from_string(PANELS).render(panels=found), encoding="utf-8"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "train", "attack", "tables", "panels"])
    parser.add_argument("--cases", default="mnist,fashion-mnist,cifar10")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--attacked-seeds", type=int, default=1, help="so many of the seeds are attacked")
    parser.add_argument("--epochs", type=int, help="fewer than the paper's")
    parser.add_argument("--attacks", default="inversion,inversion-gan,inversion-adaptive")
    parser.add_argument("--steps", type=int, help="at most so many for each network that attacks train")
    parser.add_argument("--shown", type=int, default=12)
    parser.add_argument("--measured-on", default="cuda" if torch.cuda.is_available() else "cpu", help="for the results")
    asked = parser.parse_args()
    if asked.what in ("tables", "panels"):
        (tables if asked.what == "tables" else panels)(asked)
        return
    for name in asked.cases.split(","):
        if asked.what in ("run", "train"):
            train(name, CASES[name], asked)
        if asked.what in ("run", "attack"):
            attack(name, CASES[name], asked)


if __name__ == "__main__":
    main()
