"""What a server sees of secure sums, every byte of it, for two neighbouring data sets. The sum alone tells them apart,
as far as μ permits; with all other parties on the server's side, as far as μ·√h does."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from torch import Tensor

from mixveil.core.randomness import SecureStream
from mixveil.features.projection import Projected
from mixveil.federated.roster import Roster
from mixveil.federated.secure_sums import Context, Rules, SumAttempt, summed
from mixveil.releases.kinds.sums import sums_of
from mixveil.releases.sums import Sharing, class_sums
from mixveil.theory import gdp
from tests.membership import DIRECTION, refutes
from tests.sums import DIGEST, ball, identity

NAMES, CLASSES = ("a", "b", "c"), 500
"""Each class is a problem of its own: one record of the target's, and its opposite."""


class Seen(NamedTuple):
    """total: (classes, 5) the sum that the server computes; masked: what the target sent, as the server gets it; own:
    the same once all others have taken their masks and noise out."""

    total: Tensor
    masked: Tensor
    own: Tensor


def attempts() -> dict[str, SumAttempt]:
    """All parties of one message, up to the point where they mask."""
    keys = {name: Ed25519PrivateKey.generate() for name in NAMES}
    roster = Roster({name: key.public_key().public_bytes_raw() for name, key in keys.items()})
    context = Context("0" * 32, 0, 0, "class-sums", NAMES, 3, b"t" * 32)
    found = {name: SumAttempt(context, name, roster, keys[name], Rules(3)) for name in NAMES}
    announced = [attempt.announcement for attempt in found.values()]
    agreed = [attempt.agree(announced) for attempt in found.values()]
    for attempt in found.values():
        attempt.confirm(agreed)
    return found


def message(sign: float, mu: float, honest: int) -> Seen:
    """One message. The target's records are one in each class; the others have none that matter."""
    own: dict[str, Tensor] = {}
    sent: dict[str, bytes] = {}
    for name, attempt in attempts().items():
        records = (sign * DIRECTION if name == "a" else 0 * DIRECTION).repeat(CLASSES, 1)
        rows = Projected(ball(records, torch.arange(CLASSES)), identity())

        def mask(indices: Tensor, name: str = name, attempt: SumAttempt = attempt) -> Tensor:
            own[name] = indices
            sent[name] = attempt.masked(indices.flatten().numpy())
            return torch.from_numpy(np.frombuffer(sent[name], np.int64).reshape(indices.shape).copy())

        class_sums(rows, DIGEST, mu, party=name, stream=SecureStream(), sharing=Sharing(honest, mask))
    total = torch.from_numpy(summed(sent, NAMES, 5 * CLASSES).copy()).view(CLASSES, 5)
    assert torch.equal(total, own["a"] + own["b"] + own["c"])
    masked = torch.from_numpy(np.frombuffer(sent["a"], np.int64).copy()).view(CLASSES, 5)
    return Seen(total, masked, own["a"])


def scores(mu: float, honest: int = 3, repetitions: int = 20_000) -> tuple[list[Tensor], list[Tensor]]:
    """Of the optimal test along the direction in which the target's records differ, for each of `Seen`; members, and
    those whose opposites are in."""
    found: list[list[Tensor]] = []
    for sign in (1.0, -1.0):
        seen = [message(sign, mu, honest) for _ in range(repetitions // CLASSES)]
        found.append([torch.cat([part[place][:, :4].double() @ DIRECTION for part in seen]) for place in range(3)])
    return found[0], found[1]


def test_the_whole_view_of_the_server_keeps_mu_and_with_all_others_on_its_side_mu_times_root_h() -> None:
    members, others = scores(1.0)
    assert not refutes(members[0], others[0], mu=1.0)  # the sum
    assert refutes(members[0], others[0], mu=0.8)  # the worst case: it comes near the bound
    assert not refutes(members[1], others[1], mu=0.01)  # what the target sent tells nothing by itself
    alone = math.sqrt(3)
    assert not refutes(members[2], others[2], mu=alone)
    assert refutes(members[2], others[2], mu=0.85 * alone)


def test_noise_that_is_shared_by_more_than_are_there_is_caught() -> None:
    members, others = scores(1.0, honest=9, repetitions=4000)
    assert refutes(members[0], others[0], mu=1.0)
    assert not refutes(members[0], others[0], mu=math.sqrt(3))  # √(h/j) times as much, as the theory says


def test_both_figures_are_in_the_manifest() -> None:
    rows = Projected(ball(DIRECTION.repeat(4, 1), torch.arange(4)), identity())
    made = class_sums(rows, DIGEST, 1.0, party="a", stream=SecureStream(), sharing=Sharing(3, lambda x: x))
    figures = {stated.name: stated.claim for stated in made.guarantees}
    assert figures == {"gdp": pytest.approx(1.0), "gdp-alone": pytest.approx(math.sqrt(3))}
    assert made.mu == pytest.approx(1.0) and sums_of(made).cost().mu == pytest.approx(1.0)
    assert gdp.compose([figures["gdp"]]) < figures["gdp-alone"]
