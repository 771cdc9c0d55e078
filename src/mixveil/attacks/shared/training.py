"""How attacks train their networks: on public data, once for the same settings, resumed after a kill."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from mixveil.core import files
from mixveil.core.checkpoint import Saved, discard
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError, TrainingError, TrainingStopped
from mixveil.core.types import Attack

VERSION = 1
"""Raised whenever the same settings would train another network: cached networks are then not used."""

_REPORTED = 20  # steps between two reports of progress


def fastest() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def low_precision(device: torch.device) -> torch.autocast:
    """Networks run in bfloat16 here, where the device has instructions for it: on a GPU, and on many processors."""
    return torch.autocast(device.type, torch.bfloat16, enabled=_has_bfloat16(device.type))


def arithmetic() -> dict[str, Any]:
    """What decides on the last digits of networks, for JSON."""
    device = fastest().type
    return {"device": device, "bfloat16": _has_bfloat16(device)}


@cache
def _has_bfloat16(device: str) -> bool:
    told: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return device == "cuda" or bool(told.get("avx512_bf16") or told.get("amx_bf16"))


@dataclass(frozen=True)
class TrainingCache:
    """Where attacks keep finished networks and the states of unfinished ones (None: nowhere), and how they train them.

    Attributes:
        max_steps: No more steps than that, whatever a schedule says.
        compiled: Compile the paper's U-Net first. That takes a C compiler and half a minute, and saves a third of the
            time of large images on a GPU.
    """

    folder: Path | None = None
    max_steps: int | None = None
    compiled: bool = False
    watch: Callable[[str], None] = field(default=lambda _: None, compare=False)


NO_CACHE = TrainingCache()


@dataclass(frozen=True)
class Schedule:
    """How long a network is trained, by Adam. batch: rows a step; falling: the rate falls to zero by a cosine."""

    epochs: int
    batch: int
    rate: float = 1e-3
    falling: bool = False


def with_cache(attack: Attack, cache: TrainingCache) -> Attack:
    """The same attack with this cache, if it trains."""
    if not attack.trains:
        return attack
    trained: Any = attack
    return cast(Attack, replace(trained, cache=cache))


Loss = Callable[[Tensor, DeviceStream], Tensor]
"""Of the rows of an index, with draws of that step's own."""


def train(
    net: nn.Module,
    loss: Loss,
    rows: int,
    schedule: Schedule,
    *,
    about: Mapping[str, Any],
    draws: DeviceStream,
    cache: TrainingCache,
) -> None:
    """Train a network in place, or take it from the cache. about: all that decides what comes out, for JSON."""
    if rows < 1:
        raise ArgumentError("there are no public rows to train on")
    steps = schedule.epochs * (rows // min(schedule.batch, rows))
    steps = min(steps, cache.max_steps or steps)
    how = {"schedule": asdict(schedule), "rows": rows, "steps": steps, **arithmetic()}
    whole = {"version": VERSION, **about, **how}
    key = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
    kept = None if cache.folder is None else cache.folder / "attacks" / f"{key}.safetensors"
    if kept is not None:
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _taken(net, kept, whole):
            return
    saved = None if kept is None else Saved(kept.with_suffix(".state"), whole)
    optimiser = torch.optim.Adam(net.parameters(), schedule.rate, fused=True)
    done = 0 if saved is None else _resumed(saved, net, optimiser, steps)
    net.train()
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        for step in range(done, steps):
            try:
                found = _step(optimiser, loss, schedule, draws, rows, (step, steps))
            except KeyboardInterrupt:
                if not done:
                    raise
                raise TrainingStopped(
                    f"{about['attack']}: stopped, and its state after step {done:,} is kept"
                ) from None
            if step % _REPORTED == 0:
                _check(found, step)
                cache.watch(f"{about['attack']}, training step {step:,} of {steps:,}")
            if saved is not None and saved.due():
                _check(found, step)
                done = step + 1
                saved.save(net, optimiser, done)
        if not _finite(net.state_dict()):
            raise TrainingError("the training diverged: its weights are no numbers; give more public data")
    net.eval()
    if kept is not None:
        tensors = {name: tensor.cpu().contiguous() for name, tensor in net.state_dict().items()}
        said = {"about": json.dumps(whole, sort_keys=True), "digest": digest(*tensors.values())}
        files.write_whole(kept, save(tensors, said), 0o600)
        discard(kept.with_suffix(".state"))


def _step(
    optimiser: torch.optim.Optimizer,
    loss: Loss,
    schedule: Schedule,
    draws: DeviceStream,
    rows: int,
    place: tuple[int, int],
) -> Tensor:
    """One step. Which rows it takes, and what it draws, follow from its place: its number, and of how many."""
    number, steps = place
    batch = min(schedule.batch, rows)
    epoch, first = divmod(number, rows // batch)
    draws.restart(2 * epoch)
    index = draws.permutation(rows)[first * batch : (first + 1) * batch]
    draws.restart(2 * number + 1)
    if schedule.falling:
        for settings in optimiser.param_groups:
            settings["lr"] = schedule.rate * (1 + math.cos(math.pi * number / steps)) / 2
    found = loss(index, draws)
    optimiser.zero_grad(set_to_none=True)
    found.backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    return found


def digest(*tensors: Tensor) -> str:
    """Of what tensors hold, whatever device they are on."""
    found = hashlib.sha256()
    for tensor in tensors:
        for part in torch.split(tensor, 1024):
            found.update(repr(tuple(part.shape)).encode() + part.cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def in_batches(net: nn.Module, inputs: Tensor, size: int = 64) -> Tensor:
    """What a network says of all rows, in float32 on the CPU."""
    with torch.inference_mode(), low_precision(inputs.device):
        return torch.cat([net(part).float().cpu() for part in torch.split(inputs, size)])


def _taken(net: nn.Module, path: Path, whole: Mapping[str, Any]) -> bool:
    """Whether the cache had this very network, as it was written; anything else is not used."""
    try:
        with safe_open(path, framework="pt") as file:
            said = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError):
        return False
    wanted = {name: (tensor.shape, torch.float32) for name, tensor in net.state_dict().items()}
    same = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()} == wanted
    same = same and said.get("about") == json.dumps(whole, sort_keys=True)
    same = same and said.get("digest") == digest(*(tensors[name] for name in wanted))
    if not same or not _finite(tensors):
        return False
    net.load_state_dict(tensors)
    net.eval()
    return True


def _resumed(saved: Saved, net: nn.Module, optimiser: torch.optim.Optimizer, steps: int) -> int:
    """After how many steps it goes on; a state that is damaged is left behind."""
    try:
        return saved.load(net, optimiser, steps)
    except TrainingError:
        discard(saved.path)
        return 0


def _check(loss: Tensor, step: int) -> None:
    value = float(loss.detach())
    if not math.isfinite(value):
        raise TrainingError(f"the loss is {value} at step {step:,}: public data and the release do not fit")


def _finite(tensors: Mapping[str, Tensor]) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in tensors.values())
