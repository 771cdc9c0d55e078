"""Data and views that attacks are tried on."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import relu

from mixveil.core.randomness import SeededStream
from mixveil.core.types import Encoder, Fact, Facts, Rows, Tau, Trace, View
from mixveil.data.images import Images, from_tensors
from mixveil.data.opening import open_data
from mixveil.encoders.instahide import CalibratedInstaHide, InstaHide
from mixveil.encoders.singular import CalibratedSingular, Singular
from tests.made import encoded, range_facts, with_moments

SCALES = torch.tensor([0.2, 0.1, 0.05, 0.02, 0.01, 0.005])


def digits(start: int, stop: int) -> Images:
    return open_data("digits").part(torch.arange(start, stop))


def released(data: Images, share: float, public: Images | None, seed: int = 1) -> View:
    """Under noise of that many standard deviations of a pixel."""
    x = data.take(torch.arange(len(data))).x
    facts = with_moments(range_facts(data), energy=float(x.var(0).sum()), lambda_max=1.0)
    encoder, _ = Singular().calibrate(Tau(1.0, "energy"), facts)
    release, trace = encoded(replace(encoder, sigma=share * float(x.std())), data, SeededStream(seed))
    return View((release,), (trace,), public, pictures=public)


def random_features(data: Images, width: int = 96) -> Images:
    """Features by a fixed random layer."""
    x = data.take(torch.arange(len(data))).x.flatten(1)
    found = relu(x @ SeededStream(7).normal(x.shape[1], width).float() / 4)
    return replace(data, read=lambda index: found[index], shape=(width,), high=float(found.max()))


def gaussian(n: int, seed: int) -> Images:
    """Records with known moments: six independent values."""
    x = 0.5 + SeededStream(seed).normal(n, 6) * SCALES / 4
    return from_tensors(x.clamp(0, 1).float().view(n, 1, 2, 3), torch.arange(n) % 3, classes=3)


def weak(data: Images, tau: float = 0.5, *, sphere: bool = False) -> CalibratedSingular:
    facts = with_moments(range_facts(data), energy=0.004, lambda_max=0.0025)
    return Singular(noise="sphere" if sphere else "gaussian").calibrate(Tau(tau, "energy"), facts)[0]


def normal_images(n: int, values: int, seed: int = 1, classes: int = 4) -> Images:
    """Independent normal values with mean zero and variance one."""
    x = SeededStream(seed).normal(n, values).float()
    names = tuple(map(str, range(classes)))
    return Images("normal", lambda index: x[index], torch.arange(n) % classes, names, (values,), -10.0, 10.0)


def instahide(values: int, k: int = 2, covers: int = 0) -> CalibratedInstaHide:
    """Centred at zero."""
    known = {"dimension": values, "centre": 0, **({"covers": covers} if covers else {})}
    return InstaHide(k).calibrate(None, Facts({name: Fact(float(value), "public") for name, value in known.items()}))[0]


def several(encoder: Encoder, data: Images, releases: int, covers: Rows | None = None, seed: int = 0) -> View:
    """Of the same records, with their traces."""
    pairs = [encoded(encoder, data, SeededStream(100 * seed + t), covers) for t in range(releases)]
    return View(tuple(release for release, _ in pairs), tuple(trace for _, trace in pairs), covers=covers)


def sources(traces: tuple[Trace, ...] | None) -> Tensor:
    """(m, 2) the two records of each row of all releases."""
    own = [torch.arange(len(trace.weight)) for trace in traces or ()]
    return torch.cat([torch.stack([i, t.partner[:, 0]], dim=1) for i, t in zip(own, traces or (), strict=True)])
