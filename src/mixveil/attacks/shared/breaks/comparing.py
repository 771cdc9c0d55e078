"""Which rows share a record: a network turns every row into maps, and inner products of maps say how likely that is.

Carlini et al. (2021) train a wide residual network (28 layers, six times as wide) on pairs of rows, and a second one on
a row beside three rows of one record: 12.5 million passes for 5,000 rows. Here every row passes a U-Net once, and one
product of matrices compares all. The maps of squares (`inner-product-squares`; of the rows themselves, where no signs
are hidden) stand beside those of the network, so that what it learns adds to what needs no learning.

Both networks learn from groups of encodings that attackers make of public images by the release's own settings: the
first from all pairs of a group, the second, which begins with the weights of the first, from every row beside all other
rows of a record together, weighed by the weights that labels show.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot

from mixveil.attacks.shared import nets, training
from mixveil.attacks.shared.breaks.encodings import encodings
from mixveil.attacks.shared.demasking import Demasking, Imitation
from mixveil.attacks.shared.training import Schedule
from mixveil.attacks.shared.whitening import Whitening, whitening
from mixveil.core.device_random import DeviceStream
from mixveil.core.randomness import SeededStream, Stream
from mixveil.core.types import Encoder

What = Literal["pairs", "prototypes"]

_MORE = 4  # maps of the network beside those that it adds to what needs no learning
_GROUP, _EACH = 64, 8  # public images in a group of encodings, and how often each is encoded
_PASSES = {"pairs": 20, "prototypes": 8}  # over all groups
_SHARP, _RARE = 40.0, -3.0  # what the first logits are, of a cosine and of none, where public rows do not say
_MOST = 1000.0
_SAMPLE = 4096
_BLOCK = 500


@dataclass(frozen=True)
class Structure:
    """Maps of length one whose inner products are the cosines of `Whitening.alike`. masked: of the rows' squares."""

    space: Whitening
    mean: Tensor
    masked: bool

    @classmethod
    def of(cls, x: Tensor, encoder: Encoder, noise: float) -> Structure:
        """As rows (n, c, h, w) are like. noise: the variance of the noise in one value."""
        told = x.flatten(1).double()
        told = told.square() if encoder.masked else told
        mean = told.mean(0)
        return cls(whitening(told - mean, tuple(x.shape[1:]), 0.0 if encoder.masked else noise), mean, encoder.masked)

    def __call__(self, x: Tensor) -> Tensor:
        told = x.flatten(1).float()
        told = (told.square() if self.masked else told) - self.mean.to(told)
        maps = self.space.back(self.space.coordinates(told) * self.space.telling.to(told))
        length = torch.linalg.vector_norm(maps, dim=1, keepdim=True).clamp(min=1e-30)
        unit: Tensor = maps / length
        return unit.view(x.shape)


class _Net(nn.Module):
    def __init__(self, channels: int, base: int) -> None:
        super().__init__()
        self.maps = nets.UNet(channels, channels + _MORE, base)
        self.sharp, self.rare = (nn.Parameter(torch.tensor([first])) for first in (math.log(_SHARP), _RARE))

    def begin(self, sharp: float, rare: float) -> None:
        with torch.no_grad():
            self.sharp.fill_(math.log(sharp))
            self.rare.fill_(rare)

    def forward(self, x: Tensor) -> Tensor:
        """(n, maps, h, w) of rows as the network sees them."""
        with training.low_precision(x.device):
            found: Tensor = self.maps(x.contiguous(memory_format=torch.channels_last)).float()
        return found / math.sqrt(math.sqrt(found[0].numel()))

    def joined(self, maps: Tensor, structure: Tensor) -> Tensor:
        """(n, …) both maps as one: the first are added, so that the network learns from them what they lack."""
        channels = structure.shape[1]
        added = (self.sharp / 2).exp().view(1, 1, 1, 1) * structure + maps[:, :channels]
        return torch.cat([added, maps[:, channels:]], dim=1)


@dataclass(frozen=True)
class Groups:
    """Encodings that attackers made of public images.

    Attributes:
        rows: (g, m, c, h, w) float16.
        sources: (g, m, s) the images of each row, numbered in its group.
        weights: (g, m, s) theirs.
    """

    rows: Tensor
    sources: Tensor
    weights: Tensor

    def held(self, number: int) -> Tensor:
        """(m, images) the weight of every image in every row of a group."""
        hot = one_hot(self.sources[number], _GROUP).float()
        return (hot * self.weights[number][..., None]).sum(1)


class Comparer:
    """Turns rows of one encoder into maps. noise: the variance of the noise in one value of a row; in_places: maps will
    be compared in every place, so that networks learn from images that were not moved."""

    def __init__(
        self,
        attack: Demasking,
        encoder: Encoder,
        shape: tuple[int, ...],
        known: Imitation,
        noise: float,
        *,
        in_places: bool = False,
    ) -> None:
        self._moving = encoder.moved > 0 and not in_places
        self._attack, self._encoder, self._shape, self._known, self._noise = attack, encoder, shape, known, noise
        self._device = training.fastest()
        self._count = max(1, attack.affordable(shape) // (_GROUP * _EACH))

    def maps(self, what: What, x: Tensor) -> Tensor:
        """(m, maps, h, w) float32, of rows (m, c, h, w). Inner products of two rows' maps say how much likelier they
        share a record; of a row's and of a mean of rows' maps, whether it shares what these have in common."""
        net = self._pairs if what == "pairs" else self._prototypes
        structure = self._structure
        parts = torch.split(x.float().to(self._device), _BLOCK)
        with torch.inference_mode():
            told = torch.cat([net(self._seen(part)) for part in parts])
            return net.joined(told, torch.cat([structure(part) for part in parts]))

    def _seen(self, x: Tensor) -> Tensor:
        return (x.abs() if self._encoder.masked else x) / self._unit

    @cached_property
    def _unit(self) -> float:
        """The size of a value of a row: networks see rows in units of it."""
        return max(float(self._made(1, SeededStream(0)).rows.float().std()), 1e-12)

    @cached_property
    def _groups(self) -> Groups:
        attack = self._attack
        attack.cache.watch(f"{attack.name}: encoding public images")
        _, stream = self._known.about("groups", attack, self._encoder)
        return self._made(self._count, stream)

    def _made(self, count: int, stream: Stream) -> Groups:
        """Images are moved as the encoder moves them, but where maps are compared in every place (`prototypes`)."""
        learnt, made = self._known.learnt, []
        for _ in range(count):
            draws = stream.fork("group")
            images = learnt[draws.permutation(len(learnt))[torch.arange(_GROUP) % len(learnt)]]
            made.append(encodings(self._encoder, self._known, images, _EACH, draws, still=not self._moving))
        parts = ([group.rows.half() for group in made], [g.sources for g in made], [g.weights.float() for g in made])
        return Groups(*(torch.stack(part).to(self._device) for part in parts))

    @cached_property
    def _structure(self) -> Structure:
        """Of public rows, whose records are many: rows of few records vary as these do."""
        some = self._made(_SAMPLE // (_GROUP * _EACH), SeededStream(0)).rows
        return Structure.of(some.flatten(0, 1).cpu(), self._encoder, self._noise)

    @cached_property
    def _first(self) -> tuple[float, float]:
        """What a cosine of structure is multiplied by, and what is added, to be the logit of a shared image: by the
        means of both kinds of pairs and their common variance, as in a linear discriminant."""
        some = self._made(1, SeededStream(0))
        maps, there = self._structure(some.rows[0].float()).flatten(1), (some.held(0) > 0).float()
        shared, other = there @ there.T > 0, ~torch.eye(len(maps), dtype=torch.bool, device=maps.device)
        cosine = maps @ maps.T
        yes, no = cosine[shared & other].double(), cosine[~shared & other].double()
        if not len(yes) or not len(no):
            return _SHARP, _RARE
        spread, common = float(no.var()), len(yes) / (len(yes) + len(no))
        sharp = max((float(yes.mean()) - float(no.mean())) / max(spread, 1e-12), 1e-3)
        odds = math.log(common / (1 - common)) - sharp * (float(yes.mean()) + float(no.mean())) / 2
        return min(sharp, _MOST), odds

    @cached_property
    def _pairs(self) -> _Net:
        return self._trained("pairs", None)

    @cached_property
    def _prototypes(self) -> _Net:
        return self._trained("prototypes", self._pairs)

    def _trained(self, what: What, before: _Net | None) -> _Net:
        attack = self._attack
        moving = {"moving": True} if self._moving else {}
        about, stream = self._known.about(what, attack, self._encoder, noise=self._noise, **moving)
        net = nets.started(_Net(self._shape[0], attack.base), DeviceStream(stream.fork("weights")), self._device)
        if before is not None:
            net.load_state_dict(before.state_dict())
        else:
            net.begin(*self._first)
        loss = {"pairs": _pair_loss, "prototypes": _prototype_loss}[what]

        def step(index: Tensor, draws: DeviceStream) -> Tensor:  # few are encoded where the network is in the cache
            number = int(index[0])
            rows = self._groups.rows[number].float()
            rows = rows.flip(3) if int(draws.below(2, 1)) else rows
            maps = net.joined(net(self._seen(rows)), self._structure(rows))
            return loss(net, maps.flatten(1), self._groups.held(number))

        schedule = Schedule(_PASSES[what], 1, attack.schedule.rate, falling=True)
        draws = DeviceStream(stream.fork("draws"))
        training.train(net, step, self._count, schedule, about=about, draws=draws, cache=attack.cache)
        return net


def _pair_loss(net: _Net, maps: Tensor, held: Tensor) -> Tensor:
    """Of all pairs of rows: do they share an image? held: (m, images) weights."""
    other = ~torch.eye(len(maps), dtype=torch.bool, device=maps.device)
    there = (held > 0).float()
    shared = (there @ there.T > 0).float()
    return binary_cross_entropy_with_logits((maps @ maps.T + net.rare)[other], shared[other])


def _prototype_loss(net: _Net, maps: Tensor, held: Tensor) -> Tensor:
    """Of every row and every image: is it in the row? By the mean of all other rows that hold it."""
    logits = beside(maps, held.T @ maps, held) / (held.sum(0) - held).clamp(min=1e-6) + net.rare
    return binary_cross_entropy_with_logits(logits, (held > 0).float())


def beside(maps: Tensor, sums: Tensor, held: Tensor) -> Tensor:
    """(m, n) inner products of rows' maps (m, d) and weighed sums of the maps of all other rows that hold a record;
    sums: (n, d) over all rows; held: (m, n) the weight of every record in every row."""
    return maps @ sums.T - held * maps.square().sum(1, keepdim=True)
