"""Undoes a mask of random signs (InstaHide §5.3): a network learns from |x̃| which sign each value of a mixture had.

Attackers make as many encodings as they like, of public images by the release's own public settings, and know the signs
of those. Natural images are smooth, so values near each other share a sign until they pass zero; that, and how light
images are on average, is all there is to learn: of |x̃| alone the mixture and its negative are equally likely.

InstaHide's authors trained a GAN for colouring on 50,000 encodings. Here it is the U-Net of the other attacks, with the
cross entropy of every sign, weighed by how large the value is: the sign of a value near zero changes nothing. What is
called demasked is the mean of both signs by their chances, |x̃| · (2p − 1): where the network does not know, nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from hashlib import sha256
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from mixveil.attacks.records.unet import settings
from mixveil.attacks.shared import model, nets, training
from mixveil.attacks.shared.base import CannotAttackError, ImageAttack
from mixveil.attacks.shared.training import NO_CACHE, Schedule, TrainingCache
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream, Stream
from mixveil.core.types import Batch, Encoder, Rows, View
from mixveil.core.wording.notes import Note, note
from mixveil.data.covers import Covered
from mixveil.data.row_views import InMemoryRows

_LEAST = 40  # public rows
_HELD_OUT = 5  # of so many public rows one is kept from the training
_VALUES = 1 << 28  # of public rows, and of covers, that are held in memory
_ENCODED_VALUES = 1 << 29
_MIXED_ROWS = 500
_SCHEDULE = Schedule(epochs=4, batch=64, falling=True)


@dataclass(frozen=True)
class Demasking(ImageAttack):
    """An attack that demasks rows first, where they are masked. encodings: of public images, that it learns from; base:
    channels of the network's first level."""

    trains: ClassVar[bool] = True
    linear: ClassVar[bool] = False
    base: int = 32
    encodings: int = 50_000
    schedule: Schedule = _SCHEDULE
    cache: TrainingCache = NO_CACHE

    def cannot(self, view: View) -> Note | None:
        """An attacker who imitates releases needs public images, and the covers, where these have some."""
        if (why := super().cannot(view)) is not None:
            return why
        encoders = [release.encoder for release in view.releases]
        needed = {"public": any(e.masked for e in encoders), "covers": any(e.covers for e in encoders)}
        missing = [field for field, needs in needed.items() if needs and getattr(view, field) is None]
        return note("attack-needs", fields=", ".join(missing)) if missing else None

    def affordable(self, shape: tuple[int, ...]) -> int:
        """How many encodings it learns from: no more than fit into memory, nor than it would look at."""
        some = min(self.encodings, max(1, _ENCODED_VALUES // math.prod(shape)))
        return some if self.cache.max_steps is None else min(some, self.cache.max_steps * self.schedule.batch)

    def networks(self, view: View, known: Imitation) -> Mapping[Encoder, Signs]:
        """The network of every masked encoder in the view."""
        masked = {release.encoder: release.shape for release in view.releases if release.encoder.masked}
        return {encoder: _trained(self, shape, known, encoder) for encoder, shape in masked.items()}


@dataclass(frozen=True)
class Signs:
    """A network that says signs. unit: the size of a value that it was trained on."""

    net: nn.Module
    unit: float

    def logits(self, rows: Tensor) -> Tensor:
        """(n, …) of a positive sign for every value of rows (n, c, h, w)."""
        seen = (rows.abs().float() / self.unit).to(training.fastest())
        return training.in_batches(self.net, seen.contiguous(memory_format=torch.channels_last))

    def demasked(self, rows: Tensor) -> Tensor:
        """(n, …) float64: what mixtures were, as far as their signs are known."""
        return rows.abs().double() * torch.tanh(self.logits(rows).double() / 2)


class Imitation:
    """What attackers make encodings of themselves: public images, and after them the covers, where encodings have some.

    Attributes:
        learnt: (m, …) public images that networks learn from.
        held: (h, …) those that no network has seen, to try on what was learnt.
        covers: (p, …); of more than fit into memory, the first stand for all.
    """

    def __init__(self, view: View) -> None:
        if view.public is None:
            raise ArgumentError("this attack needs public images")
        most = max(1, _VALUES // math.prod(view.releases[0].shape))
        index = model.spaced(len(view.public), most)
        if len(index) < _LEAST:
            raise CannotAttackError(note("too-few-public-rows", rows=len(index), least=_LEAST))
        held = torch.arange(len(index)) % _HELD_OUT == 0
        self.learnt, self.held = (view.public.take(index[part]).x for part in (~held, held))
        self.covers = self.learnt[:0]
        if any(release.encoder.covers for release in view.releases):
            if view.covers is None:
                raise CannotAttackError(note("attack-needs", fields="covers"))
            self.covers = view.covers.take(torch.arange(min(len(view.covers), most))).x

    def rows(self, images: Tensor, encoder: Encoder, covers: Tensor | None = None) -> Rows:
        """Public images (m, …), and after them what this encoder mixes in: the covers, or what is made of them."""
        own, covers = _unlabelled(images), self.covers if covers is None else covers
        if not encoder.covers:
            return own
        return Covered(own, model.Repeated(_unlabelled(covers), encoder.covers))

    @cached_property
    def _digest(self) -> str:
        return training.digest(self.learnt, self.held, self.covers)

    def about(self, name: str, attack: Demasking, encoder: Encoder, **more: Any) -> tuple[dict[str, Any], Stream]:
        """All that decides on a network, and draws that follow from it: attacks on the same release share the cache."""
        found = {"attack": name, "base": attack.base, "encodings": attack.encodings, **more}
        found |= {
            "trained": asdict(attack.schedule),
            "most steps": attack.cache.max_steps,
        }  # also of networks before it
        found |= {"public": self._digest, "encoder": settings(encoder)}
        digest = sha256(json.dumps(found, sort_keys=True).encode()).digest()
        return found, SeededStream(int.from_bytes(digest[:8], "big"))


def seen(rows: Tensor, encoder: Encoder, networks: Mapping[Encoder, Signs]) -> Tensor:
    """(n, …) float64: rows in the records' own values, without their mask as far as that goes."""
    mixtures = networks[encoder].demasked(rows) if encoder.masked else rows.double()
    return encoder.restore(mixtures.flatten(1)).view(rows.shape)


def _trained(attack: Demasking, shape: tuple[int, ...], known: Imitation, encoder: Encoder) -> Signs:
    device = training.fastest()
    about, stream = known.about("demasking", attack, encoder)
    some = attack.affordable(shape)
    unit = max(float(_encodings(encoder, known, min(some, _MIXED_ROWS), stream.fork("unit")).float().std()), 1e-12)
    net = nets.started(nets.UNet(shape[0], shape[0], attack.base), DeviceStream(stream.fork("weights")), device)

    @cache
    def made() -> Tensor:  # not where the network is in the cache
        attack.cache.watch("demasking: encoding public images")
        return _encodings(encoder, known, some, stream.fork("encodings")).view(-1, *shape).to(device)

    def loss(index: Tensor, draws: DeviceStream) -> Tensor:
        mixture = made()[index.to(device)].float().div_(unit).contiguous(memory_format=torch.channels_last)
        size = mixture.abs()
        with training.low_precision(device):
            found = net(size)
        return binary_cross_entropy_with_logits(found.float(), (mixture > 0).float(), weight=size)

    draws = DeviceStream(stream.fork("draws"))
    training.train(net, loss, some, attack.schedule, about=about, draws=draws, cache=attack.cache)
    return Signs(net, unit)


def _encodings(encoder: Encoder, known: Imitation, count: int, stream: Stream) -> Tensor:
    """(count, d) float16: mixtures of public images as the encoder makes them, before they are masked."""
    rows, own = known.rows(known.learnt, encoder), len(known.learnt)
    found = []
    for done in range(0, count, own):
        observation = encoder.observation(encoder.plan(own, stream=stream.fork("plan")))
        parts = torch.split(torch.arange(min(own, count - done)), _MIXED_ROWS)
        found += [observation.mixture(rows, part).x.half() for part in parts]
    return torch.cat(found)


def _unlabelled(x: Tensor) -> InMemoryRows:
    return InMemoryRows(Batch(x, torch.zeros(len(x), 1)))
