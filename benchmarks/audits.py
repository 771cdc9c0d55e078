"""Audits as a data owner runs them: a folder of photographs, similar public ones, the quick profile.

Images are Tiny-ImageNet's where the folder that MIXVEIL_DATA names has them: 600 of its training images are private,
its validation images public; at 224 × 224 they are enlarged. Elsewhere they are made of waves. An audit does the same
work on them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from benchmarks.gpu_attacks import pictures
from benchmarks.record import Found, Plain, Row
from benchmarks.timing import in_status

_ROWS, _PUBLIC, _CLASSES = 600, 10_000, 10
_SIDES = (64, 224)


def audits(sides: Sequence[int] = _SIDES, rows: int = _ROWS, public: int = _PUBLIC) -> Found:
    """Seconds and most resident memory of `mixveil audit`, in a process of its own."""
    source = Path(os.environ.get("MIXVEIL_DATA", "")) / "tiny-imagenet-200"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if source.is_dir():
            _copied(folder / "private", sorted((source / "train").glob("*/images/*.JPEG")), rows)
            _copied(folder / "public", sorted((source / "val").glob("images/*.JPEG")), public)
        else:
            _made(folder / "private", rows, 1)
            _made(folder / "public", public, 2)
        found = [_audit(folder, side) for side in sides]
    settings: Row = {
        "warm_up": 0, "repetitions": 1, "statistic": "single", "rows": rows, "public": public, "mu": 1.0,
        "images": "tiny-imagenet" if source.is_dir() else "made of waves",
    }  # fmt: skip
    return Found(found, settings)


def _copied(to: Path, images: Sequence[Path], count: int) -> None:
    """A folder of class folders, of evenly spaced images."""
    for number in range(count):
        image = images[number * len(images) // count]
        shutil.copyfile(image, _place(to, number, ".jpeg"))


def _made(to: Path, count: int, seed: int) -> None:
    """The same, of 64 × 64 pixels."""
    for number, x in enumerate(pictures(count, (3, 64, 64), seed)):
        octets = (x * 255).round().byte().permute(1, 2, 0).contiguous().numpy()
        Image.fromarray(octets).save(_place(to, number, ".png"))


def _place(to: Path, number: int, suffix: str) -> Path:
    place = to / str(number % _CLASSES) / f"{number}{suffix}"
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def _audit(folder: Path, side: int) -> dict[str, Plain]:
    size, release, out = ["--size", str(side)], folder / f"release-{side}", folder / f"audit-{side}"
    _mixveil("encode", str(folder / "private"), *size, "--mu", "1", "--out", str(release))
    public = ["--truth", str(folder / "private"), "--public", str(folder / "public")]
    seconds, gigabytes, told = _mixveil("audit", str(release), *public, *size, "--out", str(out), "--json")
    ran = sum(attack["status"] == "ran" for attack in json.loads(told)["attacks"])
    return {"work": "audit", "side": side, "seconds": seconds, "peak_rss_gb": gigabytes, "attacks_ran": ran}


def _mixveil(*words: str) -> tuple[float, float, str]:
    """Seconds, most resident memory in GB, and what it printed."""
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "mixveil.cli.main", *words], stdout=subprocess.PIPE, text=True)
    told: list[str] = []
    reading = threading.Thread(target=lambda: told.append(process.stdout.read() if process.stdout else ""))
    reading.start()
    most = 0
    while process.poll() is None:
        most = max(most, in_status("VmHWM", process.pid))
        time.sleep(0.05)
    reading.join()
    if process.returncode:
        raise RuntimeError(f"mixveil {' '.join(words)} failed")
    return time.perf_counter() - begun, most / 1e9, told[0]
