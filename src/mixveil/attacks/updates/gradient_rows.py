"""Records read off the update of a dense layer that takes them, in closed form: nothing is searched for.

A step changes such a layer's weight by Σ_i δ_i x_iᵀ and its bias by Σ_i δ_i, over records x_i (Phong et al., 2017):

- of one record, every row of the one over its entry of the other is the record itself, after any number of steps of
  SGD, with momentum or FedProx's term: all of them are products with the same record;
- of a network that is this layer alone, as a linear head on features is, `attacks.shared.linear_head` solves for all
  records, and where some share a class for the mean of these: of a party with many rows, that is what leaks;
- with ReLU behind the layer, a unit that was on for one record alone shows that record. Two units that show the same
  are the evidence (of two classes they are none: all units weigh records alike). Others get a mean of all records.

Images are in the order of the view's labels; without them, in that of the labels that the update shows, sorted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mixveil.attacks.shared.dense import Dense, first_dense, last_dense, mean_slope
from mixveil.attacks.shared.label_counts import cannot_count, labels_of
from mixveil.attacks.shared.linear_head import Head, class_means
from mixveil.attacks.shared.updates import UpdateAttack, UpdateTarget
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import Stream
from mixveil.core.types import Guess, OfUpdates, View
from mixveil.core.wording.notes import Note, note
from mixveil.features.stacked.local_steps import Rows, gradients

_MOST_UNITS = 4096
_WEAK = 1e-3  # of the largest slope: such a unit shows rounding
_SAME = 1e-3  # of a record's size
_TINY = 1e-30


@dataclass(frozen=True)
class GradientRows(UpdateAttack):
    """Rows of the first dense layer's gradient over its bias's, or the linear head solved for its records."""

    name: ClassVar[str] = "gradient-rows"
    most_rows: ClassVar[int | None] = None

    def cannot(self, view: View) -> Note | None:
        why = super().cannot(view)
        settings = view.releases[0].envelope.settings
        if why or not isinstance(settings, OfUpdates) or settings.training is None:
            return why
        if settings.training.optimiser != "sgd":
            return note("update-needs-sgd", optimiser=settings.training.optimiser)
        first = first_dense(view)
        if first is None or (first.bias is None and first != last_dense(view)):
            return note("update-needs-dense-first")
        alone = settings.training.rows == 1 and first.bias is not None
        return None if alone or view.labels is not None else cannot_count(view)

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        target, first = self.target(view), first_dense(view)
        if first is None:
            raise ArgumentError("this attack needs a network that begins with a dense layer")
        if target.rows == 1 and first.bias is not None:
            found = _over(mean_slope(target, first.weight), mean_slope(target, first.bias))[None]
        else:
            labels = labels_of(view, target, stream.fork("labels"))
            found = (_of_head if first == last_dense(view) else _of_units)(target, first, labels)
        return Guess(images=target.inside(found).view(-1, *target.shape).cpu())


def _over(weight: Tensor, bias: Tensor) -> Tensor:
    """(values,) what rows of a weight's slope (units, values) over the bias's (units,) are, by least squares."""
    return bias @ weight / bias.square().sum().clamp(min=_TINY)


def _of_head(target: UpdateTarget, layer: Dense, labels: Tensor) -> Tensor:
    """(rows, values): for each record the mean of its class."""
    ends = (target.before, target.before if len(target.training.rates) == 1 else target.after)
    weights = [end[layer.weight][0].double() for end in ends]
    biases = [end[layer.bias][0].double() if layer.bias else weights[0].new_zeros(target.classes) for end in ends]
    counts = torch.bincount(labels, minlength=target.classes)
    head = Head((weights[0], weights[1]), (biases[0], biases[1]))
    by_bias = mean_slope(target, layer.bias) if layer.bias else None
    means = class_means(head, mean_slope(target, layer.weight), by_bias, counts, target.low, target.high)
    return means[(counts > 0).cumsum(0)[labels] - 1]


def _of_units(target: UpdateTarget, layer: Dense, labels: Tensor) -> Tensor:
    """(rows, values): records that two units show, in the places of their classes; elsewhere a mean of all."""
    weight, bias = mean_slope(target, layer.weight), mean_slope(target, str(layer.bias))
    each = target.inside(weight / torch.where(bias == 0, _TINY, bias)[:, None])
    found = (bias.abs() @ each / bias.abs().sum().clamp(min=_TINY)).expand(target.rows, -1).clone()
    free = torch.ones(target.rows, dtype=torch.bool, device=found.device)
    for record, units in _shown(target, weight, bias):
        own = free & (labels == _class_of(target, str(layer.bias), record, units))
        place = int((own if bool(own.any()) else free).nonzero()[0, 0])
        found[place], free[place] = record, False
    return found


def _shown(target: UpdateTarget, weight: Tensor, bias: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Records that two units show or more, no more than the party has, and the numbers of these units."""
    units = bias.abs().argsort(descending=True)[:_MOST_UNITS]
    units = units[bias[units].abs() > _WEAK * bias.abs().max()]
    rows = weight[units] / bias[units, None]
    slack = _SAME * (target.high - target.low)
    real = ((rows >= target.low - slack) & (rows <= target.high + slack)).all(1)
    units, rows = units[real], rows[real]
    same = torch.cdist(rows, rows) <= _SAME * rows.norm(dim=1).clamp(min=slack)
    found: list[tuple[Tensor, Tensor]] = []
    while len(units) and len(found) < target.rows:
        group = same[int(same.sum(1).argmax())]
        if int(group.sum()) < 2:
            break
        found.append((_over(weight[units[group]], bias[units[group]]), units[group]))
        units, same = units[~group], same[~group][:, ~group]
    return found


def _class_of(target: UpdateTarget, bias: str, record: Tensor, units: Tensor) -> int:
    """The class with which this record would move these units as they moved."""
    weights = {name: value.double() for name, value in target.before.items()}
    moved = mean_slope(target, bias)[units]
    alike = []
    for own in torch.eye(target.classes, dtype=torch.float64, device=record.device):
        made = gradients(target.net, weights, Rows(record.view(1, 1, *target.shape), own[None, None]))
        alike.append(torch.cosine_similarity(made[bias][0, units], moved, dim=0))
    return int(torch.stack(alike).argmax())
