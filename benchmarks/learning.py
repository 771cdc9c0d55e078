"""Features, and an epoch of the head mlp, each beside a bare loop."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch

from benchmarks.record import Found, Plain
from benchmarks.timing import medians
from mixveil.core.randomness import SecureStream
from mixveil.core.types import Mu
from mixveil.data.images import from_tensors
from mixveil.encoders.calibration import settled_facts
from mixveil.encoders.singular import Singular
from mixveil.features.backbones.loading import KNOWN, Backbone
from mixveil.features.cache import Loaded, extract
from mixveil.features.extractor import Extractor
from mixveil.learn.batches import Released
from mixveil.learn.fit import TrainingRecipe, fit
from mixveil.releases.reading import read_release
from mixveil.releases.records import write_release

_REPETITIONS = 3
_SETTINGS: dict[str, Plain] = {"warm_up": 1, "repetitions": _REPETITIONS, "statistic": "median"}


def features(count: int = 96, batch: int = 16) -> Found:
    """Images a second from `extract`, with no cache, against a bare loop over the network. The weights are random:
    they do not change the speed. Repetitions alternate, the best of each counts."""
    known = KNOWN["mobilenet_v2"]
    torch.manual_seed(0)
    net = Backbone("mobilenet_v2", "0" * 64, known.make().requires_grad_(False).eval())
    loaded = Loaded(Extractor(("mobilenet_v2",)), (net,), torch.device("cpu"))
    images = from_tensors(torch.rand(count, 3, 32, 32), torch.arange(count) % 2)
    ready = torch.rand(batch, 3, 224, 224).contiguous(memory_format=torch.channels_last)

    def bare() -> None:
        with torch.inference_mode():
            for _ in range(count // batch):
                for _, found in net.net.maps(ready):
                    last = found
                last.mean((2, 3))

    ours, plain = medians(lambda: extract(images, loaded, None), bare, repetitions=_REPETITIONS)
    row: dict[str, Plain] = {
        "images": count,
        "extract_images_per_second": count / ours,
        "bare_images_per_second": count / plain,
        "extract_over_bare": plain / ours,
    }
    return Found([row], _SETTINGS)


def training(rows: int = 20_000, values: int = 3072, batch: int = 128) -> Found:
    """An epoch of the head mlp on a release in its files (rows read as they are needed, orders and masks drawn by their
    step) against the same epoch in a bare loop of torch's own modules on floats in memory."""
    with tempfile.TemporaryDirectory() as folder:
        return Found([_epochs(Path(folder), rows, values, batch)], _SETTINGS)


def _epochs(folder: Path, rows: int, values: int, batch: int) -> dict[str, Plain]:
    x = torch.from_numpy(np.random.default_rng(0).random((rows, values), np.float32))
    data = from_tensors(x, torch.arange(rows) % 10)
    encoder, guarantees = Singular().calibrate(Mu(1.0), settled_facts(data, certified=True, public=None, clip=None))
    write_release(folder / "training", data, encoder, guarantees, party="bench", stream=SecureStream())
    release = read_release(folder / "training")
    everything = release.payload.take(torch.arange(rows))
    source = Released([release], torch.device("cpu"))

    def ours() -> None:
        fit(source, TrainingRecipe(epochs=1, batch=batch))

    def bare() -> None:
        layers: list[torch.nn.Module] = []
        for inside, outside in ((values, 1024), (1024, 512)):
            layers += [torch.nn.Linear(inside, outside), torch.nn.BatchNorm1d(outside), torch.nn.GELU()]
            layers += [torch.nn.Dropout(0.5)]
        net = torch.nn.Sequential(*layers, torch.nn.Linear(512, 10))
        optimiser = torch.optim.AdamW(net.parameters(), 1e-3, weight_decay=1e-4, fused=True)
        for index in torch.split(torch.randperm(rows), batch):
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(everything.x[index].flatten(1)), everything.y[index])
            loss.backward()
            optimiser.step()

    seconds, plain = medians(ours, bare, repetitions=_REPETITIONS)
    return {
        "rows": rows,
        "values": values,
        "fit_rows_per_second": rows / seconds,
        "bare_rows_per_second": rows / plain,
        "fit_over_bare": plain / seconds,
    }
