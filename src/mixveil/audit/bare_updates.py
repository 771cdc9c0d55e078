"""Updates without a defence: an attack that fails on one shows nothing by failing on another."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from mixveil.audit.asking import guess_of
from mixveil.audit.metrics.order import in_order
from mixveil.core.local_training import LocalTraining
from mixveil.core.randomness import Stream
from mixveil.core.types import Attack, Dataset, Release, View
from mixveil.core.wording.notes import Note, note
from mixveil.data import similarity
from mixveil.data.row_views import Subset
from mixveil.features.stacked.party import sent_back
from mixveil.releases.kinds.updates import BEFORE
from mixveil.releases.updates import in_memory, settings_of, weights_of

MOST_ROWS = 4
"""Of the twin without a defence."""

LEAST_SSIM, LEAST_SIDE = 0.5, 16
"""What an attack must reach there on images of so many pixels a side."""

MOST_LEFT, MOST_LEFT_OF_IMAGES = 0.25, 0.5
"""Of smaller images and other rows, and of those images too: the share of one grey's error that it may leave. Without
it, a black picture would do where images are mostly black."""

MOST_LEFT_OF_MEAN = 0.5
"""Of all rows: the share of their mean's error. Without it, one picture for all would do where they are much alike."""

_FAINT = 1e-3  # λ of views; of 0, attackers who measure what views do would have nothing to measure
_RATE, _MOST_RATE = 0.1, 1e6  # of the step where the update's first was 0, or so large that weights would not be finite


def fails_on_bare_updates(attack: Attack, view: View, records: Dataset, stream: Stream) -> Note | None:
    """Why the attack is broken; None if it gets images out of an undefended twin of this update: the same network and
    weights before, one plain step of SGD on a few of the rows, whose labels it knows."""
    part = Subset(records, some_rows(records))
    x, y = part.take(torch.arange(len(part)))
    bare = twin(view.releases[0], part)
    seen = View((bare,), public=view.public, labels=y.argmax(1))
    if attack.cannot(seen) is not None:  # it attacks Fed-AugMix alone
        seen = replace(seen, releases=(_said_to_augment(bare, view.releases[0]),))
    if (why := attack.cannot(seen)) is not None:
        return why
    images = guess_of(attack, seen, stream=stream.fork("attack")).images
    if images is None:
        return note("bare-images-missing")
    if not bool(images.isfinite().all()):
        return note("no-number")
    span, middle = records.high - records.low, (records.low + records.high) / 2
    images = in_order(x, images.clamp(records.low, records.high), middle)
    truth, guess = ((values.double() - records.low) / span for values in (x, images))
    return _too_little(truth, guess, len(part))


def _said_to_augment(bare: Release, like: Release) -> Release:
    """The same update, said to be of Fed-AugMix with views that weigh next to nothing: its steps are the plain ones."""
    stated, plain = settings_of(like).training, settings_of(bare).training
    if stated is None or stated.augmix is None or plain is None:
        return bare
    return bare.with_(training=replace(plain, augmix=replace(stated.augmix, weight=_FAINT, large=_FAINT)))


def _too_little(truth: Tensor, guess: Tensor, rows: int) -> Note | None:
    """What is wrong with guesses (n, …) in [0, 1], if anything is."""
    most = MOST_LEFT
    if truth.dim() == 4 and min(truth.shape[2:]) >= LEAST_SIDE:
        found, most = float(similarity.ssim(truth, guess).mean()), MOST_LEFT_OF_IMAGES
        if not found >= LEAST_SSIM:
            return note("bare-update-unlike", rows=rows, ssim=found, least=LEAST_SSIM)
    error = float(similarity.mse(truth, guess).mean())
    guesses = [(float(truth.var(correction=0)), most)]  # of the best grey: how dark rows are, attackers may know
    guesses += [(float(truth.var(0, correction=0).mean()), MOST_LEFT_OF_MEAN)] if rows > 1 else []
    nothing, most = min(guesses, key=math.prod)
    if error <= most * nothing:
        return None
    return note("bare-update-left", rows=rows, error=error, nothing=nothing, most=most)


def some_rows(records: Dataset) -> Tensor:
    """The first row of each of up to four classes: rows of one class are harder to tell apart, and that an attack
    cannot do that is not to be taken for a fault."""
    labels = records.take(torch.arange(len(records))).y.argmax(1).tolist()
    first: dict[int, int] = {}
    for row, label in enumerate(labels):
        first.setdefault(label, row)
    return torch.tensor(sorted(first.values())[:MOST_ROWS])


def twin(release: Release, part: Dataset) -> Release:
    """What a party with these rows would have sent without any defence: one step of plain SGD on all of them."""
    settings, before = settings_of(release), weights_of(release, BEFORE)
    net = settings.network()
    if net is None:
        return release  # attacks say that they need the network
    rate = next(iter(() if settings.training is None else settings.training.rates), _RATE) or _RATE
    training = LocalTraining(len(part), len(part), (rate if rate <= _MOST_RATE else _RATE,))
    rows = part.take(torch.arange(len(part)))
    after = sent_back(net, before, rows, training)
    return in_memory(part, before, after, method="fedavg", training=training, net=net, party=release.party)
