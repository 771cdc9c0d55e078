"""The first sentence of an audit, on audits in which one thing at a time is other than it was."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch

from mixveil.audit.answer import answer
from mixveil.audit.auditing import audit
from mixveil.audit.best_guesses import BestGuess, BestGuesses
from mixveil.audit.figures import Figure, attack_title
from mixveil.audit.found import Audit
from mixveil.audit.ground_truth import GroundTruth
from mixveil.audit.guarantees_found import Promise
from mixveil.audit.metrics import detection, sources
from mixveil.audit.verdict import verdict, warnings
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Mu, Tau, View
from mixveil.core.wording.notes import Note, note
from mixveil.data.similarity import mse
from mixveil.encoders import calibration
from mixveil.encoders.gaussian import Gaussian
from tests.audited import audited, digits, made
from tests.made import encoded
from tests.notes import codes, holds


@cache
def calm() -> Audit:
    """In which attacks get nothing, and everything was tested."""
    return audited(made(Mu(0.5)), names=["lmmse", "linkage", "membership"])


def said(found: Audit, *more: str) -> Note:
    """more: what else the verdict says."""
    warned = warnings(found)
    return answer(found, warned, [*verdict(found, len(warned)), *map(note, more)])


def with_figure(*figures: Figure) -> Note:
    kept = [f for f in calm().figures if f.metric not in {figure.metric for figure in figures}]
    return said(replace(calm(), figures=(*kept, *figures)))


BEYOND = [
    Figure("membership", "membership", "auc", 0.6, know_nothing=0.5, interval=(0.55, 0.65)),
    Figure("membership", "membership", "tpr-at-1-fpr", 0.036, know_nothing=0.01, interval=(0.021, 0.057)),
    Figure("demask", "signs", "signs-found", 0.62, 0.1, 0.8, know_nothing=0.55, interval=(0.6, 0.64)),
    Figure("braverman", "covers", "cover-rank", 0.3, know_nothing=0.5, interval=(0.25, 0.35)),
    Figure("inner-product", "grouping", "shared-source-auc", 0.7, know_nothing=0.5, interval=(0.6, 0.8)),
    Figure("decoder", "reconstruction", "picture-mse", 0.095, 0.01, 0.02, know_nothing=0.1),
    Figure("decoder", "reconstruction", "picture-ssim", 0.3, 0.01, 0.9, know_nothing=0.1),
    Figure("lmmse", "reconstruction", "mse", 0.09, 0.01, 0.02, know_nothing=0.1),
    Figure("lmmse", "reconstruction", "snr-db", 0.3, 0.01, 1.2, know_nothing=0.0),
    Figure("lmmse", "reconstruction", "cosine", 0.3, 0.01, 0.9, know_nothing=0.0),
    Figure("unet", "reconstruction", "lpips-vgg", 0.4, 0.01, 0.2, know_nothing=0.6),
]


@pytest.mark.parametrize("figure", BEYOND, ids=lambda figure: str(figure.metric))
def test_whatever_figure_is_beyond_guessing_is_said(figure: Figure) -> None:
    told = with_figure(figure)
    assert told.code == "answer-some" and told.figures["mean"] == figure.mean
    assert holds([told], f"metric-{figure.metric}")


@pytest.mark.parametrize("figure", BEYOND, ids=lambda figure: str(figure.metric))
def test_what_chance_can_give_or_is_next_to_nothing_is_not_called_more(figure: Figure) -> None:
    nothing = figure.know_nothing or 0.0
    near = nothing + (figure.mean - nothing) / 20
    interval = None if figure.interval is None else (near - 0.1, near + 0.1)
    assert with_figure(replace(figure, mean=near, interval=interval)).code == "answer-little"


def test_labels_and_what_looks_at_no_release_are_not_called_more() -> None:
    shown = Figure("labels", "labels", "own-class-shown", 1.0, know_nothing=0.2)
    found = Figure("chen", "reconstruction", "own-class-shown", 1.0, know_nothing=0.2)
    blind = Figure("prior", "prior", "ssim", 0.4, know_nothing=0.1)
    assert with_figure(shown).code == with_figure(found).code == with_figure(blind).code == "answer-little"


def test_the_record_that_is_guessed_best_is_in_the_sentence() -> None:
    """Of 600 records the mean says one thing, and the worst of them another."""
    private, public, others = digits(0, 600), digits(600, 1000), digits(1000, 1700)
    ready, guarantees, _ = calibration.calibrate(Gaussian(), Mu(2.0), private, stream=SeededStream(0))
    release, trace = encoded(ready, private, SeededStream(0))
    view = View((release.with_(guarantees=guarantees, reproducible=False),), (trace,), public)
    strange, names = others.take(torch.arange(len(others))).x, ["lmmse", "linkage", "membership"]
    found = audit(view, private, others=strange, names=names, stream=SeededStream(1))
    assert next(figure.worst or 0 for figure in found.figures if figure.metric == "snr-db") > 1.5
    (best,) = found.best_guesses
    assert best.attack == "lmmse" and 0.2 < best.gained < 0.5 and abs(best.gained - best.chance) < 0.1
    assert holds(found.verdict[:1], "single-guessed", attack="lmmse", gained=best.gained, chance=best.chance)


def test_the_best_guess_is_measured_by_the_error_of_guessing_that_record() -> None:
    data, n = digits(0, 40), 40
    release, trace = encoded(made(Mu(1.0))[0].encoder, data, SeededStream(0))
    truth = GroundTruth(View((release,), (trace,), digits(500, 900)), data, None, n)
    x, blank = truth.pixels, truth.know_nothing
    guess = blank.clone().double()
    guess[7] = (x[7] + blank[7]) / 2
    best = BestGuesses(truth)
    assert bool((best.others != torch.arange(n)).all()) and len(set(best.others.tolist())) == n
    best.add("one", mse(x, guess), mse(x, blank), best.dealt(guess))
    (found,) = best.found
    by_chance = [
        1 - float(((x[j] - guess[i]) ** 2).mean() / ((x[j] - blank[j]) ** 2).mean())
        for i, j in enumerate(best.others.tolist())
    ]
    assert found.gained == pytest.approx(0.75) and found.chance == pytest.approx(max(by_chance), abs=1e-6)
    best.add("none", mse(x, blank), mse(x, blank), best.dealt(blank.double()))
    assert max(map(abs, best.found[1][1:])) < 1e-6


def test_of_attacks_the_one_that_is_furthest_beyond_chance_with_a_record_is_named() -> None:
    guesses = (BestGuess("lowpass", 0.5, 0.5), BestGuess("known-10", 0.4, 0.1), BestGuess("linear", -3.0, -5.0))
    told = said(replace(calm(), best_guesses=guesses)).figures["single"]
    assert told == note("single-guessed", attack=attack_title("known-10"), gained=0.4, chance=0.1)
    assert said(replace(calm(), best_guesses=guesses[2:])).figures["single"].code == "single-no-better"
    assert said(replace(calm(), best_guesses=())).figures["single"].code == "single-not-guessed"


def test_a_guarantee_that_is_not_kept_is_said_first() -> None:
    broken = Promise("0" * 32, "variance-left-unknown", 0.9, None, 0.5, broken=True)
    assert said(replace(calm(), promises=(broken,))).code == "answer-do-not-send"
    certified = calm().view.releases[0]
    snr = Promise(certified.id, "directional-snr", 0.001, None, 0.5, broken=True)
    assert certified.certified and said(replace(calm(), promises=(snr,))).code == "answer-do-not-send"
    loose = certified.with_(guarantees=[g for g in certified.guarantees if g.name == "directional-snr"])
    told = said(replace(calm(), view=replace(calm().view, releases=(loose,)), promises=(snr,)))
    assert told.code == "answer-not-kept" and (told.figures["nominal"], told.figures["found"]) == (0.001, 0.5)
    assert told.figures["attacked"].code == "answer-little"
    weak = audited(made(Tau(1.0, "energy")), names=["lmmse"]).verdict[0]
    assert weak.code == "answer-not-kept" and weak.figures["attacked"].code == "answer-reconstructed"


def test_a_release_without_a_guarantee_is_not_for_sending_and_what_attacks_got_is_said() -> None:
    release = calm().view.releases[0].with_(guarantees=())
    told = said(replace(calm(), view=replace(calm().view, releases=(release,))))
    assert told.code == "answer-no-guarantee" and told.figures["attacked"].code == "answer-little"


def test_a_ceiling_that_was_beaten_is_no_advice() -> None:
    """It was found by an attack, and the audit itself may be what is false."""
    figures = tuple(replace(f, ceiling=0.1, beaten=True) if f.metric == "mse" else f for f in calm().figures)
    assert said(replace(calm(), figures=figures)).code == "answer-ceiling-beaten"
    assert said(replace(calm(), figures=figures, promises=(Promise("0" * 32, "gdp", 1, 1, 2, broken=True),))).code == (
        "answer-do-not-send"
    )


def test_a_weak_attack_on_pictures_hides_nothing_that_others_found() -> None:
    weak = Figure("lmmse", "reconstruction", "mse", 0.2, know_nothing=0.1)
    told = with_figure(weak, BEYOND[1])
    assert told.code == "answer-some" and told.figures["attack"] == "membership"
    silent = Figure("membership", "membership", "tpr-at-1-fpr", 0.012, know_nothing=0.01, interval=(0.005, 0.03))
    assert with_figure(weak, silent).code == "answer-too-weak"


OPEN = ["untrained", "not-linear", "part", "screened", "noise-unmeasured", "untested", "unasked"]


@pytest.mark.parametrize("code", OPEN)
def test_what_was_not_tested_is_said(code: str) -> None:
    assert said(calm()).code == "answer-little"
    assert said(calm(), f"verdict-{code}").code == "answer-little-in-part"
    more = replace(calm(), figures=(*calm().figures, BEYOND[0]))
    assert (said(more).code, said(more, f"verdict-{code}").code) == ("answer-some", "answer-some-in-part")


def test_an_audit_of_a_part_by_attacks_of_which_some_train_says_that_not_all_was_tested() -> None:
    found = audited(made(Mu(0.5)))
    assert "verdict-untrained" in codes(found.verdict) and found.verdict[0].code.endswith("-in-part")


def test_intervals_of_an_auc_and_of_a_rank_hold_what_is_true() -> None:
    """Of scores and places that say nothing, in 200 draws, a few per cent are missed."""
    stream, auc, rank = SeededStream(0), 0, 0
    for _ in range(200):
        members, others = stream.normal(60), stream.normal(90)
        low, high = detection.auc_interval(detection.auc(members, others), 60)
        auc += not low <= 0.5 <= high
        places = sources.covers(stream.normal(60, 40), torch.arange(60)[:, None] % 40)
        rank += not places.interval[0] <= 0.5 <= places.interval[1]
        assert places.interval[0] <= places.rank <= places.interval[1]
    assert auc <= 10 and rank <= 20
