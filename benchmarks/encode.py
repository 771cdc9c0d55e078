"""Encoding in memory beside the plain ways to mix and to add noise, and beside copying the same bytes."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks import peers
from benchmarks.record import Found, Plain, Plot
from benchmarks.timing import Work, extra_megabytes, medians, threads
from mixveil.core.randomness import SecureStream, SeededStream, Stream
from mixveil.core.types import Mu
from mixveil.data.images import Images, from_tensors
from mixveil.encoders.calibration import settled_facts
from mixveil.encoders.singular import CalibratedSingular, Singular
from mixveil.releases.records import in_memory

_WIDTHS = (3072, 62_720)  # a CIFAR image, and a feature map of MobileNetV2
_SIZES = (1_000_000, 10_000_000, 100_000_000)
_ALONE = 10_000_000  # values, at which one thread is measured too
_REPETITIONS = 3
_LOOPED = 11_000_000  # values, up to which the loop over images is run: more take minutes and cost as much each
_NAIVE, _FLOOR = "torch.randn, whole", "copy"
_RELEASED = 2  # bytes of a value of a release


def encode() -> Found:
    found: list[dict[str, Plain]] = []
    most = torch.get_num_threads()
    for width in _WIDTHS:
        for size in _SIZES:
            for count in sorted({1, most}) if size == _ALONE else (most,):
                with threads(count):
                    found += _figures(max(2, round(size / width)), width, count)
    return Found(
        found,
        {"warm_up": 1, "repetitions": _REPETITIONS, "statistic": "median", "threads": most},
        [
            *(
                Plot(
                    f"Encoding, {width:,} values a row",
                    "values",
                    "ns_per_value",
                    "work",
                    {"width": width, "threads": most},
                )
                for width in _WIDTHS
            ),
            *(
                Plot(
                    f"Over a copy of the same bytes, {width:,} values a row",
                    "values",
                    "over_floor",
                    "work",
                    {"width": width, "threads": most},
                )
                for width in _WIDTHS
            ),
            Plot("Extra memory, 3,072 values a row", "values", "extra_mb", "work", {"width": 3072, "threads": most}),
        ],
    )


def _figures(rows: int, width: int, count: int) -> list[dict[str, Plain]]:
    """One size: all works in turn, on the same data and threads. The run whose memory is looked at warms up."""
    x = torch.from_numpy(np.random.default_rng(0).random((rows, width), np.float32))
    works = _works(from_tensors(x.view(rows, 1, 1, width), torch.arange(rows) % 10), x)
    memory = {work: extra_megabytes(run) for work, run in works.items()}
    times = dict(zip(works, medians(*works.values(), repetitions=_REPETITIONS, warm_up=0), strict=True))
    values = rows * width
    return [
        {
            "work": work,
            "rows": rows,
            "width": width,
            "values": values,
            "threads": count,
            "ns_per_value": taken / values * 1e9,
            "gb_per_second": peers.MOVED * values / taken / 1e9,
            "over_floor": taken / times[_FLOOR],
            "naive_over_this": times[_NAIVE] / taken,
            "extra_mb": _beyond(memory[work], work, values),
        }
        for work, taken in times.items()
    ]


def _works(data: Images, x: torch.Tensor) -> dict[str, Work]:
    encoder, _ = Singular().calibrate(Mu(1.0), settled_facts(data, certified=True, public=None, clip=None))
    trace = encoder.plan(len(x), stream=SeededStream(1))
    mixture = peers.Mixture(
        x, trace.partner[:, 0], trace.weight, sigma=encoder.sigma, centre=encoder.centre, step=float(encoder.step or 0)
    )
    source = torch.ones(peers.MOVED // 2 * x.numel(), dtype=torch.uint8)  # pages of zeros would not be there yet
    target = torch.ones_like(source)
    works: dict[str, Work] = {
        "mixveil, secure": lambda: _ours(data, encoder, SecureStream()),
        "mixveil, seeded": lambda: _ours(data, encoder, SeededStream(1)),
        _NAIVE: lambda: peers.whole(mixture),
        "torch.randn, blocks": lambda: peers.blocks(mixture),
        "roll by one (torchvision)": lambda: peers.rolled(x),
        "permuted (kornia)": lambda: peers.permuted(x),
        _FLOOR: lambda: target.copy_(source),
    }
    if x.numel() <= _LOOPED:
        works["per-image loop"] = lambda: peers.loop(mixture)
    return works


def _ours(data: Images, encoder: CalibratedSingular, stream: Stream) -> object:
    return in_memory(data, encoder, (), party="bench", stream=stream)


def _beyond(memory: float | None, work: str, values: int) -> float | None:
    """Megabytes beyond what a work returns: integers of two bytes, or floats. A copy is made into what is there."""
    size = {"roll by one (torchvision)": 4, "permuted (kornia)": 4, _FLOOR: 0}.get(work, _RELEASED)
    return None if memory is None else max(0.0, memory - size * values / 1e6)
