"""`mixveil audit` of representations, with the attacks that the package has."""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mixveil.audit import representations
from mixveil.audit.found import Audit
from mixveil.core.randomness import SeededStream
from mixveil.features.split.half import halves, read_half, write_half
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


def test_attackers_get_all_public_images(sent: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Membership is not measured, so that no image is kept as a stranger."""
    seen, attack = list[int](), representations.audit

    def noted(*releases: Any, public: Any, **asked: Any) -> Audit:
        seen.append(len(public))
        return attack(*releases, public=public, **asked)

    monkeypatch.setattr(representations, "audit", noted)
    few = digits(0, 10)
    np.savez(sent / "few.npz", x=few.take(torch.arange(10)).x.numpy(), y=few.labels.numpy(), classes=few.classes)
    words = ("audit", "r", "--truth", "digits:test", "--client", "client")
    told = run(*words, "--public", "few.npz", "--attacks", "inversion-adaptive", "--out", "a")
    assert told.code == 0 and seen == [10], told.err
    whole = json.loads((sent / "a" / "audit.json").read_text())
    (ran,) = whole["attacks"]
    assert ran["status"] == "skipped" and holds(read([ran["why"]]), "too-few-public-images", rows=10)
    page = (sent / "a" / "report.html").read_text()
    assert "strangers" not in page and "strangers" not in told.out
    assert "too-few-public-rows" not in json.dumps(whole)
    np.savez(sent / "one.npz", x=few.take(torch.arange(1)).x.numpy(), y=few.labels[:1].numpy(), classes=few.classes)
    assert refused(run(*words, "--public", "one.npz", "--out", "b", "--json"), "ArgumentError")


@pytest.mark.filterwarnings("error")
def test_one_row_has_no_deviation_and_no_warning_of_torch(sent: Path, run: Run) -> None:
    one, client = digits(0, 1), read_half(sent / "client")
    np.savez(sent / "one.npz", x=one.take(torch.arange(1)).x.numpy(), y=one.labels.numpy(), classes=one.classes)
    split_encode(sent / "one.npz", sent / "q", client=client)
    told = run("audit", "q", "--truth", "one.npz", "--client", "client", "--out", "a")
    assert told.code == 0 and "std()" not in told.err, told.err
    figures = json.loads((sent / "a" / "audit.json").read_text())["figures"]
    mse = next(figure for figure in figures if (figure["attack"], figure["metric"]) == ("inversion", "mse"))
    assert mse["std"] is None and mse["mean"] == mse["worst"] < mse["know_nothing"]


def test_what_is_wrong_is_refused_by_its_own_error(sent: Path, run: Run) -> None:
    audit = ("audit", "r", "--truth", "digits:test", "--out", "a", "--json")
    assert refused(run(*audit), "ArgumentError")
    assert refused(run(*audit, "--client", "server"), "MismatchError")
    assert refused(run(*audit, "--client", "r"), "DataFormatError")
    assert refused(run(*audit, "--client", "client", "--sweep", "mu=1,2"), "ArgumentError")
    assert refused(run(*audit[:3], "digits:train", *audit[4:], "--client", "client"), "WrongTruthError")
    assert not (sent / "a").exists()
