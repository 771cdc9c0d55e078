"""Run all checks, print what they found, and write it as JSON. See README.md beside this file."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import torch

from outside_checks import canaries, curves, integers, steps
from outside_checks.lines import Check, Fault, Line, table

_PACKAGES = ("mixveil", "torch", "numpy", "scipy", "mpmath", "dp-accounting", "opendp", "jax", "jax-privacy", "opacus")
_CHECKS: dict[str, tuple[Callable[[], Sequence[Line]], Callable[[], Sequence[Fault]]]] = {
    "curves": (curves.lines, curves.faults),
    "steps": (steps.lines, steps.faults),
    "integers": (integers.lines, integers.faults),
    "canaries": (canaries.lines, canaries.faults),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m outside_checks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(_CHECKS)}; else all")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results.json")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in _CHECKS]
    if unknown:
        parser.error(f"there is no check {', '.join(unknown)}")
    torch.set_num_threads(1)  # releases of four rows
    found = []
    for name in chosen.names or _CHECKS:
        found.append(_run(name))
        sys.stdout.write(table(found[-1:]) + "\n")
        sys.stdout.flush()
    chosen.out.write_text(json.dumps(_plain(found), indent=1, allow_nan=False, ensure_ascii=False) + "\n")
    return 0 if all(check.passed for check in found) else 1


def _run(name: str) -> Check:
    lines, faults = _CHECKS[name]
    start = time.perf_counter()
    return Check(name, lines(), faults(), time.perf_counter() - start)


def _plain(checks: Sequence[Check]) -> dict[str, object]:
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
        "checks": [
            {
                "name": check.name,
                "passed": check.passed,
                "seconds": round(check.seconds, 1),
                "lines": [{**asdict(line), "holds": line.holds} for line in check.lines],
                "faults": [{**asdict(item), "missed": item.missed} for item in check.faults],
            }
            for check in checks
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
