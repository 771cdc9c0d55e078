"""Two processes on this machine train what one would."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from mixveil.core import errors
from mixveil.core.device_random import DeviceStream
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Batch, Mu
from mixveil.encoders.calibration import settled_facts
from mixveil.encoders.singular import Singular
from mixveil.learn.distributed import Group, asked, exposed, joined, leads
from mixveil.learn.fit import TrainingRecipe, fit
from mixveil.learn.mlp import Classifier
from mixveil.learn.model import read_model
from mixveil.releases.records import write_release
from tests.command import Run
from tests.made import blobs


def test_a_share_of_a_batch() -> None:
    for n, sizes in ((12, [4, 4, 4]), (13, [5, 4, 4]), (2, [1, 1, 0])):
        shares = [Group(rank, 3).own(torch.arange(n)) for rank in range(3)]
        assert torch.equal(torch.cat(shares), torch.arange(n)) and [len(share) for share in shares] == sizes
    assert Group(0, 3).leads and not Group(1, 3).leads


def listening(pids: set[int]) -> set[str]:
    """The addresses on which these processes listen, as /proc shows them."""
    inodes = set()
    for pid in pids:
        for path in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                target = os.readlink(path)  # noqa: PTH115
            except OSError:
                continue
            inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    found = set()
    for kind in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                found.add(words[1].split(":")[0])
    return found


LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


def started_by(pid: int) -> set[int]:
    """A process, and all that it started."""
    found = {pid}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
        if parent == pid:
            found |= started_by(int(path.parent.name))
    return found


def documented(meeting: Path) -> tuple[dict[str, str], list[str]]:
    """The command of docs/learning.md up to `train`: its variables, and its words."""
    text = (Path(__file__).parents[2] / "docs" / "learning.md").read_text().replace("\\\n", " ")
    (line,) = [line for line in text.splitlines() if " torchrun " in line]
    before, _, after = line.partition(" torchrun ")
    variables = dict(word.split("=") for word in before.split())
    words = [str(meeting) if word == "meeting" else word for word in after.partition(" train ")[0].split()]
    return variables, [sys.executable, "-m", "torch.distributed.run", *words]


def test_two_processes_train_what_one_does(run: Run, tmp_path: Path) -> None:
    folders = []
    for seed in (1, 2):
        data = blobs(130 + seed, seed)  # 263 rows: batches of 33, and one of 32: no even shares
        encoder, guarantees = Singular().calibrate(Mu(8.0), settled_facts(data, certified=True, public=None, clip=None))
        folders.append(str(tmp_path / f"release-{seed}"))
        write_release(Path(folders[-1]), data, encoder, guarantees, party="a", stream=SeededStream(seed))
    settings = ["train", *folders, "--head", "mlp", "--epochs", "10", "--batch", "33", "--out"]
    assert run(*settings, tmp_path / "one").code == 0
    variables, words = documented(tmp_path / "meeting")
    several = [*words, *settings, str(tmp_path / "two")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    process = subprocess.Popen(several, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    heard: set[str] = set()
    while process.poll() is None:
        heard |= listening(started_by(process.pid))
        time.sleep(0.2)
    said, faults = process.communicate()
    assert process.returncode == 0, faults
    assert heard and heard <= LOOPBACK, heard
    assert "listens on all interfaces" not in faults
    assert said.count("records of 1 part") == 1  # one of them speaks
    one, two = read_model(tmp_path / "one"), read_model(tmp_path / "two")
    for (weight, bias), other in zip(one.layers.layers, two.layers.layers, strict=True):
        assert torch.allclose(weight, other[0], atol=2e-3) and torch.allclose(bias, other[1], atol=2e-3)
    test = blobs(1000, 7)
    x = test.take(torch.arange(1000)).x.flatten(1)
    right = [float(model.layers(x).argmax(1).eq(test.labels).double().mean()) for model in (one, two)]
    assert abs(right[0] - right[1]) <= 0.003 and right[0] > 0.6
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]  # no state, no meeting place


class Rows:
    rows, inputs, classes = 30, 2, 2

    def batch(self, index: torch.Tensor, step: int) -> Batch:
        return Batch(torch.zeros(len(index), 2), torch.zeros(len(index), 2))


def test_batches_that_cannot_be_shared_are_refused() -> None:
    for batch, size in ((2, 3), (22, 9)):  # of 30 rows, 22 leave 8
        with pytest.raises(errors.ArgumentError, match="cannot share"):
            fit(Rows(), TrainingRecipe(batch=batch), group=Group(0, size))


def test_several_machines_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    assert asked() == 4 and not exposed()
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    assert exposed() and leads()
    monkeypatch.setenv("RANK", "1")
    assert not leads()
    with pytest.raises(errors.ArgumentError, match="one machine"), joined(tmp_path / "model"):
        pass
    for name in ("RANK", "WORLD_SIZE"):
        with monkeypatch.context() as inside, pytest.raises(errors.ArgumentError, match=name):
            inside.setenv(name, "many")
            with joined(tmp_path / "model"):
                pass
    monkeypatch.setenv("WORLD_SIZE", "1")
    with joined(tmp_path / "model") as group:
        assert group.size == 1 and group.leads


def test_all_gpus_draw_the_same() -> None:
    stream = DeviceStream(SeededStream(1))
    places = [torch.device(name) for name in ("cuda", "cuda:0", "cuda:1")]
    assert len({stream._derived(place) for place in places}) == 1
    assert stream._derived(torch.device("cpu")) != stream._derived(places[0])


def test_each_process_takes_its_rows_of_the_whole_mask() -> None:
    ones = torch.ones(7, 50)
    masks = []
    for group in (Group(), Group(0, 2), Group(1, 2)):
        model = Classifier(4, 2, draws=DeviceStream(SeededStream(1)), group=group).train()
        model.draws.restart(7)
        masks.append(model._dropped(group.own(ones), len(ones)))
    assert torch.equal(torch.cat(masks[1:]), masks[0])
