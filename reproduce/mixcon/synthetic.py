"""The paper's synthetic experiment: accuracy (Table 1), inversion (Table 2), representations in the plane (Figure 2).

    python -m reproduce.mixcon.synthetic [--seeds 10] [--out FILE] [--figure FILE]

Vectors of 10 values from N(0, I) and N(−1, I), 800 to train and 200 to test on, 5 % of each class's labels flipped;
10 → 500 → 2 → 100 → 2, MixCon on the two values of the second layer, λ = 0.1; 20 epochs of SGD at the rate 0.1.
What the paper leaves open, and what was chosen, is in `READINGS` and in the file of results. With its first weights as
printed nothing trains, vanilla neither; that is reported as the reading `as printed`.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

from mixveil.core.randomness import SeededStream, Stream
from mixveil.features.split.networks import cut, synthetic
from mixveil.report import results
from mixveil.theory.separability import mixcon, separability
from reproduce.mixcon.scatter import Panel, drawn
from reproduce.singular.shared import Row

HERE = Path(__file__).parent
TRAIN, TEST, FLIPPED, EPOCHS, RATE, LAMBDA = 800, 200, 0.05, 20, 0.1, 0.1
STEPS, DESCENT, DECAY = 500, 0.01, 1e-4  # of the inversion


@dataclass(frozen=True)
class Reading:
    """What the paper leaves open, or what does not train as it is printed.

    Attributes:
        scale: What entries from N(u_k, 1), u_k ~ N(0, alpha), are multiplied by.
        batch: Rows of a step.
        normalised: Whether MixCon looks at representations of norm 1, as a footnote says. Then β = 0 cannot bring them
            to (0, 0), as Figure 2f has it.
        epsilon: Distances are clamped to [ε, 1/ε].
        alive: First weights are drawn again until each of the two values is positive for this share of the training
            data: a unit that is 0 for all of them never learns, and Figure 2a has none.
        weight: λ; the paper's is 0.1.
    """

    scale: float
    batch: int = 64
    alpha: float = 0.01
    normalised: bool = False
    epsilon: float = 1e-2
    alive: float = 0.5
    weight: float = LAMBDA


READINGS = {
    "as printed": Reading(1.0, normalised=True, epsilon=1e-6),
    "vanilla trains": Reading(0.1),
    "vanilla trains, norm 1": Reading(0.1, normalised=True),
    "vanilla trains, λ = 0.3": Reading(0.1, weight=0.3, epsilon=0.03),
    "vanilla trains, λ = 1": Reading(0.1, weight=1.0, epsilon=0.03),
    "nearest to Table 1": Reading(0.03),
}
"""All were chosen on the seeds from 1000 on, by accuracy on the training data.

    vanilla trains: of the scales 0.05, 0.07, 0.1 and 0.15, vanilla is nearest to the published 91.5 % at 0.1 over all
        three networks; 0.05 fails in the deeper one, 0.15 in the wider one. What MixCon does had no part in the choice.
    λ = 0.3 and 1: the same with a larger λ and ε = 0.03, to see whether β = 0 collapses at all.
    nearest to Table 1: about 60 combinations of scale, batch, α, ε and norm were tried, most with four to six seeds.
        None gives all of Table 1. Of the five that were tried with ten seeds this is nearest to the three default
        settings. It was chosen to agree with the paper, and the deeper network does not train in it, vanilla neither.
"""

SHOWN = "vanilla trains"
"""In the figure."""


class Setting(NamedTuple):
    """A column of Table 1, or vanilla with the deeper or wider network, which the paper does not have: it tells what
    the network does from what MixCon does. beta: None for vanilla."""

    beta: float | None
    deeper: bool = False
    wider: bool = False


SETTINGS = {
    "vanilla": Setting(None),
    "vanilla_deeper": Setting(None, deeper=True),
    "vanilla_wider": Setting(None, wider=True),
    "mixcon_beta0.01": Setting(0.01),
    "mixcon_beta0.01_deeper": Setting(0.01, deeper=True),
    "mixcon_beta0.01_wider": Setting(0.01, wider=True),
    "mixcon_beta0": Setting(0.0),
    "mixcon_beta0_deeper": Setting(0.0, deeper=True),
    "mixcon_beta0_wider": Setting(0.0, wider=True),
}
INVERTED = {"vanilla": "vanilla", "mixcon_beta0.01": "mixcon_0.1_0.01", "mixcon_beta0": "mixcon_0.1_0"}
"""The settings of Table 2, by their names in Table 1."""


class Data(NamedTuple):
    """x: (1000, 10), the rows to train on first; labels: (1000,), with some flipped."""

    x: Tensor
    labels: Tensor


class Trained(NamedTuple):
    client: nn.Sequential
    server: nn.Sequential
    first: Tensor
    last: Tensor


def made(stream: Stream) -> Data:
    """As many of each class, and as many flipped: a network that says one class is right of exactly half."""
    labels = torch.arange(TRAIN + TEST) % 2
    x = stream.fork("x").normal(len(labels), 10) - (1 - labels)[:, None]
    said = labels.clone()
    for part in torch.split(torch.arange(len(labels)), [TRAIN, TEST]):
        for label in (0, 1):
            rows = part[labels[part] == label]
            said[rows[stream.fork("flipped").permutation(len(rows))[: round(FLIPPED * len(rows))]]] = 1 - label
    return Data(x.float(), said)


def first_weights(net: nn.Sequential, client: nn.Sequential, x: Tensor, reading: Reading, stream: Stream) -> None:
    """Draw them in place, again until both values of h are alive."""
    while True:
        draws = stream.fork("first weights")
        for number, layer in enumerate(layer for layer in net.modules() if isinstance(layer, nn.Linear)):
            own = draws.fork(f"layer {number}")
            mean = reading.alpha**0.5 * own.normal(1)
            for tensor in (layer.weight, layer.bias):
                tensor.data = (reading.scale * (mean + own.normal(*tensor.shape))).float()
        with torch.inference_mode():
            if bool(((client(x) > 0).float().mean(0) >= reading.alive).all()):
                return


def trained(data: Data, setting: Setting, reading: Reading, stream: Stream) -> Trained:
    net = synthetic((10,), 2, deeper=setting.deeper, wider=setting.wider)
    client, server = cut(net, "layer2")
    x, labels = data.x[:TRAIN], data.labels[:TRAIN]
    first_weights(net, client, x, reading, stream)
    first, order = client(x).detach(), stream.fork("order")
    optimiser = torch.optim.SGD(net.parameters(), RATE)
    for _ in range(EPOCHS):
        for rows in torch.split(order.permutation(TRAIN), reading.batch):
            h = client(x[rows])
            loss = cross_entropy(server(h), labels[rows])
            if setting.beta is not None:
                settings = {"normalised": reading.normalised, "epsilon": reading.epsilon}
                loss = loss + reading.weight * mixcon(h, labels[rows], setting.beta, **settings)  # type: ignore[arg-type]
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return Trained(client, server, first, client(x).detach())


def accuracy(found: Trained, x: Tensor, labels: Tensor) -> float:
    with torch.inference_mode():
        return 100 * float((found.server(found.client(x)).argmax(1) == labels).float().mean())


STARTS = ("N(0, I)", "zeros")
"""The paper does not say where it starts. From zeros, a guess that learns nothing has an error of 1.5, below all that
it publishes; from N(0, I) of 2.5, above all of it."""


def inverted(found: Trained, data: Data, start: str, stream: Stream) -> Row:
    """What is recovered of the 200 rows to test on, each by itself: argmin ‖h(s) − z‖₁, as the paper does it. (The
    attack `inversion` of mixveil also tries again where the descent gained nothing.)"""
    truth = data.x[TRAIN:]
    s = stream.normal(*truth.shape).float() if start != "zeros" else torch.zeros_like(truth)
    z = found.client(truth).detach()
    for _ in range(STEPS):
        s = s.detach().requires_grad_()
        (slope,) = torch.autograd.grad((found.client(s) - z).abs().sum(), s)
        s = s.detach() - DESCENT * (slope + DECAY * s.detach())
    cosine = cosine_similarity(s, truth, dim=1)
    return {"MSE": float((s - truth).square().mean()), "cosine": float(cosine.mean())}


def claims(name: str) -> dict[str, dict[str, float]]:
    with (HERE / "claims" / name).open() as file:
        return {
            line.pop("setting"): {key: float(value) for key, value in line.items()} for line in csv.DictReader(file)
        }


def finite(figures: Row) -> Row:
    """Without what a network that diverged has no figure of: JSON has no such numbers. `diverged` counts them."""
    return {name: value if value is not None and math.isfinite(value) else None for name, value in figures.items()}


def run(name: str, seed: int) -> Iterator[tuple[Row, str, Trained]]:
    """All settings of one reading at one seed: the same data and the same draws for each."""
    accuracies, inversions = claims("table1.csv"), claims("table2.csv")
    for label, setting in SETTINGS.items():
        stream = SeededStream(seed)
        data = made(stream)
        found = trained(data, setting, READINGS[name], stream)
        about: Row = {"table": "1", "reading": name, "setting": label, "start": None, "seed": seed}
        figures: Row = {
            "train %": accuracy(found, data.x[:TRAIN], data.labels[:TRAIN]),
            "paper's train %": accuracies.get(label, {}).get("train_percent"),
            "test %": accuracy(found, data.x[TRAIN:], data.labels[TRAIN:]),
            "paper's test %": accuracies.get(label, {}).get("test_percent"),
            "mean distance at first": separability(found.first, data.labels[:TRAIN], normalised=False).mean,
            "mean distance": separability(found.last, data.labels[:TRAIN], normalised=False).mean,
        }
        figures["learnt"] = int(figures["train %"] > 60)
        figures["diverged"] = int(not bool(found.last.isfinite().all()))
        yield {"settings": about, "figures": finite(figures)}, label, found
        for start in STARTS if label in INVERTED else ():
            paper = inversions[INVERTED[label]]
            figures = inverted(found, data, start, stream.fork("inversion"))
            figures |= {"paper's MSE": paper["mse"], "paper's cosine": paper["mean_cosine_similarity"]}
            yield {"settings": {**about, "table": "2", "start": start}, "figures": finite(figures)}, label, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=HERE / "synthetic.json")
    parser.add_argument("--figure", type=Path, default=HERE / "figure2.svg")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    rows, panels = list[Row](), list[Panel]()
    for name in READINGS:
        for seed in range(chosen.seeds):
            for row, label, found in run(name, seed):
                rows.append(row)
                if name == SHOWN and seed == 0 and label in INVERTED and row["settings"]["table"] == "1":
                    labels = made(SeededStream(0)).labels[:TRAIN]
                    panels.append(Panel(f"{label}, before", found.first, labels))
                    panels.append(Panel(f"{label}, after {EPOCHS} epochs", found.last, labels))
            sys.stderr.write(f"\r{name}: {seed + 1} of {chosen.seeds}   ")
    open_settings = {f"{name}: {key}": value for name, of in READINGS.items() for key, value in asdict(of).items()}
    about = results.provenance({"seeds": chosen.seeds, "lambda": LAMBDA, "shown": SHOWN, **open_settings})
    results.write_results(chosen.out, results.Results("MixCon on synthetic data (Tables 1 and 2)", about, tuple(rows)))
    chosen.figure.write_text(drawn("Representations of the training data in the plane (Figure 2)", panels))


if __name__ == "__main__":
    main()
