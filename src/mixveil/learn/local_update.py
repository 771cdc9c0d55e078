"""What a party of FedAvg, FedProx or Fed-AugMix would send after its part of a round, as a release: a whole job.

A party makes it to attack it (`mixveil.audit`) before it joins.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from mixveil.core import checks
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError, MismatchError, TooFewRowsError
from mixveil.core.first_weights import started
from mixveil.core.local_training import AugMix, LocalTraining
from mixveil.core.randomness import SecureStream, SeededStream, Stream
from mixveil.core.types import Batch, Dataset
from mixveil.core.watching import Warn, Watch, unheard, unwatched
from mixveil.core.wording.notes import Note, note
from mixveil.data.opening import DataOptions, DataSpec
from mixveil.features.split.networks import convnet, lenet5
from mixveil.features.split.shapes import shapes
from mixveil.features.stacked.party import NO_DEFENCE, Defence, sent_back
from mixveil.releases import accounting
from mixveil.releases.envelope import Envelope
from mixveil.releases.kinds.updates import AFTER
from mixveil.releases.ledger import Ledger
from mixveil.releases.reading import read_release
from mixveil.releases.spending import Standing
from mixveil.releases.updates import settings_of, weights_of, write_update
from mixveil.releases.writing import LedgerTerms, check_output

_PADDED, _LARGEST = 28, 32  # pixels a side that LeNet-5 is for


def linear(shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """One linear layer on all values of a row."""
    return nn.Sequential(OrderedDict(flat=nn.Flatten(), scores=nn.Linear(math.prod(shape), classes)))


NETWORKS = {"lenet5": lenet5, "convnet": convnet, "linear": linear}
"""By name, from the shape of a row and the number of classes."""


@dataclass(frozen=True)
class LocalUpdate:
    """How a party trains in its part of a round, and from which weights.

    Attributes:
        net: The network, without regard to its weights.
        before: The weights that the server sent.
        defence: What is done to gradients.
    """

    net: nn.Sequential
    before: Mapping[str, Tensor]
    training: LocalTraining
    defence: Defence = NO_DEFENCE

    @property
    def method(self) -> str:
        """Its name for a manifest, with what the defence does: `fedprox-clipped-noisy`."""
        base = "fedavg" if self.training.proximal is None else "fedprox"
        return "-".join([base if self.training.augmix is None else f"{base}-augmix", *self.defence.words])

    def after(self, rows: Dataset, stream: Stream | None = None) -> dict[str, Tensor]:
        """The weights that the party sends back. rows: all that it has; stream: of augmented views and noise."""
        if self.training.augmix is not None and (len(rows.shape) != 3 or (rows.low, rows.high) != (0, 1)):
            raise ArgumentError(
                f"augmix augments images with pixels in [0, 1], got {rows.shape} in [{rows.low:g}, {rows.high:g}]"
            )
        batch = rows.take(torch.arange(len(rows)))
        soft = Batch(batch.x.float(), batch.y.float())
        return sent_back(self.net, self.before, soft, self.training, defence=self.defence, stream=stream)


@dataclass(frozen=True)
class Updated:
    """An update that was released, for its owner's eyes. standing: what the ledger says of these records."""

    folder: Path
    manifest: Envelope
    warnings: tuple[Note, ...]
    standing: Standing


def update(
    data: DataSpec,
    out: Path | str,
    *,
    network: str | None = None,
    rows: int | None = None,
    batch: int = 4,
    epochs: int = 1,
    learning_rate: float = 0.1,
    momentum: float = 0.0,
    proximal: float | None = None,
    augmix: float | None = None,
    clip: float | None = None,
    noise: float | None = None,
    prune: float | None = None,
    seed: int = 0,
    before: Path | str | None = None,
    party: str = "party",
    recipient: str | None = None,
    budget: float | None = None,
    label_budget: float | None = None,
    options: DataOptions | None = None,
    ledger: Ledger | None = None,
    watch: Watch = unwatched,
    warn: Warn = unheard,
) -> Updated:
    """Make what a party would send to the server of FedAvg after its part of a round. It promises nothing:
    `mixveil.audit` shows what the server gets out of it. The release is entered in the ledger, without a bound.

    Args:
        data: Images: updates of networks on features are not made here.
        network: lenet5, convnet or linear; else lenet5 for images of 28 to 32 pixels a side, and linear for others.
        rows: Only the first so many, as a party with few has them. The fewer, the more an update shows.
        batch, epochs, learning_rate, momentum: Of the party's SGD. Rows keep their order.
        proximal: μ of FedProx's term.
        augmix: The severity of Fed-AugMix, in (0, 10]; its other settings are the paper's.
        clip, noise: Steps of DP-SGD: each record's gradient is clipped to C, and noise z·C/batch added to their mean.
            What that would promise is not accounted, and NOT promised.
        prune: The share of each step's gradient values, the smallest, that is set to 0.
        seed: Of the first weights. Augmented views and noise are new draws each time.
        before: The folder of an earlier update: this one begins with the weights that came of it.
        party, recipient, budget, label_budget, options, ledger, watch, warn: As for `mixveil.encode`.
    """
    out, options, ledger = Path(out), options or DataOptions(), ledger or Ledger()
    check_output(out, party)
    images = options.open(data)
    if rows is not None:
        if checks.at_least("rows", rows, 1) > len(images):
            raise TooFewRowsError(f"rows = {rows:,}, and {images.name} has {len(images):,}")
        images = images.part(torch.arange(rows))
    checks.at_least("epochs", epochs, 1)
    rates = (learning_rate,) * (epochs * math.ceil(len(images) / checks.at_least("batch", batch, 1)))
    views = None if augmix is None else AugMix(augmix)
    training = LocalTraining(len(images), batch, rates, momentum=momentum, proximal=proximal, augmix=views)
    net, sent = _began(images, network, seed, before)
    job = LocalUpdate(net, sent, training, Defence(clip, noise, prune))
    owners = accounting.owners_of(ledger, images, watch)
    told = [note("updates-warning"), *([note("update-noise-unaccounted")] if noise is not None else [])]
    told += [note("update-steps-of-one-class")] if _mostly_of_one_class(images.labels, batch) else []
    warnings = [*told, *images.warnings(), *accounting.copies(owners)]
    for item in warnings:
        warn(item)
    after = job.after(images, SecureStream())
    terms = LedgerTerms(recipient=recipient, budget=budget, label_budget=label_budget, owners=owners, ledger=ledger)
    written = write_update(
        out, images, sent, after, method=job.method, training=training, net=net, party=party, **terms
    )
    return Updated(out, written, tuple(warnings), ledger.standing(owners))


def _mostly_of_one_class(labels: Tensor, batch: int) -> bool:
    """Whether more than half of the steps on several rows are on rows of one class, as folders give them."""
    steps = [bool((step == step[0]).all()) for step in torch.split(labels, batch) if len(step) > 1]
    return 2 * sum(steps) > len(steps)


def _began(
    images: Dataset, network: str | None, seed: int, before: Path | str | None
) -> tuple[nn.Sequential, dict[str, Tensor]]:
    """The network, and the weights that the party begins with."""
    if before is None:
        name = network or _usual(images.shape)
        if name not in NETWORKS:
            raise ArgumentError(f"network must be one of {', '.join(NETWORKS)}, got {name!r:.60}")
        made = NETWORKS[name](images.shape, len(images.classes))
        net = started(made, DeviceStream(SeededStream(seed)), torch.device("cpu"))
        return net, {weight: value.detach().contiguous() for weight, value in net.named_parameters()}
    if network is not None:
        raise ArgumentError(f"network = {network!r:.60}: the update before it says which network it is; leave it out")
    release = read_release(Path(before), "updates")
    settings = settings_of(release)
    known = settings.network()
    if known is None:
        raise MismatchError(f"{before} does not say which network it is of")
    if settings.shape != images.shape or release.classes != images.classes:
        raise MismatchError(
            f"{before} is of rows of {settings.shape} in {len(release.classes)} classes, and these are of "
            f"{images.shape} in {len(images.classes)}"
        )
    if (scores := shapes(known, settings.shape)[-1]) != (len(images.classes),):
        raise MismatchError(
            f"{before}: its network makes {scores} of a row, and there are {len(images.classes)} classes"
        )
    return known, weights_of(release, AFTER)


def _usual(shape: tuple[int, ...]) -> str:
    """LeNet-5 where it is for such images, else one linear layer."""
    fits = len(shape) == 3 and shape[1] == shape[2] and _PADDED <= shape[1] <= _LARGEST
    return "lenet5" if fits else "linear"
