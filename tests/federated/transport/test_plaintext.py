"""What crosses the network, read off a relay where nothing is encrypted."""

from __future__ import annotations

from pathlib import Path

import torch

from mixveil.data.opening import open_data
from tests.federated.transport.net import Process, Relay, Server, free_port, until
from tests.federated.transport.test_network import HONEST, ROWS, digits, encodings


def test_releases_cross_and_no_original_does(tmp_path: Path) -> None:
    data = digits(tmp_path)
    server = Server(tmp_path, free_port(), None)
    relays = {name: Relay(server.port) for name in HONEST}
    parties = {
        name: Process(
            ["join", f"127.0.0.1:{relays[name].port}", "--insecure", "--party", name, "--data", str(data[name]),
             "--mu", "8", "--budget", "100"],
            tmp_path / f"{name}.log",
            tmp_path / f"state-{name}",
        )
        for name in HONEST
    }  # fmt: skip
    try:
        until(lambda: all("joins" in party.said() for party in parties.values()))
        whole = server.run("one-shot", "open", "--parties", "3", "--wait", "300")
    finally:
        for process in (*parties.values(), server):
            process.stop()
        for relay in relays.values():
            relay.close()
    assert whole["ok"] and all(whole["parties"][name]["returned"] for name in HONEST), whole
    crossed = b"".join(bytes(relay.sent) + bytes(relay.got) for relay in relays.values())
    for name in HONEST:
        shard = server.job("open") / "records" / name / "shard-00000.safetensors"
        assert shard.read_bytes() in bytes(relays[name].sent)  # what is looked for is found
        images = open_data(str(data[name])).take(torch.arange(ROWS)).x
        assert not any(image in crossed for image in encodings(images))
