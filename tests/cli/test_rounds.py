"""`mixveil rounds`: the commands of the documents as written, what they print, and what they refuse."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mixveil.core.errors import EXIT_CODES
from mixveil.learn import public_tasks
from mixveil.releases.ledger import Ledger
from tests.command import Run, refused
from tests.made import blobs
from tests.notes import shows
from tests.sums import SETTINGS

PAGE = Path(__file__).parents[2] / "docs" / "learning.md"
SHARED = ("--plan", "plan.json", "--projection", "projection")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Images of two parties, public ones and a test set; settings of two rounds, which public data would give."""
    monkeypatch.setenv("MIXVEIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(public_tasks, "find", lambda *given, **more: (replace(SETTINGS, rounds=2),))
    for seed, name in enumerate(("public", "north", "south", "test"), 1):
        data = blobs(600, seed, classes=4)
        x = data.take(torch.arange(len(data))).x.numpy()
        np.savez(tmp_path / f"{name}.npz", x=x, y=data.labels.numpy(), classes=np.array(data.classes))
    return tmp_path


@pytest.fixture
def begun(run: Run, folder: Path) -> Path:
    assert run("prepare", "public.npz", "--backbone", "none", "--out", "projection").code == 0
    done = run(
        "rounds",
        "plan",
        "--projection",
        "projection",
        "--units",
        1200,
        "--num-classes",
        4,
        "--parties",
        2,
        "--mu",
        2,
        "--out",
        "plan.json",
    )
    assert done.code == 0 and "2 rounds" in done.out and "6 directions" in done.out, done.err
    return folder


def test_the_commands_of_the_page_run_as_written(run: Run, folder: Path) -> None:
    block = PAGE.read_text().split("## Rounds by files")[1].split("```")[1].replace("\\\n", " ")
    commands = re.findall(r"^mixveil (.+)$", block, re.MULTILINE)
    assert len(commands) == 8
    for command in commands:
        words = shlex.split(command, comments=True)
        if words[0] == "prepare":
            words += ["--backbone", "none"]
        both = [words, [word.replace("north", "south") for word in words]] if "send" in words else [words]
        for each in both:
            done = run(*each)
            assert done.code == 0, f"{each}: {done.err}"
    named = run("predict", "model", "test.npz", "--json").json
    assert named["accuracy"] > 0.9
    assert len(Ledger().entries()) == 6 and not Ledger().reservations()


def test_json_of_every_verb(run: Run, begun: Path) -> None:
    sent = run("rounds", "send", "north.npz", *SHARED, "--mu", 2, "--party", "north", "--out", "n0", "--json")
    assert sent.code == 0 and not sent.err, sent.err
    assert (sent.json["message"], sent.json["rounds"], sent.json["party"]) == (0, 2, "north")
    assert sent.json["spent"]["total_mu"] == pytest.approx(2) and sent.json["spent"]["labels_covered"]
    more = ("--out", "s1", "--model", "m", "--test", "test.npz", "--json")
    done = run("rounds", "step", "n0", *SHARED, *more)
    assert done.code == 0 and not done.err, done.err
    assert done.json["parties"] == ["north"] and done.json["head"] == "s1/head.safetensors"
    assert done.json["model"]["accuracy"]["rows"] == 600 and done.json["model"]["label_epsilon"] == {"north": 0.0}
    assert done.json["model"]["mu"] == {"north": pytest.approx(2 * 0.2**0.5)}
    left = run("rounds", "leave", "plan.json", "--party", "north", "--json")
    assert left.json["freed"] == pytest.approx(2 * 0.8**0.5) and Ledger().reservations() == {}


def test_what_is_said(run: Run, begun: Path) -> None:
    sent = run("rounds", "send", "north.npz", *SHARED, "--mu", 2, "--party", "north", "--out", "n0")
    assert sent.code == 0 and "message 0 of 2" in sent.out and shows(sent.out, "gdp-record", mu=2 * 0.2**0.5), sent.out
    for party in ("south",):
        assert run("rounds", "send", f"{party}.npz", *SHARED, "--mu", 2, "--party", party, "--out", "s0").code == 0
    done = run("rounds", "step", "n0", *SHARED, "--out", "s1")
    assert "s1/head.safetensors: give this to every party" in done.out
    head = ("--head", "s1/head.safetensors")
    assert run("rounds", "send", "south.npz", *SHARED, "--mu", 2, "--party", "south", *head, "--out", "x1").code == 0
    done = run("rounds", "step", "x1", *SHARED, "--state", "s1", "--model", "m", "--test", "test.npz")
    assert done.code == 0 and shows(done.err, "party-without-class-sums", party="south"), done.err
    assert "accuracy on test.npz" in done.out and shows(done.out, "model-labels-covered")
    left = run("rounds", "leave", "plan.json", "--party", "south")
    assert left.code == 0 and "no longer reserved" in left.out


def test_refusals_have_their_exit_codes(run: Run, begun: Path) -> None:
    north = ("rounds", "send", "north.npz", *SHARED, "--party", "north", "--json")
    assert run(*north, "--mu", 2, "--out", "n0").code == 0
    again = run(*north, "--mu", 2, "--out", "n1")
    assert refused(again, "RefusedError") and again.code == EXIT_CODES["refused"]
    assert refused(run(*north, "--mu", 1, "--out", "n1", "--head", "plan.json"), "MismatchError")
    assert refused(run(*north, "--mu", 2, "--out", "n1", "--head", "north.npz"), "DataFormatError")
    assert refused(run("rounds", "step", "n0", *SHARED, "--json"), "ArgumentError")
    assert refused(run("rounds", "leave", "plan.json", "--json"), "ArgumentError")
    no_settings = (
        "rounds",
        "plan",
        "--projection",
        "bare",
        "--units",
        9,
        "--num-classes",
        4,
        "--parties",
        1,
        "--mu",
        1,
        "--out",
        "p",
        "--json",
    )
    assert refused(run(*no_settings), "MissingPathError")
    assert not (begun / "n1").exists() and len(Ledger().entries()) == 1
