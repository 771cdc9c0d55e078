"""What attacks on representations share: what they see of a release, public images and what the client part makes of
them, and how representations vary.

Attackers have the client part h, weights and all. What they look for are images s whose h(s) is what was sent.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn.functional import pad

from mixveil.attacks.shared import model, training
from mixveil.attacks.shared.base import BaseAttack, CannotAttackError
from mixveil.attacks.shared.training import TrainingCache
from mixveil.core import files
from mixveil.core.errors import ArgumentError
from mixveil.core.types import AttackKind, ClientPart, View
from mixveil.core.wording.notes import Note, note

TOGETHER = 512
"""Images that are worked on at once."""

LEAST_PUBLIC = 40

_KIND = "representations"
_MOST_PUBLIC = 20_000
_MOST_DIRECTIONS = 2048
_TINY = 1e-12  # under the root of a total variation: its slope is finite where nothing varies
_ROUNDING = 1e-6  # of the size of values: what differs less is the rounding of float32


@dataclass(frozen=True)
class Target:
    """What an attack sees of representations. z: (n, values) on the device; h: from (m, *shape) images to (m, values);
    output: the shape of one representation."""

    z: Tensor
    h: Callable[[Tensor], Tensor]
    client: ClientPart
    output: tuple[int, ...]

    @property
    def device(self) -> torch.device:
        return self.z.device

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one image."""
        return self.client.shape

    def inside(self, images: Tensor) -> Tensor:
        """Images with all pixels in their range."""
        return images.clamp(self.client.low, self.client.high)

    def represented(self, images: Tensor) -> Tensor:
        """(m, values) what the client part makes of (m, *shape) images on the device."""
        with torch.no_grad():
            return torch.cat([self.h(part) for part in torch.split(images, TOGETHER)])


class RepresentationAttack(BaseAttack):
    """An attack that inverts representations, by the client part that made them."""

    kind: ClassVar[AttackKind] = "reconstruction"
    payload: ClassVar[str] = _KIND
    linear: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"client"})

    def cannot(self, view: View) -> Note | None:
        missing = super().cannot(view)
        if missing or view.client is None:
            return missing
        kinds = [release.envelope.kind for release in view.releases]
        if any(kind != _KIND for kind in kinds):
            return note("attack-needs-representations", kind=next(kind for kind in kinds if kind != _KIND))
        values, made = len(view.releases[0].payload.take(torch.arange(1)).x[0]), _values(view.client)
        return note("attack-needs-its-client", values=values, made=made) if values != made else None

    def target(self, view: View) -> Target:
        """What is attacked, on the fastest device. Releases of the same images hold the same rows: one is used."""
        why = self.cannot(view)
        if why is not None:
            raise CannotAttackError(why)
        if view.client is None:
            raise ArgumentError("this attack needs the client part, got none")
        device, release = training.fastest(), view.releases[0]
        z = release.payload.take(torch.arange(len(release))).x.to(device)
        output = tuple(getattr(release.envelope.settings, "shape", z.shape[1:]))
        return Target(z, view.client.on(device), view.client, output)


class TaughtAttack(RepresentationAttack):
    """An attack on representations of images that learns from public images, by a network."""

    needs: ClassVar[frozenset[str]] = frozenset({"client", "public"})
    trains: ClassVar[bool] = True

    def cannot(self, view: View) -> Note | None:
        why = super().cannot(view)
        if why or view.client is None or view.public is None:
            return why
        if len(view.client.shape) != 3:
            return note("attack-needs-images")
        if len(view.public) < LEAST_PUBLIC:
            return note("too-few-public-rows", rows=len(view.public), least=LEAST_PUBLIC)
        shape = tuple(view.public.take(torch.arange(1)).x.shape[1:])
        same = shape == tuple(view.client.shape)
        return None if same else note("attack-needs-public-shape", shape=str(shape), taken=str(view.client.shape))


def public_pairs(view: View, target: Target) -> tuple[Tensor, Tensor]:
    """(m, *shape) public images and (m, values) what the client part makes of them, on the target's device; of very
    many images some, spread over all."""
    if view.public is None:
        raise ArgumentError("this attack needs public images, got none")
    x = view.public.take(model.spaced(len(view.public), _MOST_PUBLIC)).x.to(target.device)
    return x, target.represented(x)


def total_variation(images: Tensor) -> Tensor:
    """(m,) Σ_{i,j} √((s_{i+1,j} − s_{i,j})² + (s_{i,j+1} − s_{i,j})²) of (m, c, h, w) images: isotropic, channels
    added. Beyond the last row and column nothing differs."""
    down, across = images[..., 1:, :] - images[..., :-1, :], images[..., 1:] - images[..., :-1]
    squares = pad(down, (0, 0, 0, 1)).square() + pad(across, (0, 1)).square()
    return (squares + _TINY).sqrt().flatten(1).sum(1)


def rounding(z: Tensor) -> float:
    """How far representations (m, values) may differ by the rounding of float32 alone."""
    return _ROUNDING * max(float(z.double().square().mean().sqrt()), _TINY)


@dataclass(frozen=True)
class Whitening:
    """Coordinates in which representations of public images have mean 0 and variance 1, uncorrelated: a defence that
    squeezes representations into a small ball is undone by it. Directions of the rounding of float32 are left out.

    mean: (values,); directions: (values, k); deviation: (k,)."""

    mean: Tensor
    directions: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, z: Tensor) -> Whitening:
        """Of (m, values) representations, two at least. Where values are very many, of some of the rows."""
        if z.shape[1] > _MOST_DIRECTIONS:
            z = z[model.spaced(len(z), _MOST_DIRECTIONS).to(z.device)]
        mean = z.double().mean(0)
        centred = (z.double() - mean) / math.sqrt(len(z))
        if len(z) < z.shape[1]:  # the same directions from the smaller product
            variance, turned = torch.linalg.eigh(centred @ centred.T)
            turned = centred.T @ turned / variance.clamp(min=_TINY).sqrt()
        else:
            variance, turned = torch.linalg.eigh(centred.T @ centred)
        least = rounding(z)
        kept = variance > least**2
        kept[-1] = True  # the largest: where all is rounding, one direction of it
        return cls(mean.float(), turned[:, kept].float(), variance[kept].clamp(min=least**2).sqrt().float())

    def __call__(self, z: Tensor) -> Tensor:
        """(m, k) of (m, values)."""
        return (z - self.mean) @ self.directions / self.deviation


@dataclass(frozen=True)
class Kept:
    """Where networks are kept that `training.train` cannot train. path: None for nowhere; about: all that decides what
    comes out, as JSON."""

    path: Path | None
    about: str

    @classmethod
    def of(cls, about: Mapping[str, Any], cache: TrainingCache) -> Kept:
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
        same = {name: tensor.shape for name, tensor in tensors.items()} == {n: t.shape for n, t in wanted.items()}
        if not same or said != {"about": self.about, "digest": training.digest(*(tensors[name] for name in wanted))}:
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


def _values(client: ClientPart) -> int:
    """Of one representation."""
    with torch.no_grad():
        return client.on(torch.device("cpu"))(torch.zeros(1, *client.shape)).shape[1]
