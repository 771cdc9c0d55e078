"""A value of certified noise, as integers on the grid, beside other samplers."""

from __future__ import annotations

import importlib.util

import torch

from benchmarks.record import Found, Plain, Plot
from benchmarks.timing import Work, medians, threads
from mixveil.core.randomness import SecureStream, SeededStream

_SCALE = 1024.0  # of the grid of releases
_SIZES = (100_000, 1_000_000, 10_000_000)
_OPENDP_AT_MOST = 100_000  # values: more take minutes and cost as much each
_REPETITIONS = 5
_INSTALL = "absent: pip install opendp"


def noise() -> Found:
    found: list[dict[str, Plain]] = []
    most = torch.get_num_threads()
    for size in _SIZES:
        for count in sorted({1, most}):
            with threads(count):
                works = _works(size)
                for work, taken in zip(works, medians(*works.values(), repetitions=_REPETITIONS), strict=True):
                    row: dict[str, Plain] = {
                        "work": work,
                        "values": size,
                        "threads": count,
                        "ns_per_value": taken / size * 1e9,
                    }
                    found.append({**row, "note": None})
    if importlib.util.find_spec("opendp") is None:
        found.append(
            {
                "work": "OpenDP, discrete Gaussian",
                "values": _OPENDP_AT_MOST,
                "threads": 1,
                "ns_per_value": None,
                "note": _INSTALL,
            }
        )
    settings: dict[str, Plain] = {"warm_up": 1, "repetitions": _REPETITIONS, "statistic": "median", "scale": _SCALE}
    plots = [
        Plot(
            f"Integers of noise, {count} thread{'s' * (count > 1)}",
            "values",
            "ns_per_value",
            "work",
            {"threads": count},
        )
        for count in sorted({1, most})
    ]
    return Found(found, settings, plots, packages=("opendp",))


def _works(size: int) -> dict[str, Work]:
    works: dict[str, Work] = {
        "mixveil, secure": lambda: SecureStream().rounded_normals(size, scale=_SCALE),
        "mixveil, seeded": lambda: SeededStream(1).rounded_normals(size, scale=_SCALE),
        "torch.randn, float32": lambda: torch.randn(size).mul_(_SCALE).round_().long(),
        "torch.randn, float64": lambda: torch.randn(size, dtype=torch.float64).mul_(_SCALE).round_().long(),
    }
    if size <= _OPENDP_AT_MOST and importlib.util.find_spec("opendp") is not None:
        works["OpenDP, discrete Gaussian"] = _opendp(size)
    return works


def _opendp(size: int) -> Work:
    import opendp.prelude as opendp

    opendp.enable_features("contrib")
    space = opendp.vector_domain(opendp.atom_domain(T=int)), opendp.l2_distance(T=float)
    sampler = space >> opendp.m.then_gaussian(scale=_SCALE)
    zeros = [0] * size
    return lambda: sampler(zeros)
