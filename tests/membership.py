"""The optimal membership test against a release, and when it refutes a claimed μ."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mixveil.core.randomness import SecureStream
from mixveil.core.types import Trace
from mixveil.data.opening import from_tensors
from mixveil.encoders.singular import CalibratedSingular
from mixveil.theory.gdp import member_tpr


def likelihood_ratio(x: Tensor, records: Tensor, other: Tensor, encoder: CalibratedSingular, trace: Trace) -> float:
    """log p(release | records) − log p(release | record 0 replaced by `other`), everything else known.

    Record 0 is in two rows: its own, and that of the record whose partner it is."""
    sigma, total = encoder.sigma, 0.0
    partner, weight = trace.partner[:, 0].tolist(), trace.weight.double().tolist()
    for row in range(len(records)):
        if row != 0 and partner[row] != 0:
            continue
        own, share = weight[row]
        mean = own * records[row] + share * records[partner[row]]
        shift = (own if row == 0 else share) * (records[0] - other)
        total += float((x[row] - mean + shift / 2) @ shift) / (share * sigma) ** 2
    return total


def scores(
    stated: CalibratedSingular, actual: CalibratedSingular, repetitions: int, *, length: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Test scores of `repetitions` fresh releases with record 0 in, and as many with its opposite in.

    The records are the worst case: two opposite ones, `length` times the clip norm long. The attacker believes the
    stated settings, the releases are made by the actual ones."""
    clip, centre = stated.clip, stated.centre
    direction = torch.tensor([0.5, -0.5, 0.5, 0.5], dtype=torch.float64)
    worlds = []
    for sign in (1, -1):
        records = torch.stack([sign * clip * direction, torch.zeros(4), 0.3 * clip * direction.flip(0)])
        handed_in = records * torch.tensor([[length], [1.0], [1.0]])
        worlds.append((from_tensors(handed_in + centre, torch.tensor([0, 1, 1])), records))
    stream = SecureStream()
    found: tuple[list[float], list[float]] = ([], [])
    index, member = torch.arange(3), worlds[0][1]
    for _ in range(repetitions):
        for kept, (data, _) in zip(found, worlds, strict=True):
            trace = actual.plan(3, stream=stream)
            batch = actual.encode(data, index, trace, stream=stream)
            x = batch.x.double() * float(actual.step or 1)
            kept.append(likelihood_ratio(x, member, worlds[1][1][0], stated, trace))
    return torch.tensor(found[0]), torch.tensor(found[1])


def refutes(members: Tensor, others: Tensor, mu: float, error: float = 1e-6) -> bool:
    """Whether some threshold has a higher TPR than μ allows at its FPR, beyond sampling error.

    Both empirical distributions lie within a band of their laws at all thresholds at once (Dvoretzky, Kiefer,
    Wolfowitz), except with probability `error`."""
    band = math.sqrt(math.log(4 / error) / (2 * len(members)))
    thresholds = torch.cat([members, others]).sort().values[::37]
    tpr = (members[None] > thresholds[:, None]).double().mean(1) - band
    fpr = (others[None] > thresholds[:, None]).double().mean(1) + band
    return any(t > member_tpr(mu, f) for t, f in zip(tpr.tolist(), fpr.tolist(), strict=True) if f < 1 and t > 0)
