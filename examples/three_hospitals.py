"""Three hospitals learn together on this machine: every command that the coordinator and the parties would type.

    python examples/three_hospitals.py FOLDER

Everything listens on 127.0.0.1, encrypted and by keys; all of it is stopped when the script ends.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

HOSPITALS = ("north", "south", "west")


def mixveil(*words: str, folder: Path, role: str, background: bool = False) -> subprocess.Popen[str]:
    """Show a command with whose it is, and run it. Every role has a state folder of its own."""
    print(f"{role}$ {shlex.join(['mixveil', *words])}", flush=True)
    variables = {**os.environ, "MIXVEIL_STATE": str(folder / f"state-{role}"), "OMP_NUM_THREADS": "1"}
    log = (folder / f"{role}-{words[0]}.log").open("w") if background or words[0] == "predict" else None
    command = [sys.executable, "-m", "mixveil", *words]
    errors = log if background else None
    process = subprocess.Popen(command, cwd=folder, env=variables, text=True, stdout=log, stderr=errors)  # noqa: S603
    if not background and process.wait():
        raise SystemExit(process.returncode)
    return process


def stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.wait(300)


def deal(folder: Path) -> None:
    """Digits for each hospital, public ones for the projection, and some to test on."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    x, y = (digits.images / 16).astype(np.float32)[order, None], digits.target[order]
    for number, name in enumerate((*HOSPITALS, "public", "test")):
        rows = slice(number * 359, (number + 1) * 359)
        np.savez(folder / f"{name}.npz", x=x[rows], y=y[rows], classes=np.array([str(c) for c in range(10)]))


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def wait_for_server(folder: Path, serving: subprocess.Popen[str], seconds: float = 600.0) -> None:
    """Until the server says that it runs: how long that takes depends on the machine."""
    end = time.monotonic() + seconds
    while serving.poll() is None and time.monotonic() < end:
        command = [sys.executable, "-m", "mixveil", "status", "server", "--json"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)  # noqa: S603
        if done.returncode == 0 and json.loads(done.stdout)["running"]:
            return
        time.sleep(1)
    raise SystemExit(f"the server did not start: see {folder / 'server-serve.log'}")


def main(folder: Path) -> None:
    """Run again in the same folder, it finds the keys, the projection and the finished job there."""
    folder.mkdir(parents=True, exist_ok=True)
    deal(folder)
    port = free_port()
    mixveil("keys", "trial", ",".join(HOSPITALS), "--out", "keys", folder=folder, role="coordinator")
    if not (folder / "public.safetensors").exists():
        common = "--backbone none --mu 3 --parties 3 --rows 1077 --num-classes 10 --out public.safetensors"
        mixveil("prepare", "public.npz", *common.split(), folder=folder, role="coordinator")
    with ExitStack() as running:
        words = ("serve", "server", "--keys", "keys/server", "--port", port)
        serving = mixveil(*words, folder=folder, role="server", background=True)
        running.callback(stop, serving)
        for name in HOSPITALS:
            mine = ("--party", name, "--keys", f"keys/{name}", "--data", f"{name}.npz", "--mu", "3", "--budget", "5")
            joining = mixveil("join", f"127.0.0.1:{port}", *mine, folder=folder, role=name, background=True)
            running.callback(stop, joining)
        wait_for_server(folder, serving)
        job = ("--job", "digits", "--projection", "public.safetensors", "--min-parties", "3", "--wait", "600")
        mixveil("run", "two-step", "server", *job, folder=folder, role="coordinator")
        mixveil("status", "server", folder=folder, role="coordinator")
        mixveil("ledger", folder=folder, role="north")
    model = next((folder / "state-north" / "jobs" / "north").glob("*/model"))
    mixveil("predict", str(model), "test.npz", folder=folder, role="north")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else made).absolute())
