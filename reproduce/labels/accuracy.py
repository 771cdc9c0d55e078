"""What randomised labels cost, and what a head that knows of them gets back: accuracy on the digits against ε.

    python -m reproduce.labels.accuracy [--seeds 20] [--out FILE]

Every fourth image of the train split plays the public data, the others are one party's. Each release is learned from
twice: as it says itself, and as if its labels were right; beside that, what labels as they are would teach. Seeded
streams: figures, not promises.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from mixveil.core.randomness import SeededStream
from mixveil.data.opening import open_data
from mixveil.encoders.identity import Identity
from mixveil.features import cache, projection_fit
from mixveil.features.extractor import Extractor
from mixveil.features.projection import Projected, Projection
from mixveil.learn import discriminant
from mixveil.learn.layers import Layers
from mixveil.learn.protocol import released
from mixveil.releases.records import in_memory
from mixveil.report import results

EPSILONS = (0.5, 1.0, 2.0, 4.0)
Heads = tuple[discriminant.Discriminant, discriminant.Discriminant]


def records(rows: Projected, epsilon: float | None, seed: int) -> Heads:
    """Records without noise: what the labels alone cost."""
    said = in_memory(rows, Identity(), (), party="p", stream=SeededStream(seed), label_epsilon=epsilon)
    heads = [discriminant.from_records([r], rows.projection) for r in (said, said.with_(label_epsilon=None))]
    return heads[0], heads[1]


def mixed(rows: Projected, epsilon: float | None, seed: int) -> Heads:
    """Mixed records at μ = 4 in 16 public directions."""
    narrow = Projected(rows.rows, rows.projection.first(16))
    said = released(narrow, 4.0, plain=False, stream=SeededStream(seed), label_epsilon=epsilon)
    heads = [discriminant.from_records([r], narrow.projection) for r in (said, said.with_(label_epsilon=None))]
    return heads[0], heads[1]


METHODS: dict[str, Callable[[Projected, float | None, int], Heads]] = {
    "records in the clear": records,
    "mixed records, μ = 4": mixed,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "accuracy.json")
    chosen = parser.parse_args()
    loaded = cache.load(Extractor(), None)
    train, test = (cache.extract(open_data(f"digits:{split}"), loaded, None) for split in ("train", "test"))
    index = torch.arange(len(train))
    public = projection_fit.fit(train.part(index[index % 4 == 0]), loaded.digest)
    rows = Projected(train.part(index[index % 4 != 0]), public)

    def right(head: discriminant.Discriminant, through: Projection) -> float:
        return 100 * float(Layers.of(head, through).named(test).eq(test.labels).double().mean())

    found: list[dict[str, Any]] = []
    for name, method in METHODS.items():
        through = public.first(16) if method is mixed else public
        shown = statistics.fmean(right(method(rows, None, seed)[0], through) for seed in range(chosen.seeds))
        for epsilon in EPSILONS:
            pairs = [
                tuple(right(head, through) for head in method(rows, epsilon, seed)) for seed in range(chosen.seeds)
            ]
            knowing, believing = (statistics.fmean(column) for column in zip(*pairs, strict=True))
            spread = statistics.stdev(a - b for a, b in pairs) / chosen.seeds**0.5
            figures = {
                "debiased %": knowing,
                "labels believed %": believing,
                "labels shown %": shown,
                "gain": knowing - believing,
                "standard error of the gain": spread,
            }
            found.append(
                {"settings": {"released": name, "label ε": epsilon, "seeds": chosen.seeds}, "figures": figures}
            )
            sys.stderr.write(f"{found[-1]}\n")
    about = results.provenance({"data": "digits", "rows": len(rows), "classes": 10})
    results.write_results(chosen.out, results.Results("Randomised labels on the digits", about, tuple(found)))


if __name__ == "__main__":
    main()
