"""Which public images are in a row, by a learned score (InstaHide §5.3, Figure 8): where rows hold squares cut of
public images, and attackers have the whole images only, comparing place by place fails.

InstaHide's authors trained a VGG network to say how similar a demasked row and an image are. Here two networks of VGG's
kind turn rows and images into directions, rows near what was mixed in and away from the rest of a batch: one product
then scores all images for a row. They learn from encodings of public images, made and demasked as the release is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import affine_grid, grid_sample, log_softmax, normalize

from mixveil.attacks.shared import model, nets, training
from mixveil.attacks.shared.covers import covers_of, without_covers
from mixveil.attacks.shared.demasking import Demasking, Imitation, Signs, seen
from mixveil.core.device_random import DeviceStream
from mixveil.core.randomness import Stream
from mixveil.core.types import AttackKind, Encoder, Guess, View
from mixveil.core.wording.notes import Note

_SHARP = 10.0  # what cosines are multiplied by
_DIRECTIONS = 128
_BLOCK = 256


class _Made(NamedTuple):
    """rows: (m, …) float16 demasked encodings of public images; covers: (m, q) which covers each holds."""

    rows: Tensor
    covers: Tensor


@dataclass(frozen=True)
class SearchLearned(Demasking):
    """The cosine of every row of the first release with every cover. cut: rows hold squares of the covers, whose side
    is at least this share of a cover's; 1: the covers themselves."""

    name: ClassVar[str] = "search-learned"
    kind: ClassVar[AttackKind] = "covers"
    needs: ClassVar[frozenset[str]] = frozenset({"covers", "public"})
    cut: float = 1.0

    def cannot(self, view: View) -> Note | None:
        return without_covers(view) or super().cannot(view)

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        release, covers, known = view.releases[0], covers_of(view), Imitation(view)
        networks = self.networks(View((release,)), known)
        about, own = known.about(self.name, self, release.encoder, cut=self.cut)
        towers = _Towers(release.shape[0], self.base, known, DeviceStream(own.fork("weights")))
        some = self.affordable(release.shape)

        @cache
        def made() -> _Made:  # not where the networks are in the cache
            self.cache.watch(f"{self.name}: encoding public images")
            found = _encodings(release.encoder, known, networks, some, self.cut, own.fork("encodings"))
            return _Made(*(x.to(towers.device) for x in found))

        loss = towers.loss(made, known.covers)
        draws = DeviceStream(own.fork("draws"))
        training.train(towers.net, loss, some, self.schedule, about=about, draws=draws, cache=self.cache)
        rows = seen(model.released(release).view(-1, *release.shape), release.encoder, networks)
        told = [towers.all("covers", covers.take(i).x) for i in torch.split(torch.arange(len(covers)), _BLOCK)]
        return Guess(covers=towers.all("rows", rows.float()) @ torch.cat(told).T)


class _Towers:
    """Two networks, `rows` and `covers`, from images to directions."""

    def __init__(self, channels: int, base: int, known: Imitation, draws: DeviceStream) -> None:
        towers = {name: nets.Embedding(channels, _DIRECTIONS, base) for name in ("rows", "covers")}
        self.device = training.fastest()
        self.net = nn.ModuleDict({name: nets.started(net, draws, self.device) for name, net in towers.items()})
        self.centre, self.unit = float(known.covers.mean()), max(float(known.covers.std()), 1e-12)

    def __call__(self, name: str, images: Tensor) -> Tensor:
        """(n, k) of length one each."""
        entered = ((images.to(self.device).float() - self.centre) / self.unit).contiguous(
            memory_format=torch.channels_last
        )
        with training.low_precision(entered.device):
            found = self.net[name](entered)
        return normalize(found.float(), dim=1)

    def loss(self, made: Callable[[], _Made], covers: Tensor) -> training.Loss:
        """Each row must tell the covers that it holds from those of the other rows of its batch."""
        images = covers.to(self.device)

        def found(index: Tensor, draws: DeviceStream) -> Tensor:
            rows, numbers = (x[index.to(self.device)] for x in made())
            shown = numbers.flatten()
            held = (numbers[:, :, None] == shown).any(1).float()
            alike = log_softmax(_SHARP * self("rows", rows) @ self("covers", images[shown]).T, dim=1)
            return -((alike * held).sum(1) / held.sum(1)).mean()

        return found

    @torch.inference_mode()
    def all(self, name: str, images: Tensor) -> Tensor:
        return torch.cat([self(name, part).cpu() for part in torch.split(images, _BLOCK)])


def _encodings(
    encoder: Encoder, known: Imitation, networks: Mapping[Encoder, Signs], count: int, cut: float, stream: Stream
) -> _Made:
    """Demasked encodings of public images with covers, of which other squares are cut for every round of images."""
    own, rows, covers = len(known.learnt), list[Tensor](), list[Tensor]()
    for done in range(0, count, own):
        draws = stream.fork("round")
        plan = encoder.plan(own, stream=draws.fork("plan"))
        mixed = known.rows(known.learnt, encoder, _squares(known.covers, cut, draws.fork("cut")))
        index = torch.arange(min(own, count - done))
        x = encoder.encode(mixed, index, plan, stream=draws.fork("noise")).x
        rows.append(seen(x if encoder.step is None else x * encoder.step, encoder, networks).half())
        partner = plan.partner[index]
        covers.append((partner[:, (partner >= own).all(0)] - own) % len(known.covers))
    return _Made(torch.cat(rows), torch.cat(covers))


def _squares(images: Tensor, least: float, stream: Stream) -> Tensor:
    """A square of every image, of at least that share of its side, at its size."""
    if least == 1:
        return images
    side, down, across = stream.uniform(3, len(images)).float()
    side = least + (1 - least) * side
    moves = torch.stack([2 * across - 1, 2 * down - 1]) * (1 - side)
    turn = torch.zeros(len(images), 2, 3)
    turn[:, 0, 0], turn[:, 1, 1], turn[:, :, 2] = side, side, moves.T
    grid = affine_grid(turn, list(images.shape), align_corners=False)
    return grid_sample(images, grid, padding_mode="border", align_corners=False)
