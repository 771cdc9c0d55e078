"""Encoding and attacking need torch, numpy, scipy and safetensors, and nothing else that is installed here."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

CODE = """
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):  # not there, rather than refused: torch asks whether modules are
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in BLOCKED else super().find_spec(name, path, target)

BLOCKED = set(sys.argv[1].split(","))
sys.meta_path[sys.meta_path.index(PathFinder)] = Without

import torch
from pathlib import Path
import mixveil
from mixveil.attacks.shared.training import TrainingCache
from mixveil.audit.covers import with_covers
from mixveil.core.errors import MissingDependencyError
from mixveil.core.types import KnownRecords, Units
from mixveil.features.backbones import loading
from mixveil.releases.traces import load_trace

data = mixveil.from_tensors(mixveil.SeededStream(0).uniform(12, 1, 4, 4).float(), torch.arange(12) % 3)
out = Path(sys.argv[2]) / "release"
mixveil.encode(data, out, mu=1.0, seed=1)
release = mixveil.read_release(out)
x, some = data.take(torch.arange(12)).x, torch.arange(4)
public = mixveil.from_tensors(mixveil.SeededStream(3).uniform(60, 1, 4, 4).float(), torch.arange(60) % 3)
units = Units(torch.arange(12) // 2, torch.arange(12), torch.arange(12))
known = KnownRecords(some, x[some])
view = mixveil.View((release,), (load_trace(release.id, 12),), public, x, data.labels, known, public, units)

hidden = []
for seed in range(30):
    out, cut = Path(sys.argv[2]) / str(seed), {"public": public, "keypoints": 0, "patches": 9}
    mixveil.encode(data, out, encoder="instahide", **cut, seed=seed)
    hidden.append(mixveil.read_release(out))
traces = tuple(load_trace(one.id, 12) for one in hidden)
masked = with_covers(mixveil.View(tuple(hidden), traces, public, x, data.labels), data, public)[0]
values = 0.5 + 0.1 * mixveil.SeededStream(4).normal(12, 1, 64, 64)
normal, mixed = mixveil.from_tensors(values.clamp(0, 1).float(), torch.arange(12) % 3), []
for seed in range(6):
    mixveil.encode(normal, Path(sys.argv[2]) / f"mixed {seed}", encoder="mixup", seed=seed)
    mixed.append(mixveil.read_release(Path(sys.argv[2]) / f"mixed {seed}"))
for kind in (kind for kind in mixveil.attacks().values() if kind.payload == "records"):
    small = {"base": 4} if hasattr(kind, "base") else {}  # networks
    attack = kind(cache=TrainingCache(max_steps=2), **small) if kind.trains else kind()
    hiding = "covers" in attack.needs or attack.kind in ("signs", "distribution")  # the latter needs many releases
    seen = masked if hiding else view
    if not attack.needs and attack.cannot(seen) is not None:  # for values that do not depend on one another
        seen = mixveil.View(tuple(mixed))
    attack(seen, stream=mixveil.SeededStream(2))
mixveil.calibrate(data, mu=1.0, tau=0.1)
for name in loading.at_hand(None):  # files of installed packages that cannot be imported here
    loading.load(name, None)
for needs in (mixveil.SecureStream, lambda: mixveil.open_data("digits")):
    try:
        needs()
    except MissingDependencyError as error:
        print("missing:", error)
print("done", len(release.payload))
"""


def closure(*names: str) -> set[str]:
    """The distributions that these need, themselves among them."""
    found: set[str] = set()
    queue = list(names)
    while queue:
        name = re.sub(r"[-_.]+", "-", queue.pop()).lower()
        if name in found:
            continue
        try:
            requires = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        found.add(name)
        queue += [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in requires if "extra ==" not in line]
    return found


def test_everything_else_blocked(tmp_path: Path) -> None:
    needed = closure("torch", "numpy", "scipy", "safetensors")
    blocked = {
        module
        for module, owners in metadata.packages_distributions().items()
        if not {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners} & (needed | {"mixveil", "pip", "setuptools"})
    }
    assert {"cryptography", "sklearn", "typer", "rich", "PIL"} <= blocked
    done = subprocess.run(
        [sys.executable, "-c", CODE, ",".join(sorted(blocked)), str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("missing:") == 2 and "done 12" in done.stdout
