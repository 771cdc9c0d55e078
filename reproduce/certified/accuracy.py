"""What certified releases teach: accuracy on CIFAR-10 against μ, the number of parties and the protocol.

    MIXVEIL_DATA=DIR python -m reproduce.certified.accuracy [--seeds 3] [--backbone NAMES --plain --out FILE] [--quick]

Public data: CIFAR-100's training images. Private data: CIFAR-10's 50,000, dealt to the parties in turn; its 10,000 test
images are only tested on. No run chooses anything on them: directions, clip norms and head follow from public data,
from μ, and from the numbers of parties, rows and classes. But which variants of the head to keep was judged by this
test accuracy while the software was made: for that the figures may be a little too good.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mixveil.core.randomness import SeededStream
from mixveil.data.opening import data_folder, open_data
from mixveil.features import cache, projection, projection_fit
from mixveil.features.cache import Features
from mixveil.features.extractor import Extractor
from mixveil.learn.discriminant import Discriminant
from mixveil.learn.layers import Layers
from mixveil.learn.protocol import PROTOCOLS, Protocol, learn
from mixveil.report import results

PARTIES = (1, 10, 50, 100)
MUS = (2.0, 1.0, 0.5)


def dealt(data: Features, parties: int) -> list[Features]:
    return [data.part(torch.arange(i, len(data), parties)) for i in range(parties)] if parties > 1 else [data]


def clean(data: Features, test: Features, public: projection.Projection) -> dict[str, float]:
    """Without any noise: the discriminant with the private within-class covariance, and with the public one."""
    z = torch.cat([(data.take(i).x - public.mean) @ public.matrix for i in torch.split(torch.arange(len(data)), 4096)])
    labels = data.labels
    counts = labels.bincount().double()
    means = torch.zeros(len(counts), z.shape[1], dtype=torch.float64).index_add_(0, labels, z.double())
    means /= counts[:, None]
    left = z - means.float()[labels]
    private = (left.T @ left).double() / len(z)
    found = {}
    for name, spread in (("private covariance", private), ("public covariance", torch.eye(len(private)).double())):
        weight = torch.linalg.solve(spread + 1e-4 * torch.eye(len(spread)).double(), means.T)
        head = Discriminant(weight, -0.5 * (means * weight.T).sum(1), 0.0)
        found[name] = share(Layers.of(head, public).named(test), test.labels)
    return found


def share(named: Tensor, labels: Tensor) -> float:
    return 100 * float(named.eq(labels).double().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--backbone", default="efficientnet_lite0+mobilenet_v2")
    parser.add_argument("--plain", action="store_true", help="features of the image alone, without its mirrored twin")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "accuracy.json")
    parser.add_argument("--quick", action="store_true", help="one party, two steps only")
    chosen = parser.parse_args()
    extractor = Extractor.parse(chosen.backbone, mirror=not chosen.plain)
    loaded = cache.load(extractor, data_folder(None))
    sets = {}
    for name in ("cifar100", "cifar10", "cifar10:test"):
        sys.stderr.write(f"features of {name}\n")
        sets[name] = cache.extract(open_data(name), loaded, cache.cache_folder())
    public = projection_fit.fit(sets["cifar100"], loaded.digest)
    private, test = sets["cifar10"], sets["cifar10:test"]
    rows: list[dict[str, Any]] = []
    for name, accuracy in clean(private, test, public).items():
        settings = {"protocol": f"no noise, {name}", "parties": 1, "mu": None, "seed": 0}
        rows.append(said({"settings": settings, "figures": {"accuracy %": accuracy}}))
    protocols: tuple[Protocol, ...] = ("two-step",) if chosen.quick else PROTOCOLS
    for protocol, parties, mu in itertools.product(protocols, (1,) if chosen.quick else PARTIES, MUS):
        for seed in range(chosen.seeds if protocol == "two-step" else 1):
            started = time.perf_counter()
            found = learn(dealt(private, parties), public, protocol, mu, stream=SeededStream(seed))
            figures = {
                "accuracy %": 100 * found.accuracy(test),
                "k": found.k,
                "seconds": time.perf_counter() - started,
            }
            settings = {"protocol": protocol, "parties": parties, "mu": mu, "seed": seed}
            rows.append(said({"settings": settings, "figures": figures}))
    about = results.provenance({"backbone": str(extractor), "public": "cifar100", "private": "cifar10"})
    results.write_results(
        chosen.out, results.Results(f"Certified accuracy on CIFAR-10, {extractor}", about, tuple(rows))
    )


def said(row: dict[str, Any]) -> dict[str, Any]:
    sys.stderr.write(f"{row}\n")
    return row


if __name__ == "__main__":
    main()
