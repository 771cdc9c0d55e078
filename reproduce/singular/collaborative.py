"""Learning together on CIFAR-10: the paper's Tables 5 and 6, with every rival beside it.

    MIXVEIL_DATA=DIR python -m reproduce.singular.collaborative [--table 5|6] [--parties 10 50 100] [--head linear|mlp]

All methods have the same partition and features, and a linear head: trained by gradients on the features as they are
(DP-SGD: centred and scaled by public figures), or in closed form on features that public data whiten. Features:
EfficientNet-Lite0 and MobileNetV2, pooled, averaged with the mirrored image's. Without rounds 20 epochs are trained,
where the paper has 50. Public data: CIFAR-100's training images, for the projection, the clip norms and the radius of
the paper's noise at its nominal τ. Accuracies are the last epoch's or round's on CIFAR-10's test images. What is
done is kept in the cache folder and in the result files, and a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import csv
import functools
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from mixveil.core.randomness import SeededStream
from mixveil.data.opening import data_folder, open_data
from mixveil.encoders.singular import PAPER_ALPHA
from mixveil.features import cache as features
from mixveil.features import displacement
from mixveil.features.extractor import Extractor
from mixveil.federated.simulation.results import Compared, Kept, compared, readable
from mixveil.federated.simulation.results import Row as Simulated
from mixveil.federated.simulation.setup import PublicSetup, SimulationConfig, set_up
from mixveil.federated.simulation.setup import prepared as public_setup
from mixveil.federated.simulation.simulate import jobs, run_method
from mixveil.report import results
from reproduce.singular.shared import Row, keep

HERE = Path(__file__).parent
BACKBONE = "efficientnet_lite0+mobilenet_v2"
TAU = 1e-6
MUS = (0.5, 1.0, 2.0, 4.0)
AT_ONE_MU = 2.0
"""DP-SGD takes long: away from β = 0.5 it is run at this μ alone."""

CLAIMS = {"5": "table5.csv", "6": "table6.csv"}
OURS = {"fedprox": "fedprox_percent", "fedprox-tuned": "fedprox_percent"}
"""Which of the paper's two columns a method is compared with: its own method with all that send records."""

RECORDS = {"one-shot", "remixed", "two-step", "two-step-gaussian"}
PLAIN = ("fedprox", "fedprox-tuned", "one-shot", "remixed")
PRIVATE = ("two-step", "two-step-gaussian", "sums", "sums-twice")


def cells(table: str, parties: list[int]) -> Iterator[tuple[SimulationConfig, dict[str, float]]]:
    """The settings of a table, with the paper's figures."""
    with (HERE / "claims" / CLAIMS[table]).open() as file:
        for line in csv.DictReader(file):
            count, beta, rho = int(line["parties"]), float(line["beta"]), float(line.get("rho") or 1)
            if count in parties:
                figures = {name: float(line[name]) for name in ("fedprox_percent", "singular_percent")}
                yield SimulationConfig(count, beta, rho, tau=TAU), figures


def todo(table: str, setting: SimulationConfig) -> list[tuple[str, float | None]]:
    """In Table 5 all methods; in Table 6 those that the paper's two are compared with."""
    found = jobs([*PRIVATE, *PLAIN], MUS)
    if table == "5":
        found += jobs(["moments"], MUS)
        found += jobs(["local", "centralised", "fedavg"], ())
        found += jobs(["dp-sgd"], MUS if setting.beta == 0.5 else (AT_ONE_MU,))
    return found


def reported(row: Row, setting: SimulationConfig, table: str, paper: dict[str, float]) -> Row:
    """One line of the results."""
    settings: Row = {"table": table, "parties": setting.parties, "beta": setting.beta, "rho": setting.rho}
    settings |= {"head": setting.head, "method": row["method"], "mu": row["mu"], "seed": setting.seed}
    figures: Row = {"accuracy %": 100 * row["accuracy"]}
    column = OURS.get(row["method"]) or ("singular_percent" if row["method"] in RECORDS else None)
    if column is not None:
        figures |= {"paper %": paper[column], "ours - paper": 100 * row["accuracy"] - paper[column]}
    figures |= {
        "MB up": row["bytes_up"] / 1e6,
        "MB down": row["bytes_down"] / 1e6,
        "messages": row["messages"],
        "seconds": row["seconds"],
        **row["chosen"],
        "guarantee": row["guarantee"],
        "commit": row["commit"],
    }
    return {"settings": settings, "figures": figures}


def beside(item: Compared, setting: SimulationConfig) -> Row:
    settings: Row = {"parties": setting.parties, "beta": setting.beta, "rho": setting.rho, "head": setting.head}
    settings |= {"method": item.method, "mu": item.mu, "beside": item.other, "seed": setting.seed}
    figures = {
        "accuracy %": 100 * item.accuracy,
        "the other's % at these bytes": None if item.at_bytes is None else 100 * item.at_bytes,
        "the other's bytes to this accuracy / own": item.bytes_ratio,
        "the other's seconds to this accuracy / own": item.seconds_ratio,
    }
    return {"settings": settings, "figures": figures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", choices=CLAIMS, default="5")
    parser.add_argument("--parties", type=int, nargs="+", default=[10, 50, 100])
    parser.add_argument("--beta", type=float, nargs="+", default=[1.0, 0.5, 0.1])
    parser.add_argument("--head", choices=("linear", "mlp"), default="linear")
    parser.add_argument("--methods", nargs="+", help="some of them only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE / "collaborative.json")
    parser.add_argument("--beside", type=Path, default=HERE / "beside.json")
    chosen = parser.parse_args()
    extractor = Extractor.parse(BACKBONE, mirror=True)
    cache = features.cache_folder()
    about = results.provenance({"backbone": str(extractor), "public": "cifar100", "tau": TAU})
    for base, paper in cells(chosen.table, chosen.parties):
        if base.beta not in chosen.beta:
            continue
        rate = {"linear": 5e-3, "mlp": 1e-3}[chosen.head]
        setting = SimulationConfig(
            base.parties, base.beta, base.rho, chosen.head, learning_rate=rate, tau=TAU, seed=chosen.seed
        )
        name = f"{setting.head}-{setting.parties}-{setting.beta:g}-{setting.rho:g}-{setting.seed}.json"
        kept = Kept(cache / "collaborative" / name, {"backbone": str(extractor), **asdict(setting)})
        jobs = [job for job in todo(chosen.table, setting) if not chosen.methods or job[0] in chosen.methods]
        left = [job for job in jobs if not kept.has(job)]
        if left:
            train, test, agreed = prepared(extractor)
            simulation = set_up(train, test, agreed, setting)
            kept.counts = simulation.counts
            for job in left:
                said(kept, run_method(simulation, *job))
        lines = [row for row in kept.rows if (row["method"], row["mu"]) in jobs]
        found = [reported(row, setting, chosen.table, paper) for row in readable(lines)]
        keep(chosen.out, "Learning together on CIFAR-10", *found, about=about)
        keep(
            chosen.beside,
            "Methods that send once or twice beside methods with rounds, in the same run",
            *(beside(item, setting) for item in compared(lines)),
            about=about,
        )


@functools.cache
def prepared(extractor: Extractor) -> tuple[features.Features, features.Features, PublicSetup]:
    """Rows to deal and to test on, and what is public."""
    loaded = features.load(extractor, data_folder(None))
    sets = []
    for name in ("cifar100", "cifar10", "cifar10:test"):
        sys.stderr.write(f"features of {name}\n")
        sets.append(features.extract(open_data(name), loaded, features.cache_folder()))
    public, train, test = sets
    return train, test, public_setup(public, loaded.digest, tau=TAU, radius=moved(loaded))


def moved(loaded: features.Loaded) -> float:
    """How far the paper's image noise moves features, measured on public images; once."""
    path = features.cache_folder() / "collaborative" / f"radius-{loaded.digest[:16]}.json"
    if not path.exists():
        (found,) = displacement.measure(open_data("cifar100"), loaded, [TAU], alpha=PAPER_ALPHA, stream=SeededStream(0))
        path.parent.mkdir(parents=True, exist_ok=True)
        row = {"settings": {"tau": TAU}, "figures": {"radius": found.radius}}
        results.write_results(path, results.Results("Displacement of features", results.provenance({}), (row,)))
    return float(results.read_results(path).rows[0]["figures"]["radius"] or 0)


def said(kept: Kept, row: Simulated) -> None:
    kept.add(row)
    at = "" if row.mu is None else f" at {row.mu:g}"
    sys.stderr.write(
        f"{kept.about['parties']} parties, β = {kept.about['beta']}, ρ = {kept.about['rho']}: {row.method}{at} "
        f"{row.outcome.accuracy:.2%}, {row.outcome.seconds:.1f} s\n"
    )


if __name__ == "__main__":
    main()
