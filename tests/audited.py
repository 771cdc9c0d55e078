"""Digits, their releases and audits of them."""

from __future__ import annotations

from dataclasses import replace

import torch

from mixveil.audit.auditing import audit
from mixveil.audit.found import Audit
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Mu, Release, Target, Tau, Trace, View
from mixveil.data.images import Images
from mixveil.data.opening import open_data
from mixveil.encoders import calibration
from mixveil.encoders.gaussian import Gaussian
from mixveil.encoders.singular import Singular
from mixveil.releases.records import traced_in_memory
from tests.made import encoded


def digits(start: int, stop: int) -> Images:
    data = open_data("digits")
    read = data.read
    index = torch.arange(start, stop)
    return replace(data, read=lambda rows: read(index[rows]), labels=data.labels[start:stop])


PRIVATE, PUBLIC, OTHERS = digits(0, 500), digits(500, 1100), digits(1100, 1700)
FEW, FEW_PUBLIC = digits(0, 150), digits(500, 700)


def made(target: Target, seed: int = 0, encoder: Singular | None = None) -> tuple[Release, Trace]:
    ready, guarantees, _ = calibration.calibrate(encoder or Singular(), target, PRIVATE, stream=SeededStream(seed))
    release, trace = encoded(ready, PRIVATE, SeededStream(seed))
    return release.with_(id=f"{seed:032x}", guarantees=guarantees, reproducible=False), trace


def audited(*pairs: tuple[Release, Trace], names: list[str] | None = None, seed: int = 1) -> Audit:
    releases, traces = zip(*pairs, strict=True)
    others = OTHERS.take(torch.arange(len(OTHERS))).x
    return audit(View(releases, traces, PUBLIC), PRIVATE, others=others, names=names, stream=SeededStream(seed))


def figure(found: Audit, attack: str, metric: str) -> float:
    return next(row.mean for row in found.figures if (row.attack, row.metric) == (attack, metric))


def template(target: Mu | Tau, encoder: Singular | Gaussian | None = None) -> tuple[Release, Trace]:
    ready, guarantees, _ = calibration.calibrate(encoder or Singular(), target, FEW, stream=SeededStream(5))
    release, trace = traced_in_memory(FEW, ready, guarantees, party="p", stream=SeededStream(6))
    return release.with_(guarantees=guarantees, reproducible=False), trace
