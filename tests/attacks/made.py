"""Data and views that attacks are tried on."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.nn.functional import relu

from mixveil.core.randomness import SeededStream
from mixveil.core.types import Tau, View
from mixveil.data.images import Images, from_tensors
from mixveil.data.opening import open_data
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
