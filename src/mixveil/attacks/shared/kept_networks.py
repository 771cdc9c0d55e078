"""Finished networks of attacks on disk, where two networks are trained against one another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from mixveil.attacks.shared import training
from mixveil.attacks.shared.training import TrainingCache
from mixveil.core import files


@dataclass(frozen=True)
class KeptNetworks:
    """Where networks are kept that `training.train` cannot train. path: None for nowhere; about: all that decides what
    comes out, as JSON."""

    path: Path | None
    about: str

    @classmethod
    def of(cls, about: Mapping[str, Any], cache: TrainingCache) -> KeptNetworks:
        whole = json.dumps({"version": training.VERSION, **about, **training.arithmetic()}, sort_keys=True)
        name = f"{hashlib.sha256(whole.encode()).hexdigest()}.safetensors"
        return cls(None if cache.folder is None else cache.folder / "attacks" / name, whole)

    def taken(self, net: nn.Module) -> bool:
        """Whether these very networks were kept, as they were written; anything else is not used."""
        if self.path is None:
            return False
        try:
            with safe_open(self.path, framework="pt") as file:
                said = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError):
            return False
        wanted = net.state_dict()
        same = {n: (t.shape, t.dtype) for n, t in tensors.items()} == {n: (t.shape, t.dtype) for n, t in wanted.items()}
        if not same or not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
            return False
        if said != {"about": self.about, "digest": training.digest(*(tensors[name] for name in wanted))}:
            return False
        net.load_state_dict(tensors)
        return True

    def keep(self, net: nn.Module) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        tensors = {name: tensor.cpu().contiguous() for name, tensor in net.state_dict().items()}
        said = {"about": self.about, "digest": training.digest(*tensors.values())}
        files.write_whole(self.path, save(tensors, said), 0o600)
