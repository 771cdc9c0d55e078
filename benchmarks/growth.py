"""Releases of more and more rows of one memory-mapped file: time a row, and memory, must not grow."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import torch

from benchmarks.record import Found, Plain, Plot
from benchmarks.timing import Watched
from mixveil.core import files
from mixveil.core.randomness import SecureStream
from mixveil.core.types import Mu
from mixveil.data.images import Images
from mixveil.data.npz import npz_images
from mixveil.encoders.calibration import settled_facts
from mixveil.encoders.singular import Singular
from mixveil.releases.records import write_release


def growth() -> Found:
    with tempfile.TemporaryDirectory() as folder:
        rows = measured(Path(folder))
    settings: dict[str, Plain] = {"warm_up": 1, "repetitions": 1, "statistic": "single", "values": 3072}
    plots = [
        Plot("Releasing rows of a memory-mapped file", "rows", "microseconds_per_row", "work"),
        Plot("Most memory of its own", "rows", "peak_rss_anon_gb", "work"),
    ]
    return Found(rows, settings, plots)


def measured(folder: Path, gigabytes: float = 4.0, values: int = 3072) -> list[dict[str, Plain]]:
    """`write_release` as a user has it (fingerprints, ledger, noise, disk) of more and more rows of one memory-mapped
    file, and the most memory of its own that the process has meanwhile (RssAnon)."""
    images = mapped(folder / "large.npz", int(gigabytes * 1e9 / values), values)
    found: list[dict[str, Plain]] = []
    per_row: list[float] = []
    for rows in (10_000, 10_000, 100_000, 1_000_000, len(images)):  # the first only warms up
        os.sync()  # no work waits for what another has written
        part = images.part(torch.arange(rows))
        encoder, guarantees = Singular().calibrate(Mu(1.0), settled_facts(part, certified=True, public=None, clip=None))
        with Watched() as watched:
            start = time.perf_counter()
            write_release(folder / "out", part, encoder, guarantees, party="bench", stream=SecureStream())
            seconds = time.perf_counter() - start
        bare = copying(folder / "out", folder / "copy")
        shutil.rmtree(folder / "out")
        per_row.append(seconds / rows * 1e6)
        found.append(
            {
                "work": "write_release",
                "rows": rows,
                "input_gb": rows * values / 1e9,
                "microseconds_per_row": per_row[-1],
                "writing_alone_microseconds_per_row": bare / rows * 1e6,
                "peak_rss_anon_gb": watched.most,
            }
        )
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
