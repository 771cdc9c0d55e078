"""What an audit takes, counted before it begins: operations, from them a time, and memory.

Counts are rough: an attack says of itself how often it goes through all values, and how many products with the
directions that records vary in it forms (`BaseAttack`). How many operations a second this machine makes is measured,
beside whatever else runs on it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from mixveil.attacks.shared.base import PASS
from mixveil.audit import known_records
from mixveil.audit.asking import work_of
from mixveil.audit.course import Step
from mixveil.audit.public import is_held
from mixveil.audit.self_test import bare_pair_rows, bare_rows
from mixveil.core.errors import TooLittleMemoryError
from mixveil.core.types import Attack, Sizes

_SIDE = 640  # of the matrices that are multiplied to see how fast this machine is
_READ, _PREPARED = 20, 60  # passes over public values to read and recognise them; over private ones, to inspect them
_METRICS = 40  # passes over guesses to measure them: SSIM takes most
_BARE_TRIALS = 2
_NETWORK = 3000  # passes that stand for the training of a network, whose work is not counted
_EIGEN = 10  # operations of an eigenbasis, over the cube of its size
_PICTURES = ("reconstruction", "prior")
_BASE, _VALUE, _HELD = 1.1e9, 50.0, 4.0  # bytes: of the program; of a value attacked; of one that is held


class Stages(NamedTuple):
    """The operations of one attack in an audit.

    Attributes:
        tried: On releases without a defence.
        control: On a release of public records: attacks on membership.
        attack: On the releases.
        alone: Again without public data.
        measured: To compare its guesses with the truth.
    """

    tried: float
    control: float
    attack: float
    alone: float
    measured: float


@dataclass(frozen=True)
class Counted:
    """What an audit is counted from.

    Attributes:
        sizes: Of the rows that are attacked, `directions` those of an attacker who has public data if there are any.
        own: Directions of an attacker without public data.
        whole: Rows of the whole releases.
        classes: Classes of their labels.
        public: Public rows.
        pairs: How many rows attacks on pairs are asked about, and among how many candidates.
        looked: Operations of LPIPS for one attack.
    """

    sizes: Sizes
    own: int
    whole: int
    classes: int
    public: int
    pairs: tuple[int, int]
    looked: float

    def stages(self, attack: Attack) -> Stages:
        """Of an attack that runs."""
        sizes, rows = self.sizes, bare_rows(self.sizes.rows, self.sizes.values, attack.least_releases)
        values, learns = (
            float(sizes.rows) * sizes.values,
            attack.learns and attack.kind in ("reconstruction", "linkage"),
        )
        guesses = len(known_records.SHARES) if "known" in attack.needs else 1
        looks = guesses * (values * PASS * _METRICS + self.looked / 2) if attack.kind in _PICTURES else 0.0
        bare = sizes._replace(rows=rows, releases=attack.least_releases, candidates=2 * rows)
        if attack.kind == "pairs":
            asked, among = self.pairs
            tried = work_of(attack, sizes._replace(rows=bare_pair_rows(), candidates=bare_pair_rows(), releases=1))
            return Stages(2 * tried, 0, work_of(attack, sizes._replace(rows=asked, candidates=among)), 0, 0)
        tried = 0.0 if attack.kind in ("prior", "labels") else _BARE_TRIALS * work_of(attack, bare)
        control = work_of(attack, sizes) if attack.kind == "membership" and self.public else 0.0
        twice = learns and self.public > 0 and "public" not in attack.needs
        alone = work_of(attack, sizes._replace(directions=self.own)) if twice else 0.0
        return Stages(tried, control, work_of(attack, sizes), alone, looks)

    def steps(self, attacks: Sequence[Attack], skipped: Collection[str]) -> tuple[Step, ...]:
        """All of an audit by these attacks, in their order. skipped: the names of those that will not run."""
        sizes = self.sizes
        row, known = float(sizes.values), min(self.public, sizes.directions)
        read = PASS * row * (_PREPARED * self.whole * sizes.releases + _READ * self.public)
        learnt = 4 * row * known * known + _EIGEN * float(known) ** 3
        noise = 2 * row * float(sizes.rows) ** 2 + PASS * _PREPARED * row * sizes.rows
        between = (Step(a.name, 0.0 if a.name in skipped else sum(self.stages(a))) for a in attacks)
        return (Step("records", read), Step("public", learnt), *between, Step("noise", noise * sizes.releases))

    @property
    def memory(self) -> float:
        """Bytes that the audit needs at once, about."""
        values = float(self.sizes.rows) * self.sizes.values * max(1, self.sizes.releases)
        bases = 16.0 * max(self.sizes.directions, self.own) * self.sizes.values
        return _BASE + _VALUE * values + bases + self._held(self.whole) + self._held(self.public)

    def _held(self, rows: int) -> float:
        """Bytes of rows with their labels, if they are held."""
        columns = self.sizes.values + self.classes
        return _HELD * rows * columns if is_held(rows, self.sizes.values, self.classes) else 0.0


def check_memory(needed: float, of: str) -> None:
    """Refuse what would not fit. of: what needs it, in words."""
    free = free_memory()
    if free is not None and needed > free:
        raise TooLittleMemoryError(
            f"{of} needs about {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free: audit a release of "
            f"smaller images (--size), or on a machine with more memory"
        )


def free_memory() -> float | None:
    """Bytes that this process can still take: of the machine, and of what it may use of it; None where that is not
    known."""
    found = [_available(), *(_left(*names) for names in _LIMITS)]
    return min((free for free in found if free is not None), default=None)


def _available() -> float | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)


_GROUP = Path("/sys/fs/cgroup")
_LIMITS = ((_GROUP / "memory.max", _GROUP / "memory.current"),)


def _left(limit: Path, used: Path) -> float | None:
    try:
        return float(int(limit.read_text()) - int(used.read_text()))
    except (OSError, ValueError):  # no limit is written as a word
        return None


def speed() -> float:
    """Operations a second of a product of matrices, here and now."""
    one = torch.ones(_SIDE, _SIDE, dtype=torch.float64)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        one @ one
        times.append(time.perf_counter() - start)
    return 2.0 * _SIDE**3 / max(min(times), 1e-9)
