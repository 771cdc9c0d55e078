"""`mixveil audit` of representations, with the attacks that the package has."""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path

import pytest
from torch import nn

from mixveil.core.randomness import SeededStream
from mixveil.features.split.half import halves, write_half
from mixveil.releases.representations import split_encode
from tests.audited import digits
from tests.command import Run, refused
from tests.notes import codes, holds, read, shows


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    """What a small client half makes of the first digits, in `r`, and the half in `client`."""
    net, draws = (
        nn.Sequential(OrderedDict(block=nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU()))),
        SeededStream(1),
    )
    for weight in net.parameters():
        weight.data = 0.4 * draws.normal(*weight.shape).float()
    data = digits(0, 1797)
    client, server = halves(net, nn.Sequential(nn.Flatten(), nn.Linear(384, 10)), (1, 8, 8), data.classes)
    write_half(tmp_path / "client", client)
    write_half(tmp_path / "server", server)
    split_encode("digits:test", tmp_path / "r", client=client)
    return tmp_path


def test_the_paper_s_inversion_sees_through_one_layer_and_the_page_shows_it(sent: Path, run: Run) -> None:
    told = run("audit", "r", "--truth", "digits:test", "--client", "client", "--out", "a")
    assert told.code == 0, told.err
    assert shows(told.out, "hardness-not-promised") and shows(told.out, "verdict-inversion-only", attacks="inversion")
    whole = json.loads((sent / "a" / "audit.json").read_text())
    figures = {figure["metric"]: figure for figure in whole["figures"] if figure["attack"] == "inversion"}
    assert figures["mse"]["mean"] < 0.1 * figures["mse"]["know_nothing"] and figures["ssim"]["mean"] > 0.8
    verdict = read(whole["verdict"])
    assert verdict[0].code == "hardness-not-promised" and "verdict-inversion-public" in codes(verdict)
    assert holds(verdict, "verdict-images", attack="inversion") and "amount-a-great-deal" in codes(verdict)
    assert {run["attack"]: run["status"] for run in whole["attacks"]} == {
        "inversion": "ran", "inversion-adaptive": "skipped", "inversion-gan": "skipped"
    }  # fmt: skip
    page = (sent / "a" / "report.html").read_text()
    assert page.count("data:image/png") == 3 * 8 and shows(page, "page-released-representations")


def test_what_is_wrong_is_refused_by_its_own_error(sent: Path, run: Run) -> None:
    audit = ("audit", "r", "--truth", "digits:test", "--out", "a", "--json")
    assert refused(run(*audit), "ArgumentError")
    assert refused(run(*audit, "--client", "server"), "MismatchError")
    assert refused(run(*audit, "--client", "r"), "DataFormatError")
    assert refused(run(*audit, "--client", "client", "--sweep", "mu=1,2"), "ArgumentError")
    assert refused(run(*audit[:3], "digits:train", *audit[4:], "--client", "client"), "WrongTruthError")
    assert not (sent / "a").exists()
