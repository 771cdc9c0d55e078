"""What a benchmark measured as JSON, with the commit, machine, versions and load. See README.md beside this file."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
RESULTS = HERE / "results"
Plain = str | float | int | bool | None
Row = Mapping[str, Plain]


@dataclass(frozen=True)
class Plot:
    """y over x, both names of columns; a curve for each value of the column `curve`, of the rows that have the values
    in `only`. Both axes are logarithmic."""

    title: str
    x: str
    y: str
    curve: str
    only: Row = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """What a benchmark returns.

    Attributes:
        rows: One measurement each, flat: what was run, its sizes, its figures.
        settings: `warm_up`, `repetitions`, `statistic` (median, best or single), and all else that was chosen.
        plots: What the page draws.
        device: "cpu", or the name of the GPU.
        packages: Those whose versions matter, beside Python, torch and mixveil.
    """

    rows: Sequence[Row]
    settings: Row
    plots: Sequence[Plot] = ()
    device: str = "cpu"
    packages: Sequence[str] = ()


def recorded(name: str, work: Callable[[], Found], folder: Path = RESULTS) -> Path:
    """Run a benchmark and write `name`.json into the folder, with where it was measured."""
    before = os.getloadavg()[0]
    found = work()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(whole(name, found, before), indent=1, allow_nan=False, ensure_ascii=False) + "\n")
    return path


def whole(name: str, found: Found, load_before: float) -> dict[str, Any]:
    return {
        "name": name,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(found.device),
        "versions": versions(found.packages),
        "load": {"before": round(load_before, 2), "after": round(os.getloadavg()[0], 2)},
        "settings": dict(found.settings),
        "rows": [dict(row) for row in found.rows],
        "plots": [asdict(plot) for plot in found.plots],
    }


def commit() -> str:
    git = shutil.which("git")
    if git is None:
        return "unknown"
    asked = [git, "describe", "--always", "--dirty", "--abbrev=12"]
    told = subprocess.run(asked, cwd=HERE, capture_output=True, text=True, check=False).stdout
    return told.strip() or "unknown"


def machine(device: str) -> dict[str, Any]:
    """The cores are those that this process may use."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "device": device,
        "processor": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(pages * size / 1e9, 1),
    }


def versions(packages: Sequence[str]) -> dict[str, str]:
    """A package that is not installed is said to be absent."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    for name in ("mixveil", *packages):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return found
