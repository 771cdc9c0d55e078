"""A server under load: nothing is lost, and it holds little of it at a time."""

from __future__ import annotations

import os
from pathlib import Path

from tests.federated.transport.load import under_load

MEGABYTES = int(os.environ.get("MIXVEIL_LOAD_MB", "10"))
"""Of each party; fifty take two minutes (`MIXVEIL_LOAD_MB=50`, or `python -m benchmarks.run --only network`)."""


def test_twenty_parties_fit_a_small_server(tmp_path: Path) -> None:
    load = under_load(tmp_path, 20, MEGABYTES * 1_000_000)
    assert load.outcome["ok"] and load.arrived == 20 and load.bytes > 19.8e6 * MEGABYTES
    assert load.most < 1.5e9, f"{load.most / 1e9:.2f} GB"
