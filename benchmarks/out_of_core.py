"""Data larger than memory: moments, encoding, verifying and attacking of a large archive, each in a process of its own.

    python -m benchmarks.out_of_core [--rows 5000000] [--few 50000] [--values 3072] [--folder /work] [--out RESULTS]

Rows are CIFAR-10's images, mirrored, moved and made brighter or darker, where the folder that MIXVEIL_DATA names has
them, and its test images are public in the audit; elsewhere they are random octets.

Made and removed in the folder: the data, and their release, which takes two bytes a value. A disk that cannot hold both
and a tenth more makes the rows fewer, and the figures say so. Each step is run on the first rows alone too; that run
reads them from the same file. Of each process: seconds, its peak resident memory (VmHWM), and its peak of memory of
its own (RssAnon).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import mixveil
from benchmarks.record import RESULTS, Found, Plain, Row, recorded
from benchmarks.timing import Watched, in_status
from mixveil.core.randomness import SecureStream, SeededStream
from mixveil.core.types import Mu
from mixveil.core.wording.notes import Note
from mixveil.data.images import Images
from mixveil.data.npz import npz_images
from mixveil.encoders.calibration import settled_facts
from mixveil.encoders.singular import Singular
from mixveil.releases.reading import verify
from mixveil.releases.records import write_release
from mixveil.theory.moments import moments

_AT_ONCE = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--few", type=int, default=50_000)
    parser.add_argument("--values", type=int, default=3072)
    parser.add_argument("--folder", type=Path, help="where there is room; else the temporary folder")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder of results")
    parser.add_argument("--step", choices=sorted(STEPS), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.step:
        sys.stdout.write(json.dumps(alone(chosen.step, chosen.folder, chosen.rows)) + "\n")
        return
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        path = recorded("out-of-core", lambda: measured(Path(name), chosen.rows, chosen.few, chosen.values), chosen.out)
    sys.stdout.write(path.read_text())


def measured(folder: Path, asked: int, few: int, values: int) -> Found:
    rows = affordable(folder, asked, values)
    make(folder / "data.npz", rows, values)
    steps: dict[tuple[str, int], dict[str, Plain]] = {}
    for count in (few, rows):
        for step in ("moments", "encode", "verify", "audit"):
            steps[step, count] = {"work": step, "rows": count, **run(step, folder, count)}
            sys.stderr.write(f"{steps[step, count]}\n")
        shutil.rmtree(folder / "out")
        shutil.rmtree(folder / "state")
    for (step, count), row in steps.items():
        row["time_a_row_over_few"] = row["seconds"] / count / (steps[step, few]["seconds"] / few)  # type: ignore[operator]
    settings: Row = {
        "warm_up": 0, "repetitions": 1, "statistic": "single", "asked_rows": asked, "values_a_row": values,
        "threads": torch.get_num_threads(), "images": "cifar10, augmented" if photographs(values) else "random octets",
    }  # fmt: skip
    return Found(list(steps.values()), settings)


def affordable(folder: Path, rows: int, values: int) -> int:
    """As many rows as the disk holds, with their release."""
    return min(rows, int(shutil.disk_usage(folder).free / 1.1 / (3 * values + 100)))


def make(path: Path, rows: int, values: int) -> None:
    """An .npz file of so many rows, without holding it."""
    side = int((values / 3) ** 0.5)
    images, labels = augmented() if photographs(values) else octets(side)
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": (rows, 3, side, side)}
            np.lib.format.write_array_header_1_0(file, header)
            for start in range(0, rows, _AT_ONCE):
                file.write(images(torch.arange(start, min(start + _AT_ONCE, rows))))
        with archive.open("y.npy", "w") as file:
            np.lib.format.write_array(file, labels[torch.arange(rows) % len(labels)].to(torch.uint8).numpy())


Rows = tuple[Callable[[Tensor], bytes], Tensor]
"""The octets of the rows with some numbers, in the order in which they are asked for; and labels, over and over."""


def octets(side: int) -> Rows:
    rng = np.random.default_rng(0)
    return lambda index: rng.bytes(len(index) * 3 * side * side), torch.arange(10)


def photographs(values: int) -> bool:
    return values == 3072 and (Path(os.environ.get("MIXVEIL_DATA", "")) / "cifar10").is_dir()


def augmented() -> Rows:
    """CIFAR-10's training images: mirrored or not, moved by up to 4 pixels, and with other brightness."""
    data, draws = mixveil.open_data("cifar10"), SeededStream(0)

    def images(index: Tensor) -> bytes:
        x = torch.nn.functional.pad(data.take(index % len(data)).x, (4, 4, 4, 4), mode="reflect")
        mirrored, down, across = ((n * draws.uniform(len(x))).long() for n in (2, 9, 9))
        x = torch.where(mirrored.bool().view(-1, 1, 1, 1), x.flip(3), x)
        place = torch.arange(32)
        rows, columns = (down[:, None] + place)[:, None, :, None], (across[:, None] + place)[:, None, None, :]
        x = x[torch.arange(len(x)).view(-1, 1, 1, 1), torch.arange(3).view(1, -1, 1, 1), rows, columns]
        bright = 0.8 + 0.4 * draws.uniform(len(x), 1, 1, 1).float()
        octets: bytes = (x * bright).clamp_(0, 1).mul_(255).round_().byte().numpy().tobytes()
        return octets

    return images, data.labels


def run(step: str, folder: Path, rows: int) -> dict[str, float]:
    """A step in a process of its own, and the most memory that it had."""
    command = [sys.executable, "-m", "benchmarks.out_of_core", "--step", step]
    command += ["--folder", str(folder), "--rows", str(rows)]
    about = {**os.environ, "MIXVEIL_STATE": str(folder / "state")}
    os.sync()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=about)
    told, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{step} of {rows} rows failed")
    found: dict[str, float] = json.loads(told)
    return {**found, "microseconds_per_row": found["seconds"] / rows * 1e6}


def alone(step: str, folder: Path, rows: int) -> dict[str, float]:
    with Watched() as own:
        begun = time.perf_counter()
        STEPS[step](folder, rows)
        seconds = time.perf_counter() - begun
    return {"seconds": seconds, "peak_rss_gb": in_status("VmHWM") / 1e9, "peak_rss_anon_gb": own.most}


def first(folder: Path, rows: int) -> Images:
    whole = npz_images(folder / "data.npz")
    return whole if rows == len(whole) else whole.part(torch.arange(rows))


def encode(folder: Path, rows: int) -> None:
    """As a user has it: fingerprints of all images, twice, the ledger, secure noise, files that are on the disk."""
    data = first(folder, rows)
    encoder, guarantees = Singular().calibrate(Mu(1.0), settled_facts(data, certified=True, public=None, clip=None))
    write_release(folder / "out", data, encoder, guarantees, party="bench", stream=SecureStream())
    os.sync()


def second_moments(folder: Path, rows: int) -> None:
    moments(first(folder, rows), stream=SeededStream(0))


def verified(folder: Path, rows: int) -> None:
    if verify(folder / "out").stated.rows != rows:
        raise RuntimeError("the release does not have all rows")


def audited(folder: Path, rows: int) -> None:
    """Every attack of the quick profile; of a large release on a part that hangs together by its pairs."""
    data = first(folder, rows)
    public = "cifar10:test" if photographs(math.prod(data.shape)) else None
    mixveil.audit([folder / "out"], data, public=public, tell=_say)


def _say(note: Note) -> None:
    sys.stderr.write(f"{note}\n")


STEPS = {"moments": second_moments, "encode": encode, "verify": verified, "audit": audited}


if __name__ == "__main__":
    main()
