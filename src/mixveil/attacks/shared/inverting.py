"""What attacks on representations share: what they see of a release, public images and what the client part makes of
them, and how representations vary.

Attackers have the client part h, weights and all. What they look for are images s whose h(s) is what was sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from mixveil.attacks.shared import model, training
from mixveil.attacks.shared.base import BaseAttack, CannotAttackError
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import AttackKind, ClientPart, View
from mixveil.core.wording.notes import Note, note

LEAST_PUBLIC = 40

_KIND = "representations"
_MOST_PUBLIC = 20_000
_MOST_DIRECTIONS = 2048
_TINY = 1e-12  # under the root of a total variation: its slope is finite where nothing varies
_MOST_TOGETHER = 512  # images that are worked on at once
_VALUES_TOGETHER = 1 << 27  # that all layers of a client part make of those: autograd keeps them all
_ROUNDING = 6e-8  # of the size of a value: what differs less is the rounding of float32
_EXACT = 1e-14  # of the largest variance: what is smaller is the rounding of float64
_NARROW = 1e-2  # deviations of standardised values: in narrower directions sums need float64
_NOISE_IMAGES = 64  # that tell client parts from one another


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

    @property
    def together(self) -> int:
        """How many images are worked on at once: fewer where the client part makes much of each."""
        each = max(1, getattr(self.client, "all_values", 1))  # experiments have client parts that do not say it
        return max(1, min(_MOST_TOGETHER, _VALUES_TOGETHER // each))

    def inside(self, images: Tensor) -> Tensor:
        """Images with all pixels in their range."""
        return images.clamp(self.client.low, self.client.high)

    def represented(self, images: Tensor) -> Tensor:
        """(m, values) what the client part makes of (m, *shape) images on the device."""
        with torch.no_grad():
            return torch.cat([self.h(part) for part in torch.split(images, self.together)])


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
            return note("too-few-public-images", rows=len(view.public), least=LEAST_PUBLIC)
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


@dataclass(frozen=True)
class Standard:
    """Each value of representations by itself, with mean 0 and deviation 1 over public images: no value is large enough
    to hide another. Values that vary by the rounding of float32 alone are 0.

    mean, deviation, noise: (values,) float64; noise: of rounding, as a share of the deviation."""

    mean: Tensor
    deviation: Tensor
    noise: Tensor

    @classmethod
    def of(cls, z: Tensor) -> Standard:
        """Of (m, values) representations, two at least."""
        wide = z.double()
        deviation, error = wide.std(0, correction=0), _ROUNDING * wide.square().mean(0).sqrt()
        constant = ~(deviation > error)
        noise = torch.where(constant, 1.0, error / deviation)
        return cls(wide.mean(0), deviation.masked_fill(constant, torch.inf), noise)

    def __call__(self, z: Tensor) -> Tensor:
        """(m, values) float64 of (m, values): in float32 their size would be lost, or their differences."""
        return (z.double() - self.mean) / self.deviation


@dataclass(frozen=True)
class Whitening:
    """Coordinates in which representations of public images have mean 0 and variance 1, uncorrelated: a defence that
    squeezes representations into a small ball is undone by it. Directions of the rounding of float32 are left out.

    mean: (values,); directions: (values, k); deviation: (k,); all of standardised values."""

    standard: Standard
    mean: Tensor
    directions: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, z: Tensor) -> Whitening:
        """Of (m, values) representations, two at least. Where values are very many, of some of the rows."""
        standard = Standard.of(z)
        if z.shape[1] > _MOST_DIRECTIONS:
            z = z[model.spaced(len(z), _MOST_DIRECTIONS).to(z.device)]
        values = standard(z)
        mean = values.mean(0)
        centred = (values - mean) / math.sqrt(len(z))
        if len(z) < z.shape[1]:  # the same directions from the smaller product
            variance, turned = torch.linalg.eigh(centred @ centred.T)
            turned = normalize(centred.T @ turned, dim=0)
        else:
            variance, turned = torch.linalg.eigh(centred.T @ centred)
        # Rounding has more variance in some directions of few rows; and float64 rounds the product too.
        least = standard.noise.square() @ turned.square() * (1 + math.sqrt(z.shape[1] / len(z))) ** 2
        least = torch.maximum(least, _EXACT * variance[-1].clamp(min=_EXACT))
        kept = variance > least
        kept[-1] = True  # the largest: where all is rounding, one direction of it
        deviation = torch.maximum(variance, least)[kept].sqrt()
        exact = torch.float32 if float(deviation.min()) > _NARROW else torch.float64
        return cls(standard, mean.to(exact), turned[:, kept].to(exact), deviation.to(exact))

    def __call__(self, z: Tensor) -> Tensor:
        """(m, k) of (m, values)."""
        return ((self.standard(z).to(self.mean.dtype) - self.mean) @ self.directions / self.deviation).float()


def told(target: Target, x: Tensor, z: Tensor) -> dict[str, Any]:
    """What decides on networks that learn to undo this client part from public images x and what it makes of them, z:
    for the key of a cache. They may be shown other images, so what it makes of these is not enough."""
    digest = getattr(target.client, "digest", None)
    if digest is None:
        low, high = target.client.low, target.client.high
        noise = SeededStream(0).fork("client").uniform(_NOISE_IMAGES, *target.shape).float()
        digest = training.digest(target.represented((low + (high - low) * noise).to(target.device)))
    made = {"client": str(digest), "low": float(target.client.low), "high": float(target.client.high)}
    return made | {"public": training.digest(x), "sent": training.digest(z), "output": list(target.output)}


def _values(client: ClientPart) -> int:
    """Of one representation."""
    with torch.no_grad():
        return client.on(torch.device("cpu"))(torch.zeros(1, *client.shape)).shape[1]
