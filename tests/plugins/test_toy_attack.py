"""An attack from outside the package: on a view that is made by hand, and then in a whole audit by its name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from mixveil.attacks.catalogue import ATTACKS, attacks
from mixveil.audit.auditing import audit
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Batch, View
from mixveil.core.wording.sentences import sentence
from mixveil.encoders.identity import Identity
from mixveil.encoders.mixup import Mixup
from tests.made import encoded, images, in_memory
from tests.plugins.toy_attack import AbsoluteValues


def test_it_looks_through_random_signs() -> None:
    """Mixtures of two images of 64 values, every value with a random sign: most rows are found; of 40, guessing finds
    one."""
    data, stream, n = images(40, (1, 8, 8)), SeededStream(5), 40
    z = data.take(torch.arange(n)).x.flatten(1).double()
    partner, weight = stream.derangement(n), stream.capped_weights(n, 0.7).double()
    mixed = weight[:, :1] * z + weight[:, 1:] * z[partner]
    signed = mixed * (1 - 2 * (stream.uniform(n, 64) < 0.5).double())
    release = in_memory(
        Identity(), Batch(signed.float().view(n, 1, 8, 8), torch.eye(4)[data.labels]), None, data.classes
    )
    attack, seen = AbsoluteValues(), View((release,), candidates=data.take(torch.arange(n)).x)
    assert attack.cannot(View((release,))) is not None and attack.cannot(seen) is None
    links = attack(seen, stream=SeededStream(0)).links
    assert links is not None and links.shape == (n, n)
    own = links.argmax(1)
    found = (own == torch.arange(n)) | (own == partner.argsort())  # a record is in its own row and in its partner's
    assert float(found.double().mean()) > 0.7


@pytest.fixture
def registered() -> Iterator[None]:
    ATTACKS.register(AbsoluteValues)
    yield
    ATTACKS._registered.pop(AbsoluteValues.name)


@pytest.mark.usefixtures("registered")
def test_an_audit_runs_it_as_any_other() -> None:
    assert attacks()[AbsoluteValues.name] is AbsoluteValues
    data = images(60, (1, 8, 8))
    release, trace = encoded(Mixup(), data, SeededStream(0))
    found = audit(View((release,), (trace,)), data, names=[AbsoluteValues.name], stream=SeededStream(1))
    (run,) = found.attacks
    assert (run.attack, run.kind, run.status) == (AbsoluteValues.name, "linkage", "ran")
    assert sentence(run.threat).startswith("They hold the original image")
    (figure,) = found.figures
    assert figure.metric == "row-identified" and figure.mean > 0.3 > 10 * (figure.know_nothing or 1)
    assert AbsoluteValues.name in found.curves
