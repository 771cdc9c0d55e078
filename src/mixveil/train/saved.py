"""The state of a training on disk, from which it goes on after a kill: safetensors, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from mixveil import files
from mixveil.errors import OutputError, TrainingError

EVERY = 30.0
"""Seconds between two states; more, where writing one takes more than a tenth of that."""


class Saved:
    """about: what is trained, on what; a state of anything else is refused."""

    def __init__(self, path: Path, about: Mapping[str, Any], every: float = EVERY) -> None:
        self.path, self.every = path, every
        self._about = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
        self._next = time.monotonic() + every

    def due(self) -> bool:
        return time.monotonic() >= self._next

    def save(self, model: torch.nn.Module, optimiser: torch.optim.Optimizer, steps: int) -> None:
        """Keep the state after so many steps, in place of the last one."""
        start = time.monotonic()
        tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
        for number, state in optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{number}.{name}": tensor for name, tensor in state.items()}
        part = self.path.with_name(self.path.name + files.PARTIAL)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            save_file(tensors, part, {"about": self._about, "steps": str(steps)})
            with part.open("rb") as file:
                os.fsync(file.fileno())
            part.rename(self.path)
        except (OSError, SafetensorError) as error:
            with suppress(OSError):
                part.unlink()
            raise OutputError(f"the state of the training could not be written to {self.path}: {error}") from error
        now = time.monotonic()
        self._next = now + max(self.every, 10 * (now - start))

    def load(self, model: torch.nn.Module, optimiser: torch.optim.Optimizer) -> int:
        """Go on from the state that is kept, if there is one: after how many steps."""
        if not self.path.exists():
            return 0
        try:
            with safe_open(self.path, framework="pt") as file:
                about, tensors = (
                    file.metadata() or {},
                    {name: file.get_tensor(name).clone() for name in sorted(file.keys())},
                )
            if about.get("about") != self._about:
                raise TrainingError(
                    f"{self.path} is the state of another training (other releases or settings): finish that one as it "
                    f"was begun, or remove the file"
                )
            model.load_state_dict(_of("model.", tensors))
            states: dict[int, dict[str, Tensor]] = {}
            for name, tensor in _of("optimiser.", tensors).items():
                number, key = name.split(".")
                states.setdefault(int(number), {})[key] = tensor
            optimiser.load_state_dict({**optimiser.state_dict(), "state": states})
            return int(about["steps"])
        except (OSError, SafetensorError, KeyError, ValueError, RuntimeError) as error:
            raise TrainingError(
                f"{self.path} is not the state of a training ({error}): remove it to begin anew"
            ) from None

    def discard(self) -> None:
        """The training is done, and its model is where it should be."""
        self.path.unlink(missing_ok=True)


def _of(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
