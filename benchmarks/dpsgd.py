"""A step of DP-SGD on a linear head, beside Opacus' optimiser: clipped gradients, noise, the step itself."""

from __future__ import annotations

import torch

from benchmarks.peers import opacus_steps
from benchmarks.record import Found, Plain, Plot
from benchmarks.timing import medians, threads
from mixveil.core.randomness import SecureStream
from mixveil.federated.algorithms import Rounds
from mixveil.federated.dpsgd import Party, Private, federated_dpsgd, planned

_CASES = ((512, 10), (1280, 10), (1280, 100))  # features and classes
_ROWS, _BATCH, _REPETITIONS = 5120, 256, 3


def dpsgd() -> Found:
    most = torch.get_num_threads()
    found: list[dict[str, Plain]] = []
    for count in sorted({1, most}):
        with threads(count):
            for features, classes in _CASES:
                found += _figures(features, classes, count)
    settings: dict[str, Plain] = {
        "warm_up": 1,
        "repetitions": _REPETITIONS,
        "statistic": "median",
        "rows": _ROWS,
        "batch": _BATCH,
    }
    plots = [Plot("A step of DP-SGD", "parameters", "ms_per_step", "work", {"threads": most})]
    return Found(found, settings, plots, packages=("opacus",))


def _figures(features: int, classes: int, count: int) -> list[dict[str, Plain]]:
    torch.manual_seed(0)
    x, labels = torch.randn(_ROWS, features), torch.arange(_ROWS) % classes
    private, rounds = Private(4.0, batch=_BATCH), Rounds(1)
    share, steps, noise = planned(_ROWS, private, rounds)

    def ours() -> None:
        for _ in federated_dpsgd([Party(x, labels)], classes, private, rounds, stream=SecureStream()):
            pass

    def theirs() -> None:
        opacus_steps(x, labels, classes, steps, share=share, noise=noise, clip=private.clip)

    times = medians(ours, theirs, repetitions=_REPETITIONS)
    return [
        {
            "work": work,
            "features": features,
            "classes": classes,
            "parameters": (features + 1) * classes,
            "threads": count,
            "ms_per_step": taken / steps * 1e3,
            "opacus_over_this": times[1] / taken,
        }
        for work, taken in zip(("mixveil, secure noise", "Opacus"), times, strict=True)
    ]
