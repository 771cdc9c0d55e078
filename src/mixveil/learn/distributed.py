"""Several processes of this machine that train one head, as `torchrun` starts them.

The processes find one another by a file and talk over the loopback interface, where no other machine can reach them.
Their messages are not encrypted, so processes on several machines are refused. `torchrun` itself listens on all
interfaces unless it is configured otherwise (docs/learning.md); `exposed` says whether it does.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from mixveil.core.errors import ArgumentError


@dataclass(frozen=True)
class Group:
    """This process among those that train together. rank: its number, from 0; size: how many processes there are."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def leads(self) -> bool:
        """Whether this process writes files and messages."""
        return self.rank == 0

    def own(self, rows: Tensor) -> Tensor:
        """This process's share of a batch: as many rows as any other process has, or one less."""
        return rows.tensor_split(self.size)[self.rank]


ALONE = Group()


def asked() -> int:
    """How many processes `torchrun` started; one without it."""
    return _number("WORLD_SIZE", "1")


def exposed() -> bool:
    """Whether `torchrun` listens on all interfaces."""
    return asked() > 1 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def leads() -> bool:
    """Whether this process writes files and messages."""
    return asked() == 1 or os.environ.get("RANK") == "0"


@contextmanager
def joined(meeting: Path) -> Iterator[Group]:
    """The processes that `torchrun` started, each with its own GPU where there are any. meeting: a path; the file by
    which the processes find one another is beside it."""
    gpus = torch.cuda.device_count()
    if asked() == 1:
        yield Group(device=torch.device("cuda" if gpus else "cpu"))
        return
    rank, size = _number("RANK", ""), asked()
    if os.environ.get("LOCAL_WORLD_SIZE") != str(size):
        raise ArgumentError(f"{size} processes on several machines would talk unencrypted: train on one machine")
    if gpus and gpus < size:
        raise ArgumentError(f"{size} processes are more than the GPUs, {gpus}: start one process for each")
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = "lo"
    device = torch.device("cuda", rank) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    meeting.parent.mkdir(parents=True, exist_ok=True)
    path = meeting.with_name(f".{meeting.name}.{_start_name()}.meeting")
    for old in meeting.parent.glob(f".{glob.escape(meeting.name)}.*.meeting"):  # of processes that were killed
        if old != path:
            old.unlink(missing_ok=True)
    store = dist.FileStore(str(path), size)  # type: ignore[attr-defined]
    dist.init_process_group("nccl" if gpus else "gloo", store=store, rank=rank, world_size=size)
    try:
        yield Group(rank, size, device)
    finally:
        dist.destroy_process_group()
        path.unlink(missing_ok=True)


def _number(name: str, otherwise: str) -> int:
    try:
        return int(os.environ.get(name, otherwise))
    except ValueError:
        raise ArgumentError(f"{name} must be a number, got {os.environ.get(name)!r}: start it with torchrun") from None


def _start_name() -> str:
    """A name for this start of these processes: their parent, its start time, and how often it restarted them."""
    parent, again = os.getppid(), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    try:
        began = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):  # no such folder on other systems
        began = os.environ.get("TORCHELASTIC_RUN_ID", "0")
    return f"{parent}-{began}-{again}"
