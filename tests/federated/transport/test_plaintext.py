"""What crosses the network, read off a relay where nothing is encrypted."""

from __future__ import annotations

from pathlib import Path

import torch
from benchmarks.net import SLOW, Process, Server, free_port, until

from mixveil.data.opening import open_data
from tests.command import Run
from tests.federated.transport.net import ROWS, Relay, digits, encodings


def test_a_release_crosses_and_no_original_does(run: Run, tmp_path: Path) -> None:
    data = digits(tmp_path)["a"]
    server = Server(tmp_path, free_port(), None)
    relay = Relay(server.port)
    address, named = f"127.0.0.1:{relay.port}", ["--party", "a", "--data", str(data), "--mu", "8", "--budget", "100"]
    party = Process(["join", address, "--insecure", *named], tmp_path / "a.log", tmp_path / "state-a")
    try:
        until(lambda: "joins" in party.said())
        whole = run("run", "one-shot", server.folder, "--job", "open", "--parties", 1, "--wait", SLOW, "--json").json
    finally:
        party.stop()
        server.stop()
        relay.close()
    assert whole["ok"] and whole["parties"]["a"]["returned"], whole
    shard = server.job("open") / "records" / "a" / "shard-00000.safetensors"
    assert shard.read_bytes() in bytes(relay.sent)  # what is looked for is found
    crossed = bytes(relay.sent) + bytes(relay.got)
    images = open_data(str(data)).take(torch.arange(ROWS)).x
    assert not any(image in crossed for image in encodings(images))
