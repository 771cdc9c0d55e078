"""How many records of each class an update was made of, read off the last dense layer.

The gradient of the cross-entropy by the bias of class c is the mean over records of p_c − y_c, so the share of class c
among records is mean p_c − g_c. What the network says of the records, mean p, is not known; of a network that was not
trained it is about what the network says of noise. Of one that was trained it is not, as it knows most records, and all
of g is small: counts are then rough, and for many rows of all classes worse than to take all classes alike.

Which classes are there at all is told by the rows of the weight's gradient, which are means of (p_c − y_c) · features:
where features are never negative, a value below zero shows that a record has the class (Yin et al., 2021,
GradInversion); a class without one is taken to be absent, which many records can make wrong. Of a single record only
its own class has g_c < 0 (Zhao et al., 2020, iDLG).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mixveil.attacks.shared.dense import Dense, last_dense, mean_slope
from mixveil.attacks.shared.updates import UpdateTarget
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import OfUpdates, View
from mixveil.core.wording.notes import Note, note
from mixveil.features.stacked.local_steps import Rows, gradients

_NOISE_IMAGES = 64
_BELOW = 1e-3  # of the lowest value of all classes: what is less is rounding
_TINY = 1e-30


def cannot_count(view: View) -> Note | None:
    """Why labels cannot be read off this update; None if they can."""
    settings = view.releases[0].envelope.settings
    told = settings.training if isinstance(settings, OfUpdates) else None
    if told is None:
        return note("attack-needs-training")
    if told.optimiser != "sgd":
        return note("update-needs-sgd", optimiser=told.optimiser)
    layer = last_dense(view)
    if layer is None or (layer.bias is None and not layer.positive):
        return note("update-needs-dense-scores")
    return None


def label_counts(view: View, target: UpdateTarget, stream: Stream) -> Tensor:
    """(classes,) int64: how many records of each class the first party has, as far as its update shows; they sum to its
    rows."""
    layer = last_dense(view)
    if layer is None:
        raise ArgumentError("labels are read off a dense layer of scores, and this network has none")
    noise = _noise(target, stream)
    slope, lowest = _slope(target, layer, noise), mean_slope(target, layer.weight).amin(1)
    if not layer.positive:
        lowest = slope
    if target.rows == 1:
        return torch.nn.functional.one_hot(slope.argmin(), target.classes).cpu()
    said = _said(target, noise)
    sure = lowest < -_BELOW * lowest.abs().max()
    there = sure.clone() if layer.positive and bool(sure.any()) else torch.ones_like(sure)
    if target.rows < target.classes:  # no more classes than records
        there &= lowest <= lowest.sort().values[target.rows - 1]
    shares = (said - slope).clamp(min=0).masked_fill(~there, 0)
    return _rounded((shares * target.rows).cpu(), there.cpu(), (sure & there).cpu(), target.rows)


def labels_of(view: View, target: UpdateTarget, stream: Stream) -> Tensor:
    """(rows,) int64 the classes of the first party's records: those that attackers know, else by `label_counts`, one
    class after another."""
    if target.labels is not None:
        if target.labels.shape[1] != target.rows:
            raise ArgumentError(f"labels must be of the {target.rows} rows of the party, got {target.labels.shape[1]}")
        return target.labels[0].long()
    counts = label_counts(view, target, stream)
    return torch.arange(target.classes).repeat_interleave(counts).to(target.device)


def _slope(target: UpdateTarget, layer: Dense, noise: Tensor) -> Tensor:
    """(classes,) float64 by the bias; without one, the sums of the weight's rows, which are that times the sum of an
    image's features: as large as that of noise is."""
    if layer.bias is not None:
        return mean_slope(target, layer.bias)
    label = torch.zeros(*noise.shape[:2], target.classes, dtype=noise.dtype, device=noise.device)
    label[..., 0] = 1
    weights = {name: value.detach().clone() for name, value in target.before.items()}
    made = gradients(target.net, weights, Rows(noise, label))[layer.weight][0, 0].sum().double()
    with torch.no_grad():
        missed = target.net(target.before, noise)[0].softmax(-1)[:, 0].mean().double() - 1
    return mean_slope(target, layer.weight).sum(1) / (made / missed).clamp(min=_TINY)


def _noise(target: UpdateTarget, stream: Stream) -> Tensor:
    """(1, m, *shape) images of noise, from dark to light."""
    drawn = stream.fork("noise")
    noise = drawn.uniform(_NOISE_IMAGES, math.prod(target.shape)) * drawn.uniform(_NOISE_IMAGES, 1)
    images = (target.low + (target.high - target.low) * noise).view(1, _NOISE_IMAGES, *target.shape)
    return images.to(target.device, next(iter(target.before.values())).dtype)


def _said(target: UpdateTarget, noise: Tensor) -> Tensor:
    """(classes,) float64: the mean prediction for noise, before and after training. A network that is sure of noise
    says nothing of records with that: the surer it is, the more all classes count alike."""
    with torch.no_grad():
        ends = [target.net(end, noise)[0].double() for end in (target.before, target.after)]
    logs = torch.stack(ends).log_softmax(-1)
    unsure = float((-(logs.exp() * logs).sum(-1).mean() / math.log(max(2, target.classes))).clamp(0, 1))
    return unsure * logs.exp().mean((0, 1)) + (1 - unsure) / target.classes


def _rounded(wanted: Tensor, there: Tensor, sure: Tensor, rows: int) -> Tensor:
    """(classes,) whole numbers that sum to `rows`, by the largest remainders: none of classes that are not there, and
    at least one of those that surely are, where there are so many rows."""
    least = sure.long() if int(sure.sum()) <= rows else torch.zeros_like(sure, dtype=torch.int64)
    wanted = wanted * (rows / wanted.sum()) if float(wanted.sum()) > 0 else there * (rows / int(there.sum()))
    found = torch.maximum(wanted.floor().long(), least)
    while int(found.sum()) != rows:
        more = int(found.sum()) < rows
        apart = wanted - found
        free = there if more else found > least
        apart = apart.masked_fill(~free, -torch.inf if more else torch.inf)
        found[int(apart.argmax() if more else apart.argmin())] += 1 if more else -1
    return found
