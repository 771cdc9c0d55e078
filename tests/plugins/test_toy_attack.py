"""An attack from outside the package: on a view that is made by hand, and then in a whole audit by its name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from mixveil.attacks.catalogue import ATTACKS, attacks
from mixveil.audit.auditing import audit
from mixveil.core.randomness import SeededStream
from mixveil.core.types import View
from mixveil.core.wording.sentences import sentence
from mixveil.encoders.mixup import Mixup
from tests.made import encoded, images
from tests.notes import holds
from tests.plugins.toy_attack import AbsoluteValues
from tests.plugins.toy_encoder import FittedSignMask

MASKED = FittedSignMask(values=64, centre=0.5)


def test_it_looks_through_random_signs() -> None:
    """On a view that is made by hand. Of 40 rows guessing finds one."""
    data, n = images(40, (1, 8, 8)), 40
    release, trace = encoded(MASKED, data, SeededStream(5))
    attack, seen = AbsoluteValues(), View((release,), candidates=data.take(torch.arange(n)).x)
    assert attack.cannot(View((release,))) is not None and attack.cannot(seen) is None
    links = attack(seen, stream=SeededStream(0)).links
    assert links is not None and links.shape == (n, n)
    own, partner = links.argmax(1), trace.partner[:, 0]
    found = (own == torch.arange(n)) | (own == partner.argsort())  # a record is in its own row and in another's
    assert float(found.double().mean()) > 0.5


@pytest.fixture
def registered() -> Iterator[None]:
    with ATTACKS.including(AbsoluteValues):
        yield


@pytest.mark.usefixtures("registered")
def test_an_audit_runs_it_as_any_other() -> None:
    assert attacks()[AbsoluteValues.name] is AbsoluteValues
    data = images(60, (1, 8, 8))
    for encoder in (Mixup(), MASKED):
        release, trace = encoded(encoder, data, SeededStream(0))
        names = [AbsoluteValues.name, "linkage"]
        found = audit(View((release,), (trace,)), data, names=names, stream=SeededStream(1))
        runs = {run.attack: run for run in found.attacks}
        assert (runs[AbsoluteValues.name].kind, runs[AbsoluteValues.name].status) == ("linkage", "ran")
        assert sentence(runs[AbsoluteValues.name].threat).startswith("They hold the original image")
        figure = next(figure for figure in found.figures if figure.attack == AbsoluteValues.name)
        assert figure.metric == "row-identified" and figure.mean > 0.3 > 10 * (figure.know_nothing or 1)
        assert AbsoluteValues.name in found.curves
        assert holds(found.warnings, "rows-recognised") and (runs["linkage"].status == "ran") == encoder.linear
