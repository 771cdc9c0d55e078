"""Signs that a mask hides, in an audit: what is measured, and when an attack on them is called broken."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from mixveil.attacks.records.demask import Demask
from mixveil.attacks.shared.training import Schedule, TrainingCache
from mixveil.audit.auditing import audit
from mixveil.audit.found import Audit
from mixveil.audit.metrics import signs
from mixveil.core.randomness import SeededStream, Stream
from mixveil.core.types import Guess, View
from mixveil.encoders.instahide import CalibratedInstaHide
from mixveil.report.audit_page import render, write_audit
from tests.attacks.made import digits
from tests.made import encoded
from tests.notes import codes, holds

DATA = digits(0, 80)
HIDING = CalibratedInstaHide(k=2, c1=0.65, c2=0.0, covers=0, pad=0, values=64, centre=0.5)
_QUICKLY = Schedule(epochs=1000, batch=32, rate=3e-3)


@dataclass(frozen=True)
class SmallDemask(Demask):
    base: int = 8
    schedule: Schedule = _QUICKLY


class Deaf(SmallDemask):
    """Says the same sign everywhere."""

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        return Guess(signs=-torch.ones(len(view.releases[0].payload), 64, dtype=torch.int8))


def audited(monkeypatch: pytest.MonkeyPatch, kind: type[Demask], *, traced: bool = True) -> Audit:
    release, trace = encoded(HIDING, DATA, SeededStream(1))
    view = View((release,), (trace,) if traced else None, digits(600, 900))
    monkeypatch.setattr("mixveil.audit.auditing.known_attacks", lambda: {"demask": kind})
    return audit(view, DATA, stream=SeededStream(0), names=["demask"], cache=TrainingCache(max_steps=150))


def test_the_share_of_right_signs_beside_one_sign_for_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = audited(monkeypatch, SmallDemask)
    (figure,) = found.figures
    _, trace = encoded(HIDING, DATA, SeededStream(1))
    truth = HIDING.observation(trace).mixture(DATA, torch.arange(80)).x.sign()
    assert figure.metric == "signs-found" and figure.know_nothing == pytest.approx(signs.of_one_sign(truth))
    assert signs.of_one_sign(truth) < 0.75 < figure.mean <= (figure.worst or 0) <= 1
    assert holds(found.verdict, "verdict-signs", attack="demask", mean=figure.mean)
    write_audit(tmp_path / "a", found, {"seed": 0, "command": "", "mixveil": "", "torch": ""})
    assert "demask" in render(tmp_path / "a").read_text()


def test_without_a_trace_signs_cannot_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = audited(monkeypatch, SmallDemask, traced=False).attacks
    assert run.status == "skipped" and holds([run.why], "attack-needs", fields="traces")


def test_an_attack_that_finds_no_signs_of_single_images_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    found = audited(monkeypatch, Deaf)
    assert [run.status for run in found.attacks] == ["broken"] and not found.figures
    assert {"after-brief-training", "bare-signs-missed"} <= codes([found.attacks[0].why])


def test_signs_of_zeros_do_not_count() -> None:
    truth = torch.tensor([[1, 0, -1, 0], [0, 0, 0, 1]])
    assert signs.found(truth, torch.tensor([[1, 1, 1, 1], [1, 1, 1, 1]])).tolist() == [0.5, 1.0]
    assert signs.of_one_sign(truth) == 0.75
