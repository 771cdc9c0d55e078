"""A server under load: nothing is lost, and it holds little of it at a time."""

from __future__ import annotations

from pathlib import Path

from tests.federated.flower.load import under_load


def test_twenty_parties_of_fifty_megabytes_fit_a_small_server(tmp_path: Path) -> None:
    load = under_load(tmp_path, 20, 50_000_000)
    assert load.outcome["ok"] and load.arrived == 20 and load.bytes > 990e6
    assert load.most < 1.5e9, f"{load.most / 1e9:.2f} GB"
