"""Measure, and write what was measured with where it was measured. See README.md beside this file."""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import statistics
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from benchmarks.augmix import augmented
from benchmarks.load import under_load
from benchmarks.secure_sums import secured
from benchmarks.split import penalties
from mixveil.core import files
from mixveil.core.randomness import SecureStream, SeededStream
from mixveil.core.types import Mu, Release
from mixveil.data.images import Images, from_tensors
from mixveil.data.npz import npz_images
from mixveil.encoders.batch_transform import BatchTransform
from mixveil.encoders.calibration import settled_facts
from mixveil.encoders.singular import Singular
from mixveil.features.backbones.loading import KNOWN, Backbone
from mixveil.features.backbones.resnet import resnet18
from mixveil.features.cache import Loaded, extract
from mixveil.features.extractor import Extractor
from mixveil.learn.batches import Released
from mixveil.learn.fit import TrainingRecipe, fit
from mixveil.releases.reading import read_release
from mixveil.releases.records import in_memory, write_release
from mixveil.report import results
from mixveil.theory.minimax import log_minimax_factors

HERE = Path(__file__).parent


def encoding(rows: int = 50_000, values: int = 3072) -> list[dict[str, float]]:
    """Secure noise on the grid, as a release is encoded, against the same mixture written naively: float32, whole
    arrays, torch.randn, then rounded. Both on the same number of threads; repetitions alternate, the best of each
    counts."""
    x = torch.from_numpy(np.random.default_rng(0).random((rows, values), np.float32))
    data = from_tensors(x, torch.arange(rows) % 10)
    encoder, _ = Singular().calibrate(Mu(1.0), settled_facts(data, certified=True, public=None, clip=None))
    trace = encoder.plan(rows, stream=SeededStream(1))
    partner, weight = trace.partner[:, 0], trace.weight
    sigma, step = encoder.sigma, float(encoder.step or 0)

    def ours() -> Release:
        return in_memory(data, encoder, (), party="bench", stream=SecureStream())

    def naive() -> torch.Tensor:
        z = x - 0.5
        mixed = weight[:, :1] * z + weight[:, 1:] * (z[partner] + sigma * torch.randn(rows, values))
        return (mixed / step).round().to(torch.int16)

    most, found = torch.get_num_threads(), []
    for threads in sorted({1, most}):
        torch.set_num_threads(threads)
        fast, slow = alternating(ours, naive, repetitions=5)
        found.append(
            {
                "threads": threads,
                "rows": rows,
                "values": values,
                "secure_ns_per_value": fast / rows / values * 1e9,
                "naive_ns_per_value": slow / rows / values * 1e9,
                "naive_over_secure": slow / fast,
            }
        )
    torch.set_num_threads(most)
    return found


def growth(folder: Path, gigabytes: float = 4.0, values: int = 3072) -> list[dict[str, float]]:
    """`write_release` as a user has it (fingerprints, ledger, noise, disk) of more and more rows of one memory-mapped
    file, and the most memory of its own that the process has meanwhile (RssAnon)."""
    images = mapped(folder / "large.npz", int(gigabytes * 1e9 / values), values)
    found: list[dict[str, float]] = []
    for rows in (10_000, 10_000, 100_000, 1_000_000, len(images)):  # the first only warms up
        os.sync()  # nobody waits for what another has written
        part = images.part(torch.arange(rows))
        encoder, guarantees = Singular().calibrate(Mu(1.0), settled_facts(part, certified=True, public=None, clip=None))
        with Watched() as watched:
            start = time.perf_counter()
            write_release(folder / "out", part, encoder, guarantees, party="bench", stream=SecureStream())
            seconds = time.perf_counter() - start
        bare = copying(folder / "out", folder / "copy")
        shutil.rmtree(folder / "out")
        found.append(
            {
                "rows": rows,
                "input_gb": rows * values / 1e9,
                "microseconds_per_row": seconds / rows * 1e6,
                "writing_alone_microseconds_per_row": bare / rows * 1e6,
                "peak_rss_anon_gb": watched.most,
            }
        )
        sys.stderr.write(f"{found[-1]}\n")
    per_row = [item["microseconds_per_row"] for item in found]
    return [
        {**item, "over_10_000_rows": time_ / per_row[1]} for item, time_ in zip(found[1:], per_row[1:], strict=True)
    ]


def mapped(path: Path, rows: int, values: int) -> Images:
    """An .npz file of random octets, made without holding it, and opened as any other."""
    rng = np.random.default_rng(0)
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": (rows, 3, 32, values // 96)}
            np.lib.format.write_array_header_1_0(file, header)
            for start in range(0, rows, 10_000):
                file.write(rng.bytes(min(10_000, rows - start) * values))
        with archive.open("y.npy", "w") as file:
            np.lib.format.write_array(file, np.arange(rows) % 10)
    return npz_images(path)


def copying(source: Path, target: Path) -> float:
    """Seconds to write the same bytes, file by file, and wait until they are on the disk: what cannot be saved."""
    seconds = 0.0
    target.mkdir()
    for path in source.iterdir():
        data = path.read_bytes()
        start = time.perf_counter()
        files.write_file(target / path.name, data)
        seconds += time.perf_counter() - start
    shutil.rmtree(target)
    return seconds


class Watched:
    """The most RssAnon of this process while something goes on, in GB, looked at fifty times a second."""

    def __enter__(self) -> Watched:
        self.most, self._done = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(0.02):
            lines = Path("/proc/self/status").read_text().splitlines()
            kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
            self.most = max(self.most, kilobytes * 1024 / 1e9)


def alternating(first: Callable[[], object], second: Callable[[], object], repetitions: int = 3) -> tuple[float, float]:
    """Seconds of the fastest repetition of each, in turn: what disturbs one disturbs the other."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repetitions + 1):  # the first only warms up
        for kept, work in zip(times, (first, second), strict=True):
            start = time.perf_counter()
            work()
            kept.append(time.perf_counter() - start)
    return min(times[0][1:]), min(times[1][1:])


def minimax(rows: int = 5_000_000) -> dict[str, float | bool]:
    """Theorem 1 for millions of rows on one thread, with the peak memory of the whole process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    stream = SeededStream(2)
    partner, weight = stream.permutation(rows), stream.capped_weights(rows, 0.7)
    start = time.perf_counter()
    logs = log_minimax_factors(partner, weight)
    seconds = time.perf_counter() - start
    torch.set_num_threads(threads)
    return {
        "rows": rows,
        "seconds": seconds,
        "peak_process_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        "log10_t_max": float(logs.max()) / math.log(10),
        "all_finite": bool(logs.isfinite().all()),
    }


def features(count: int = 96, batch: int = 16) -> dict[str, float]:
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

    ours, plain = alternating(lambda: extract(images, loaded, None), bare)
    return {
        "images": count,
        "extract_images_per_second": count / ours,
        "bare_images_per_second": count / plain,
        "extract_over_bare": plain / ours,
    }


def training(folder: Path, rows: int = 20_000, values: int = 3072, batch: int = 128) -> dict[str, float]:
    """An epoch of the head mlp on a release in its files (rows read as they are needed, orders and masks drawn by their
    step) against the same epoch in a bare loop of torch's own modules on floats in memory."""
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

    seconds, plain = alternating(ours, bare)
    return {
        "rows": rows,
        "values": values,
        "fit_rows_per_second": rows / seconds,
        "bare_rows_per_second": rows / plain,
        "fit_over_bare": plain / seconds,
    }


def transform() -> list[dict[str, Any]]:
    """A training step of a ResNet-18 with mixed batches against the same step on the batch as it is, and the transform
    alone. On a GPU in bfloat16, with images of two sizes; else a few small ones on the CPU."""
    cuda = torch.cuda.is_available()
    cases = [(128, 224), (128, 32)] if cuda else [(16, 32)]
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        return [mixed_steps(torch.device("cuda" if cuda else "cpu"), rows, size) for rows, size in cases]


def mixed_steps(device: torch.device, rows: int, size: int) -> dict[str, Any]:
    cuda = device.type == "cuda"
    torch.manual_seed(0)
    net = resnet18().to(device).requires_grad_(True).train()
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    x = torch.rand(rows, 3, size, size, device=device).contiguous(memory_format=torch.channels_last)
    y = torch.arange(rows, device=device) % 1000
    mix = BatchTransform(Singular(alpha=0.7), sigma=0.5, classes=1000, stream=SeededStream(0))

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=cuda):
            *_, (_, last) = net.maps(x)
            loss = cross_entropy(net.fc(last.mean((2, 3))), y)
        loss.backward()
        optimizer.step()

    works = (lambda: step(x, y), lambda: step(*mix(x, y)), lambda: mix(x, y))
    plain, mixed, alone = medians(*works, calls=20 if cuda else 3, repetitions=15)
    return {
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "rows": rows,
        "pixels": size,
        "plain_step_ms": plain * 1e3,
        "mixed_step_ms": mixed * 1e3,
        "transform_alone_ms": alone * 1e3,
        "mixed_over_plain": mixed / plain,
    }


def medians(*works: Callable[[], object], calls: int, repetitions: int) -> list[float]:
    """Seconds of one call of each: the median of repetitions in turn, each of several calls and of all that they gave a
    GPU to do."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(repetitions + 1):  # the first only warms up
        for kept, work in zip(times, works, strict=True):
            settle()
            start = time.perf_counter()
            for _ in range(calls):
                work()
            settle()
            kept.append((time.perf_counter() - start) / calls)
    return [statistics.median(kept[1:]) for kept in times]


def network(folder: Path, parties: int = 20, size: int = 50_000_000) -> dict[str, float]:
    """Releases of many parties over TLS into a server's files, checked, against copying the same bytes over loopback.
    All of it on this machine: the parties' work is in the figure."""
    load = under_load(folder / "load", parties, size)
    return {
        "parties": parties,
        "megabytes": load.bytes / 1e6,
        "seconds": load.seconds,
        "megabytes_per_second": load.bytes / 1e6 / load.seconds,
        "copying_seconds": load.copying,
        "times_copying": load.seconds / load.copying,
        "server_peak_rss_anon_gb": load.most / 1e9,
        "releases_lost": parties - load.arrived,
    }


def settle() -> None:
    """Wait until a GPU, where there is one, has done all that it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def store(path: Path, rows: list[dict[str, Any]], *, whole: bool) -> None:
    """Replace the rows of the benchmarks that ran. Of a whole run the provenance is this run's, else what was there;
    benchmarks that are from another run have a line among its settings."""
    device = next((str(row["settings"]["device"]) for row in rows if "device" in row["settings"]), "cpu")
    about = results.provenance({"threads": torch.get_num_threads()}, device=device)
    if path.exists():
        old = results.read_results(path)
        ran = {row["settings"]["benchmark"] for row in rows}
        others = [dict(row) for row in old.rows if row["settings"]["benchmark"] not in ran]
        known = {name: line for name, line in old.provenance["settings"].items() if name not in ran}
        if whole or not others:
            stay = dict.fromkeys(str(row["settings"]["benchmark"]) for row in others)
            about["settings"] |= {name: known.get(name, source(old.provenance)) for name in stay}
        else:
            about = {**old.provenance, "settings": known | {name: source(about) for name in sorted(ran)}}
        rows = others + rows
    results.write_results(path, results.Results("Benchmarks", about, tuple(rows)))


def source(about: Mapping[str, Any]) -> str:
    """A provenance in a line."""
    return f"{about['commit']}, torch {about['versions']['torch']}, {about['device']}, {about['time']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only",
        choices=(
            "minimax",
            "growth",
            "encoding",
            "features",
            "training",
            "transform",
            "penalties",
            "augmix",
            "network",
            "secure-sums",
        ),
        help="one of them",
    )
    parser.add_argument("--folder", type=Path, help="where 13 GB can be written for a while; else the temporary folder")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    chosen = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        os.environ["MIXVEIL_STATE"] = str(Path(name) / "state")
        # Those that measure memory first: peaks are the process's, and the others' arrays would count.
        works: dict[str, Callable[[], list[dict[str, Any]]]] = {
            "growth": lambda: growth(Path(name)),
            "minimax": lambda: [minimax()],
            "encoding": encoding,
            "features": lambda: [features()],
            "training": lambda: [training(Path(name))],
            "transform": transform,
            "penalties": lambda: penalties(medians),
            "augmix": lambda: augmented(medians),
            "network": lambda: [network(Path(name))],
            "secure-sums": secured,
        }
        for what, work in works.items():
            if chosen.only in (None, what):
                found[what] = work()
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    if not torch.cuda.is_available():
        found.pop("transform", None)  # shown, not stored: what it costs beside a step matters on a GPU
    varied = {"growth": ("rows",), "encoding": ("threads",), "transform": ("device", "rows", "pixels")}
    varied |= {
        "secure-sums": ("parties",),
        "penalties": ("device", "rows"),
        "augmix": ("device", "network", "rows", "pixels"),
    }
    rows: list[dict[str, Any]] = []
    for name, each in found.items():
        for figures in each:
            settings = {"benchmark": name, **{key: figures[key] for key in varied.get(name, ())}}
            rows.append({"settings": settings, "figures": {k: v for k, v in figures.items() if k not in settings}})
    if rows:
        store(chosen.out, rows, whole=chosen.only is None)


if __name__ == "__main__":
    main()
