"""The optimal membership test against a release, and when it refutes a claimed μ.

Every repetition is a target of its own in one large release: the release is planned and encoded once, as a party's is,
and the rows of two targets that touch one another do not count."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mixveil.core.randomness import SecureStream
from mixveil.core.types import Trace
from mixveil.data.images import from_tensors
from mixveil.encoders.singular import CalibratedSingular
from mixveil.theory.gdp import member_tpr

DIRECTION = torch.tensor([0.5, -0.5, 0.5, 0.5], dtype=torch.float64)
"""Of length one."""


def likelihood_ratios(
    x: Tensor, records: Tensor, difference: Tensor, target: Tensor, encoder: CalibratedSingular, trace: Trace
) -> Tensor:
    """log p(release | records) − log p(release | the records of one target replaced), everything else known: one score
    for each target whose rows no other target is in.

    x, records: (n, d) rows and records, both centred; difference: (n, d) a record less its replacement; target: (n,)
    the number of the target that a record belongs to, −1 for none."""
    partner, (own, share) = trace.partner[:, 0], trace.weight.double().T[:, :, None]
    mean = own * records + share * records[partner]
    shift = own * difference + share * difference[partner]
    ratio = ((x - mean + shift / 2) * shift).sum(1) / (share[:, 0] * encoder.sigma) ** 2
    first, second = target, target[partner]
    total = torch.zeros(int(target.max()) + 1, dtype=torch.float64)
    total.index_add_(0, torch.maximum(first, second).clamp(min=0), ratio)  # of other rows the ratio is 0
    shared = (first >= 0) & (second >= 0) & (first != second)
    alone = torch.ones(len(total), dtype=torch.bool)
    alone[first[shared]], alone[second[shared]] = False, False
    return total[alone]


def scores(
    stated: CalibratedSingular, actual: CalibratedSingular, repetitions: int, *, length: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Test scores of `repetitions` records that are in a release, and of as many whose opposites are in.

    The records are the worst case: two opposite ones, `length` times the clip norm long. The attacker believes the
    stated settings, the release is made by the actual ones."""
    clip, n = stated.clip, 10 * repetitions
    target = torch.where(torch.arange(n) % 5 == 0, torch.arange(n) // 5, -1)
    rest = torch.stack([torch.zeros(4, dtype=torch.float64), 0.3 * clip * DIRECTION.flip(0)])[torch.arange(n) % 2]
    mine = (target >= 0)[:, None]
    member, other = (torch.where(mine, sign * clip * DIRECTION, rest) for sign in (1, -1))
    found = []
    for records in (member, other):
        handed_in = torch.where(mine, length * records, records) + stated.centre
        trace = actual.plan(n, stream=SecureStream())
        x = _rows(actual, handed_in, trace)
        found.append(likelihood_ratios(x, member, member - other, target, stated, trace)[:repetitions])
    assert len(found[0]) == len(found[1]) == repetitions
    return found[0], found[1]


def _rows(encoder: CalibratedSingular, records: Tensor, trace: Trace) -> Tensor:
    """(n, d) float64: all rows of a release."""
    data = from_tensors(records.float(), torch.arange(len(records)) % 2)
    batch = encoder.encode(data, torch.arange(len(records)), trace, stream=SecureStream())
    return batch.x.double() * float(encoder.step or 1)


def unit_scores(encoder: CalibratedSingular, repetitions: int, partner: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Scores of the optimal test of whether a patient's three images are these or their opposites, all else known.

    Of thirty rows three are a patient's, the others strangers'. partner: a pairing in place of the encoder's own."""
    clip, n = encoder.clip, 60 * repetitions
    place, block = torch.arange(n) % 30, torch.arange(n) // 30
    target = torch.where(place < 3, block, -1)
    units = torch.where(place < 3, block, n // 30 + torch.arange(n) - 3 * (block + 1))  # strangers are alone
    mine = (target >= 0)[:, None]
    member, other = (torch.where(mine, sign * clip * DIRECTION, 0.2 * clip * DIRECTION.flip(0)) for sign in (1, -1))
    found = []
    for records in (member, other):
        trace = encoder.plan(n, stream=SecureStream(), units=units)
        if partner is not None:
            trace = Trace(partner=partner[:n, None], weight=trace.weight)
        x = _rows(encoder, records + encoder.centre, trace)
        found.append(likelihood_ratios(x, member, member - other, target, encoder, trace)[:repetitions])
    assert len(found[0]) == len(found[1]) == repetitions
    return found[0], found[1]


def refutes(members: Tensor, others: Tensor, mu: float, error: float = 1e-6) -> bool:
    """Whether some threshold has a higher TPR than μ allows at its FPR, beyond sampling error.

    Both empirical distributions lie within a band of their laws at all thresholds at once (Dvoretzky, Kiefer,
    Wolfowitz), except with probability `error`."""
    band = math.sqrt(math.log(4 / error) / (2 * len(members)))
    members, others = members.double().sort().values, others.double().sort().values
    thresholds = torch.cat([members, others]).sort().values[::37].contiguous()
    tpr, fpr = (1 - torch.searchsorted(kind, thresholds, right=True) / len(kind) for kind in (members, others))
    pairs = zip((tpr - band).tolist(), (fpr + band).tolist(), strict=True)
    return any(t > member_tpr(mu, f) for t, f in pairs if f < 1 and t > 0)
