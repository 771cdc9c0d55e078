"""Fed-AugMix's Table II and Figures 3, 6, 8 and 9: what gradient inversion recovers from a client's update.

python -m reproduce.fedaugmix.attack works  --data DIR            where it should work: plain gradients
python -m reproduce.fedaugmix.attack weights --data DIR --dataset mnist --stage weights.safetensors     trains them
python -m reproduce.fedaugmix.attack table2 --data DIR --dataset mnist --stage untrained
python -m reproduce.fedaugmix.attack table2 --data DIR --dataset mnist --stage weights.safetensors
python -m reproduce.fedaugmix.attack ablations --data DIR --dataset mnist --stage untrained
python -m reproduce.fedaugmix.attack defences  --data DIR --dataset mnist --stage untrained

16 clients, of 100 to which the training set is dealt by Dir(0.1), have a batch of four images each and train on it for
five epochs of SGD at 0.01 (the paper has no rate). Attackers know labels, as in the paper. `paper`: InvGrad at its
settings; `strong`: ours, with more total variation; `adaptive`: attackers who know that AugMix is used. All severities
of a table are attacked side by side. Reconstructions are put in the order that fits best, as labels repeat. MSE is of
scaled pixels, as published; SSIM and PSNR are of pixels in [0, 1].

`weights` trains a network on the whole training set, in one place, by SGD with momentum, until it hardly gains: the
convergent stage.

Rows are added to FILE (attack.json beside this file) and the first clients' images to FOLDER, for `panels`, a page that
holds images of the data sets and is not kept here.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from mixveil.attacks.shared.matching import Found
from mixveil.attacks.shared.updates import UpdateTarget
from mixveil.attacks.updates.invgrad import InvGrad
from mixveil.attacks.updates.invgrad_adaptive import InvGradAdaptive
from mixveil.audit.metrics.order import in_order
from mixveil.core.local_training import AugMix
from mixveil.core.randomness import SeededStream
from mixveil.data.similarity import mse, psnr_db, ssim
from mixveil.report.results import provenance
from reproduce.enlarged import open_data
from reproduce.fedaugmix.accuracy import CLIENTS, RECIPES, octets
from reproduce.fedaugmix.clients import Clients, Defence, Setting, clients, net_of
from reproduce.singular.shared import Row, keep

HERE = Path(__file__).parent
TITLE = "Fed-AugMix: gradient inversion, Table II"
NONE = Defence("none")
SHOWN = 2  # clients whose images are kept
BATCH = 64  # of `weights`
COARSE = 0.8
"""Of the steps take a client's five as one: at the rate 0.01 that costs little (three clients of MNIST, none defended:
SSIM 0.75 with it in 600 steps, 0.72 without it in 400, which take longer)."""

ATTACKS: dict[str, InvGrad] = {
    "paper": InvGrad(steps=2500, restarts=1, tv=1e-6, coarse=COARSE),
    "strong": InvGrad(steps=2500, restarts=1, tv=1e-2, coarse=COARSE),
    "adaptive": InvGradAdaptive(steps=2500, restarts=1, tv=1e-2, coarse=COARSE, smoother=3.0),
}
"""`paper`: as printed. The others' total variation was chosen on eight images of MNIST's test set. `adaptive` goes on
from the images of `strong`, where that ran before it."""

ABLATIONS = (
    Defence("severity 2", AugMix(2.0)),
    Defence("views by cross-entropy", AugMix(2.0, views=1), compared=False),
    Defence("two views", AugMix(2.0, views=1)),
    Defence("no loss scaling", AugMix(2.0, large=AugMix(2.0).weight)),
)
DEFENCES = (
    NONE,
    Defence("DP-SGD, clip 1, noise 0.1", clip=1.0, noise=0.1),
    Defence("DP-SGD, clip 1, noise 1", clip=1.0, noise=1.0),
    Defence("pruned 70 %", pruned=0.7),
    Defence("pruned 90 %", pruned=0.9),
    Defence("pruned 99 %", pruned=0.99),
    Defence("mixup", encoder="mixup"),
    Defence("instahide", encoder="instahide"),
    Defence("severity 2", AugMix(2.0)),
    Defence("severity 10", AugMix(10.0)),
)


def joined(parts: list[Clients]) -> tuple[UpdateTarget, Tensor]:
    """All clients of several defences side by side; the training is that of the first."""
    targets = [part.target for part in parts]
    names = [*targets[0].before]
    before, after = ({n: torch.cat([getattr(t, of)[n] for t in targets]) for n in names} for of in ("before", "after"))
    low, high = min(t.low for t in targets), max(t.high for t in targets)
    y = torch.cat([part.y if part.soft is None else part.soft for part in parts])
    return replace(targets[0], before=before, after=after, low=low, high=high), y


def attacked(
    parts: list[Clients], attack: InvGrad, stream: SeededStream, before: list[Found] | None = None
) -> list[Found]:
    """Clients of several defences with one training are attacked together, those with views of a law by themselves.
    before: what was found for them, which adaptive attackers begin with."""
    if isinstance(attack, InvGradAdaptive):
        if before is None:
            return [attack.found(part.target, part.y, stream) for part in parts]
        both = zip(parts, before, strict=True)
        return [attack.refined(part.target, part.y, found, stream) for part, found in both]
    target, y = joined(parts)
    found = attack.found(target, y, stream)
    sizes = [len(part.x) for part in parts]
    split = zip(torch.split(found.images, sizes), torch.split(found.misfit, sizes), strict=True)
    return [Found(*part) for part in split]


def ordered(truth: Tensor, guess: Tensor) -> Tensor:
    """(k · b, …) every client's guesses in the order of its images."""
    return torch.cat([in_order(own, guessed, 0.5) for own, guessed in zip(truth.cpu(), guess.cpu(), strict=True)])


def figures(part: Clients, found: Found) -> Row:
    truth, guess = part.x.flatten(0, 1).cpu(), ordered(part.x, found.images.clamp(0, 1))
    alike, decibels, error = ssim(truth, guess), psnr_db(truth, guess), mse(truth, guess)
    told: Row = {
        "mse": float(error.mean()) / part.spread**2,
        "ssim %": 100 * float(alike.mean()),
        "psnr dB": float(decibels.mean()),
        "median ssim %": 100 * float(alike.median()),
        "median psnr dB": float(decibels.median()),
        "best ssim %": 100 * float(alike.max()),
        "misfit": float(found.misfit.mean()),
    }
    if part.trained is not None:  # what leaks is the encoding
        low, high = part.target.low, part.target.high
        scaled = [((x - low) / (high - low)).clamp(0, 1) for x in (part.trained, found.images)]
        told["encoding ssim %"] = 100 * float(ssim(scaled[0].flatten(0, 1).cpu(), ordered(*scaled)).mean())
    return told


def run(
    name: str, setting: Setting, defences: list[Defence], attacks: dict[str, InvGrad], asked: argparse.Namespace
) -> None:
    device = torch.device(asked.device)
    parts = [clients(setting, defence, asked.data, device) for defence in defences]
    about = provenance({"work": f"reproduce.fedaugmix.attack {name}"}, device=_device(device))
    stage = "untrained" if setting.stage == "untrained" else "convergent"
    strong: dict[int, Found] = {}
    for which, attack in attacks.items():
        known = [n for n, p in enumerate(parts) if which != "adaptive" or p.target.training.augmix is not None]
        start = time.monotonic()
        before = [strong[n] for n in known] if strong and which == "adaptive" else None
        found = attacked([parts[n] for n in known], attack, SeededStream(setting.seed).fork("attack"), before)
        seconds = time.monotonic() - start
        strong = dict(zip(known, found, strict=True)) if which == "strong" else strong
        rows, kept = [], {}
        for n, got in zip(known, found, strict=True):
            settings: Row = {"work": name, "dataset": setting.dataset, "stage": stage}
            settings |= {"network": _network(setting), "defence": defences[n].name, "attack": which}
            settings |= {"batch": setting.batch, "epochs": setting.epochs, "clients": len(parts[n].x)}
            settings |= {"steps": attack.steps, "restarts": attack.restarts, "tv": attack.tv, "seed": setting.seed}
            settings |= {"rounds": attack.rounds} if isinstance(attack, InvGradAdaptive) else {}
            rows.append({"settings": settings, "figures": figures(parts[n], got)})
            guess = ordered(parts[n].x[:SHOWN], got.images[:SHOWN].clamp(0, 1))
            kept[defences[n].name] = (guess * 255).round().to(torch.uint8)
        keep(asked.out, TITLE, *rows, about=about)
        kept["original"] = (parts[0].x[:SHOWN].flatten(0, 1).cpu() * 255).round().to(torch.uint8)
        if asked.images is not None:
            asked.images.mkdir(parents=True, exist_ok=True)
            save_file(kept, asked.images / f"{name}-{setting.dataset}-{stage}-{setting.batch}-{which}.safetensors")
        print(name, setting.dataset, stage, which, f"{seconds:.0f} s", flush=True)


def _device(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _network(setting: Setting) -> str:
    name = RECIPES[setting.dataset].network
    return name if setting.width is None else f"{name}, width {setting.width}"


def works(asked: argparse.Namespace) -> None:
    """Plain gradients of untrained networks: CIFAR-10 on the ConvNet, ten images; MNIST on LeNet-5, one and four."""
    attacks = {"strong": InvGrad(steps=asked.steps or 4000, restarts=asked.restarts, tv=asked.tv)}
    for dataset, batch, count, width in (
        ("cifar10", 1, 10, asked.width),
        ("mnist", 1, 10, None),
        ("mnist", 4, 8, None),
    ):
        if asked.dataset in (None, dataset):
            setting = Setting(dataset, "untrained", batch, 1, count, skewed=False, seed=asked.seed, width=width)
            run("works", setting, [NONE], attacks, asked)


def weights(asked: argparse.Namespace) -> None:
    """Train the network of a data set, and keep its weights and how well it does."""
    device, recipe = torch.device(asked.device), RECIPES[asked.dataset]
    sets = [open_data(f"{asked.dataset}:{split}", data_dir=asked.data) for split in ("train", "test")]
    train, test = (octets(data, torch.arange(len(data)), device) for data in sets)
    setting = Setting(asked.dataset, "untrained", seed=asked.seed, width=asked.width)
    net = net_of(setting, sets[0].shape, len(sets[0].classes)).to(device)
    centre, spread = (torch.tensor(v, device=device).view(-1, 1, 1) for v in (recipe.centre, recipe.spread))
    steps = asked.epochs * (len(train.x) // BATCH)
    optimiser = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, weight_decay=5e-4)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for epoch in range(asked.epochs):
        order = SeededStream(asked.seed).fork(f"epoch {epoch}").permutation(len(train.x))
        for part in order[: len(order) // BATCH * BATCH].view(-1, BATCH):
            x = (train.x[part].float() / 255 - centre) / spread
            loss = torch.nn.functional.cross_entropy(net(x), train.labels[part])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            falling.step()
    with torch.no_grad():
        named = torch.cat([net((x.float() / 255 - centre) / spread).argmax(1) for x in torch.split(test.x, 1024)])
    right = 100 * float((named == test.labels).double().mean())
    save_file({name: value.cpu().contiguous() for name, value in net.state_dict().items()}, asked.stage)
    settings: Row = {"work": "weights", "dataset": asked.dataset, "network": _network(setting), "epochs": asked.epochs}
    row: Row = {"settings": settings | {"seed": asked.seed}, "figures": {"test accuracy %": right}}
    keep(asked.out, TITLE, row, about=provenance({"work": "reproduce.fedaugmix.attack"}, device=_device(device)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["works", "weights", "table2", "ablations", "defences"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--dataset", choices=[*RECIPES])
    parser.add_argument("--stage", default="untrained", help="untrained, or the file of weights that were trained")
    parser.add_argument("--attacks", default="paper,strong,adaptive")
    parser.add_argument("--steps", type=int, help="else those of the attack")
    parser.add_argument("--tv", type=float, default=1e-3, help="of `works`")
    parser.add_argument("--restarts", type=int, default=4, help="of `works`")
    parser.add_argument("--width", type=int, help="of the ConvNet; else 32")
    parser.add_argument("--epochs", type=int, default=10, help="of `weights`")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--dealt", type=int, default=CLIENTS, help="clients that share the training set")
    parser.add_argument("--severities", default="2,4,6,8,10")
    parser.add_argument("--rounds", type=int, help="of the adaptive attack; else its own")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=HERE / "attack.json")
    parser.add_argument("--images", type=Path)
    asked = parser.parse_args()
    if asked.what in ("works", "weights"):
        {"works": works, "weights": weights}[asked.what](asked)
        return
    chosen: dict[str, Any] = {name: ATTACKS[name] for name in asked.attacks.split(",")}
    if asked.steps:
        chosen = {name: replace(attack, steps=asked.steps) for name, attack in chosen.items()}
    if asked.rounds and "adaptive" in chosen:
        chosen["adaptive"] = replace(chosen["adaptive"], rounds=asked.rounds)
    table = [NONE, *(Defence(f"severity {s}", AugMix(float(s))) for s in asked.severities.split(","))]
    defences = {"table2": table, "ablations": [*ABLATIONS], "defences": [*DEFENCES]}[asked.what]
    setting = Setting(
        asked.dataset or "mnist",
        asked.stage,
        clients=asked.clients,
        seed=asked.seed,
        width=asked.width,
        dealt=asked.dealt,
    )
    run(asked.what, setting, defences, chosen, asked)


if __name__ == "__main__":
    main()
