"""The stages of a long attack, one after another: each is kept on disk, so that a stopped attack goes on where it was,
and each can be given the truth instead, which shows where a defence bites."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from mixveil.attacks.shared.training import TrainingCache, digest
from mixveil.core import files
from mixveil.core.errors import ArgumentError

VERSION = 1
"""Raised whenever the same settings would give another result: kept stages are then not used."""

Stage = Literal["alike", "clusters", "sources", "weights", "signs", "moves"]
"""What an attack finds on its way: which rows share a record, some rows of every record, the records of every row,
their weights, the signs that are hidden, and how every record was moved before it was mixed."""

STAGES: tuple[Stage, ...] = get_args(Stage)


@dataclass(frozen=True, eq=False)
class Oracle:
    """The truth about rows, for some stages of an attack to take instead of finding it.

    Attributes:
        stages: Those that take it.
        sources: (m, s) the records of each row, its own first; −1 for none.
        weights: (m, s) theirs.
        signs: (m, d) ±1, of the mixtures; None where no signs are hidden.
        moves: (m, s, 3) how each was moved: mirrored or not, pixels down and right; None where none was.
    """

    stages: frozenset[Stage]
    sources: Tensor
    weights: Tensor
    signs: Tensor | None = None
    moves: Tensor | None = None

    def __post_init__(self) -> None:
        if unknown := self.stages - {*STAGES}:
            raise ArgumentError(f"stages must be of {', '.join(STAGES)}, got {', '.join(sorted(unknown))}")
        for name in ("signs", "moves"):
            if name in self.stages and getattr(self, name) is None:
                raise ArgumentError(f"there is no truth about {name}: this encoder has none")

    def knows(self, stage: Stage) -> bool:
        return stage in self.stages

    def about(self, stages: Collection[Stage]) -> dict[str, Any] | None:
        """What decides on results that these stages decide on; None where they find everything themselves."""
        taken = sorted(self.stages & {*stages})
        held = [values for values in (self.sources, self.weights, self.signs, self.moves) if values is not None]
        return {"stages": taken, "truth": digest(*held)} if taken else None


class Stages:
    """The results of an attack's stages. about: what decides on all of them, for JSON; attacks that begin alike share
    what they have in common."""

    def __init__(self, attack: str, about: Mapping[str, Any], cache: TrainingCache) -> None:
        self._attack, self._about, self._cache = attack, {"version": VERSION, **about}, cache

    def __call__(self, name: str, make: Callable[[], dict[str, Tensor]], **more: Any) -> dict[str, Tensor]:
        """The tensors of a stage, kept or made now. more: what decides on it besides."""
        self._cache.watch(f"{self._attack}: {name}")
        if self._cache.folder is None:
            return make()
        whole = json.dumps({**self._about, "stage": name, **more}, sort_keys=True)
        key = hashlib.sha256(whole.encode()).hexdigest()
        path = self._cache.folder / "attacks" / f"{key}.stage"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with safe_open(path, framework="pt") as file:
                said = file.metadata() or {}
                held = {title: file.get_tensor(title) for title in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError):
            said, held = {}, {}
        if said.get("about") == whole and said.get("digest") == _digest(held):
            return held
        made = {title: values.cpu().contiguous() for title, values in make().items()}
        files.write_whole(path, save(made, {"about": whole, "digest": _digest(made)}), 0o600)
        return made


def _digest(tensors: Mapping[str, Tensor]) -> str:
    kinds = [(title, str(tensors[title].dtype)) for title in sorted(tensors)]
    whole = f"{kinds} {digest(*(tensors[title] for title, _ in kinds))}"
    return hashlib.sha256(whole.encode()).hexdigest()
