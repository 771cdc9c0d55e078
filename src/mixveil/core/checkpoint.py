"""The state of a training on disk, from which the training continues after a kill."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from mixveil.core import files, strict_json
from mixveil.core.errors import OutputError, ReleaseError, TrainingError, UnreadableFileError
from mixveil.core.tensor_files import check_header, mapped

EVERY = 30.0
"""Seconds between two states; more, where writing one takes longer than a tenth of that."""

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
_KEPT = {"Adam": _MOMENTS, "AdamW": _MOMENTS, "SGD": ("momentum_buffer",)}  # by optimiser, for each parameter
_HEADER, _DIGITS = 4 << 20, 18
_NOT_NEGATIVE = ("running_var", "exp_avg_sq")


class Saved:
    """The file of a training's state, written every `every` seconds.

    about: JSON that identifies the training and its data. The state of another training is refused.
    measured: what the training has measured so far, as JSON: written with the state, and read with it."""

    def __init__(self, path: Path, about: Mapping[str, Any], every: float = EVERY) -> None:
        self.path, self.every = path, every
        self._about = json.loads(json.dumps(about))
        self.measured: list[dict[str, Any]] = []
        self._next = time.monotonic() + every

    def due(self) -> bool:
        return time.monotonic() >= self._next

    def save(self, model: torch.nn.Module, optimiser: torch.optim.Optimizer, steps: int) -> None:
        """Write the state after so many steps, in place of the last one."""
        start = time.monotonic()
        part = _part(self.path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            texts = {"about": json.dumps(self._about), "steps": str(steps), "measured": json.dumps(self.measured)}
            save_file(_tensors(model, optimiser), part, texts)
            with part.open("rb") as file:
                os.fsync(file.fileno())
            part.rename(self.path)
        except (OSError, SafetensorError) as error:
            with suppress(OSError):
                part.unlink()
            raise OutputError(f"the state of the training could not be written to {self.path}: {error}") from error
        now = time.monotonic()
        self._next = now + max(self.every, 10 * (now - start))

    def load(self, model: torch.nn.Module, optimiser: torch.optim.Optimizer, total: int) -> int:
        """Load the state, if there is one, and return how many of the `total` steps are done. Everything in the file is
        checked; a state that does not fit is refused."""
        if not self.path.exists():
            return 0
        try:
            with files.opened(self.path, _largest(model)) as opened:
                check_header(opened, self.path, limit=_HEADER, metadata=("about", "steps", "measured"))
                with mapped(opened, self.path) as file:
                    header = file.metadata() or {}
                    tensors = {name: file.get_tensor(name).clone() for name in sorted(file.keys())}
            self._check_about(strict_json.loads(header["about"]))
            steps = int(header["steps"][:_DIGITS])
            if not 0 < steps < total:
                raise ValueError(f"{steps} of {total} steps")
            _check_tensors(tensors, model, optimiser, steps)
            measured = _measured(header.get("measured", "[]"))
        except (OSError, SafetensorError, KeyError, TypeError, ValueError, ReleaseError, UnreadableFileError) as error:
            raise TrainingError(
                f"{self.path} is not a state of this training ({error}): remove it to start over"
            ) from None
        self.measured = measured
        model.load_state_dict(_of("model.", tensors))
        states: dict[int, dict[str, Tensor]] = {}
        parameters = list(model.parameters())
        for name, tensor in _of("optimiser.", tensors).items():
            number, key = name.split(".")
            if key != "step":  # in the memory layout of the parameter, which a fused optimiser assumes
                tensor = torch.empty_like(parameters[int(number)]).copy_(tensor)
            states.setdefault(int(number), {})[key] = tensor
        optimiser.load_state_dict({**optimiser.state_dict(), "state": states})
        return steps

    def _check_about(self, stated: Any) -> None:
        if stated == self._about:
            return
        other = stated if isinstance(stated, dict) else {}
        differ = sorted(key for key in {*other, *self._about} if other.get(key) != self._about.get(key))
        raise TrainingError(
            f"{self.path} is the state of another training, its {', '.join(differ)} differ: finish that training "
            f"with its own settings, or remove the file"
        )


def discard(path: Path) -> None:
    """Remove a state, once the training is done and its model is written."""
    for left in (path, _part(path)):
        left.unlink(missing_ok=True)


def _part(path: Path) -> Path:
    return path.with_name(path.name + files.PARTIAL)


def _tensors(model: torch.nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    whole = torch.contiguous_format  # copies: the library refuses a layer's weights that are there twice
    found = {f"model.{name}": tensor.clone(memory_format=whole) for name, tensor in model.state_dict().items()}
    for number, state in optimiser.state_dict()["state"].items():
        found |= {f"optimiser.{number}.{name}": tensor.contiguous() for name, tensor in state.items()}
    return found


def _check_tensors(
    tensors: Mapping[str, Tensor], model: torch.nn.Module, optimiser: torch.optim.Optimizer, steps: int
) -> None:
    """Names, shapes and types must be those of this model and its optimiser, and the values possible ones."""
    wanted = {f"model.{name}": tensor.shape for name, tensor in model.state_dict().items()}
    for number, parameter in enumerate(model.parameters()):
        for key in _kept(optimiser):
            wanted[f"optimiser.{number}.{key}"] = torch.Size() if key == "step" else parameter.shape
    if tensors.keys() != wanted.keys():
        raise ValueError(f"other tensors: {sorted(tensors.keys() ^ wanted.keys())[:3]}")
    for name, tensor in tensors.items():
        if tensor.shape != wanted[name] or tensor.dtype != torch.float32:
            raise ValueError(f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}")
        if not bool(tensor.isfinite().all()) or (name.endswith(_NOT_NEGATIVE) and bool((tensor < 0).any())):
            raise ValueError(f"{name} has impossible values")
        if name.endswith(".step") and float(tensor) != steps:
            raise ValueError(f"{name} is {float(tensor):g} after {steps} steps")


def _kept(optimiser: torch.optim.Optimizer) -> tuple[str, ...]:
    """What an optimiser keeps for each parameter; SGD without momentum keeps nothing."""
    return () if optimiser.defaults.get("momentum") == 0 else _KEPT[type(optimiser).__name__]


def _measured(text: str) -> list[dict[str, Any]]:
    rows = strict_json.items("measured", strict_json.loads(text))
    return [dict(strict_json.mapping("measured", row)) for row in rows]


def _largest(model: torch.nn.Module) -> int:
    """Bytes of a state: the model, the optimiser's values, and a header."""
    return sum(4 * int(tensor.nbytes) + 256 for tensor in model.state_dict().values()) + _HEADER


def _of(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
