"""How benchmarks measure time and memory. See README.md beside this file."""

from __future__ import annotations

import ctypes
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

Work = Callable[[], object]


def medians(*works: Work, repetitions: int, calls: int = 1, warm_up: int = 1) -> list[float]:
    """Seconds of one call of each: the median of repetitions in turn, each of several calls and of all that they gave a
    GPU to do. What disturbs one disturbs the others."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(repetitions + warm_up):
        for kept, work in zip(times, works, strict=True):
            kept.append(seconds(work, calls))
    return [statistics.median(kept[warm_up:]) for kept in times]


def seconds(work: Work, calls: int = 1) -> float:
    """Of one call, on average over several."""
    settle()
    start = time.perf_counter()
    for _ in range(calls):
        work()
    settle()
    return (time.perf_counter() - start) / calls


def settle() -> None:
    """Wait until a GPU, where there is one, has done all that it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def device_name() -> str:
    """Of the GPU, where there is one."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads of torch."""
    most = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(most)


def extra_megabytes(work: Work) -> float | None:
    """How far the resident memory of this process rises while it works, over what it held before: the kernel's own
    high-water mark, which misses nothing. None where the kernel does not let us reset it."""
    ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    before = in_status("VmRSS")
    work()
    return (in_status("VmHWM") - before) / 1e6


class Watched:
    """The most RssAnon of this process while something goes on, in GB, looked at fifty times a second: what the kernel
    keeps of a mapped file does not count."""

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
            self.most = max(self.most, in_status("RssAnon") / 1e9)


def in_status(name: str, process: int | str = "self") -> int:
    """Bytes that /proc tells of a process: VmHWM, the most that was resident, RssAnon, its own memory now; 0 where it
    has ended. What getrusage tells counts the memory of the process that started it, too."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)
