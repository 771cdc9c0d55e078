"""What further releases, and known records, add: `average`, `lmmse` and `known` on CIFAR-10, and what μ still permits.

    MIXVEIL_DATA=DIR python -m reproduce.singular.repeated [--releases 1 4 16 64] [--rows 300]

Pixels at 32 × 32, CIFAR-100 as public images. Releases of the same records by the paper's `energy` at τ = 1e-2, and
certified ones at μ = 1 each: then T of them cost √T, and the ceilings are those of μ = √T.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from mixveil.audit.auditing import audit
from mixveil.audit.figures import attack_title
from mixveil.core.randomness import SecureStream, SeededStream
from mixveil.core.types import Mu, Release, Target, Tau, Trace, View
from mixveil.core.watching import Moment
from mixveil.data.images import Images
from mixveil.data.opening import open_data
from mixveil.encoders import calibration
from mixveil.encoders.singular import Singular
from mixveil.releases.records import traced_in_memory
from mixveil.report import results
from reproduce.singular.shared import Row, keep, known

PUBLIC = 10_000
TARGETS: dict[str, Target] = {"energy, τ = 0.01": Tau(1e-2, "energy"), "certified, μ = 1": Mu(1.0)}
ATTACKS = ("average", "known", "lmmse", "lmmse-row", "membership")
METRICS = {"mse": "mse", "snr-db": "snr-db", "tpr-at-1-fpr": "tpr-at-1-fpr"}  # as the results call them
HERE = Path(__file__).parent


def audited(data: Images, public: Images, others: Images, name: str, counts: list[int], out: Path) -> Iterator[Row]:
    stream = SeededStream(0)
    encoder, guarantees, _ = calibration.calibrate(Singular(), TARGETS[name], data, stream=stream.fork("facts"))
    strange = others.take(torch.arange(len(data))).x
    made: list[tuple[Release, Trace]] = []
    for count in counts:
        settings = {"release": name, "releases": count, "rows": len(data)}
        if known(out, {**settings, "attack": "lmmse"}):
            continue
        while len(made) < count:
            made.append(traced_in_memory(data, encoder, guarantees, party="party", stream=SecureStream()))
        started = time.perf_counter()
        releases, traces = zip(*made[:count], strict=True)
        view = View(releases, traces, public)
        found = audit(view, data, others=strange, names=ATTACKS, stream=stream, watch=said)
        seconds = time.perf_counter() - started
        for attack in dict.fromkeys(row.attack for row in found.figures):
            figures: Row = {}
            for row in found.figures:
                if row.attack == attack and row.metric in METRICS:
                    metric = METRICS[row.metric]
                    figures |= {metric: row.mean, f"{metric}, knowing nothing": row.know_nothing}
                    figures |= {f"{metric}, ceiling": row.ceiling} if row.ceiling is not None else {}
            figures["seconds of all"] = seconds
            yield {"settings": {**settings, "attack": attack_title(attack)}, "figures": figures}
        for promise in found.promises:
            if promise.name == "variance-left-unknown":
                figures = {"left unknown by μ, at least": promise.nominal, "by these weights": promise.found}
                yield {"settings": {**settings, "attack": "any linear one"}, "figures": figures}


def said(moment: Moment) -> None:
    sys.stderr.write(f"\r{moment.doing}   ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", nargs="+", type=int, default=[1, 4, 16, 64])
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--out", type=Path, default=HERE / "repeated.json")
    chosen = parser.parse_args()
    data = open_data("cifar10:test").part(torch.arange(chosen.rows))
    others = open_data("cifar10:test").part(torch.arange(chosen.rows, 2 * chosen.rows))
    public = open_data("cifar100").part(torch.arange(PUBLIC))
    about = results.provenance({"public": PUBLIC})
    for name in TARGETS:
        for row in audited(data, public, others, name, chosen.releases, chosen.out):
            keep(chosen.out, "Further releases, and known records", row, about=about)


if __name__ == "__main__":
    main()
