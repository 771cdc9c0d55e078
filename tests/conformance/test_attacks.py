"""What every attack must do, by what it declares: the registry is walked, and no attack is known by its name here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from mixveil.attacks.catalogue import attacks
from mixveil.attacks.shared.base import CannotAttackError
from mixveil.attacks.shared.model import prior_of
from mixveil.attacks.shared.training import Schedule, TrainingCache, with_cache
from mixveil.audit.metrics import detection, signs, sources
from mixveil.audit.self_test import fails_on_bare_pairs
from mixveil.core.errors import ArgumentError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Attack, AttackBound, AttackKind, Encoder, Guess, KnownRecords, Mu, Tau, Units, View
from mixveil.core.wording.sentences import WORDS
from mixveil.data.images import Images, from_tensors
from mixveil.data.similarity import mse
from mixveil.encoders.catalogue import encoders
from mixveil.encoders.identity import Identity
from mixveil.encoders.instahide import CalibratedInstaHide, InstaHide
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from mixveil.features.split.half import Half
from mixveil.releases.representations import in_memory as represented
from tests.made import encoded, images, range_facts, with_moments

COVERS = 40
MEMBERS = 30  # of the candidates, where strangers follow


RECORDS = sorted(name for name, kind in attacks().items() if kind.payload == "records")
REPRESENTATIONS = sorted(name for name, kind in attacks().items() if kind.payload == "representations")
UPDATES = sorted(name for name, kind in attacks().items() if kind.payload == "updates")  # in test_update_attacks.py


@pytest.fixture(params=RECORDS)
def attack(request: pytest.FixtureRequest) -> Attack:
    return small(request.param)


@pytest.fixture(params=REPRESENTATIONS)
def inverting(request: pytest.FixtureRequest) -> Attack:
    return small(request.param)


def small(name: str) -> Attack:
    """Small, and trained briefly where it trains."""
    kind = attacks()[name]
    given = {"base": 8, "rounds": 1, "schedule": Schedule(epochs=1000, batch=16, rate=3e-3)}
    fields = {field.name for field in dataclasses.fields(kind)} if kind.trains else set()  # type: ignore[arg-type]
    made = kind(**{name: value for name, value in given.items() if name in fields})
    return with_cache(made, TrainingCache(max_steps=150))


def smooth(n: int, seed: int, shape: tuple[int, int, int] = (1, 4, 4)) -> Images:
    """Images that vary in two directions mostly."""
    stream, (height, width) = SeededStream(seed), shape[1:]
    down, across = (torch.linspace(-1, 1, size, dtype=torch.float64) for size in (height, width))
    plane = torch.stack([down[:, None].expand(height, width), across.expand(height, width)])
    shapes = plane[:, None].expand(2, *shape).flatten(1)
    x = 0.5 + 0.1 * stream.normal(n, 2) @ shapes + 0.01 * stream.normal(n, shapes.shape[1])
    return from_tensors(x.clamp(0, 1).float().view(n, *shape), torch.arange(n) % 4, classes=4)


def view(encoder: Encoder, n: int = 8, releases: int = 1, data: Images | None = None) -> View:
    """Everything that an attack may see; every record is a candidate, and then as many strangers."""
    data = data or smooth(n, 1)
    covers = images(encoder.covers, data.shape, seed=4) if encoder.covers else None
    pairs = [encoded(encoder, data, SeededStream(seed), covers) for seed in range(1, releases + 1)]
    public, strangers = smooth(200, 2, data.shape), smooth(n, 3, data.shape)  # type: ignore[arg-type]
    x, some = data.take(torch.arange(n)).x, torch.arange(0, n, 3)
    candidates = torch.cat([x, strangers.take(torch.arange(n)).x])
    rows = torch.arange(n).repeat(2)
    return View(
        tuple(release for release, _ in pairs),
        tuple(trace for _, trace in pairs),
        public,
        candidates,
        torch.cat([data.labels, strangers.labels]),
        KnownRecords(some, x[some]),
        public,
        Units(torch.arange(2 * n) // 2, rows, torch.arange(2 * n)),
        covers,
    )


def independent(n: int, seed: int, shape: tuple[int, int, int]) -> Images:
    """Images whose values are independent normal draws."""
    x = 0.5 + 0.1 * SeededStream(seed).normal(n, *shape)
    return from_tensors(x.clamp(0, 1).float(), torch.arange(n) % 4, classes=4)


def fitting(attack: Attack) -> View:
    """Of an encoder whose rows hold what the attack looks for, and of so many releases that it can be run; where it
    cannot, of larger images without a defence."""
    encoder: Encoder = Mixup(3, COVERS) if attack.kind == "covers" else Singular.example()
    seen = view(InstaHide.example() if attack.kind == "signs" else encoder, releases=attack.least_releases)
    return seen if attack.cannot(seen) is None else view(Identity(), data=smooth(8, 1, (3, 16, 16)))


def allowed(attack: Attack, seen: View) -> Guess | None:
    """What the attack guesses; nothing where it says why it cannot."""
    why = attack.cannot(seen)
    if why is None:
        try:
            return attack(seen, stream=SeededStream(0))
        except CannotAttackError as error:
            why = error.why
    assert why.code in WORDS
    return None


SAYS: dict[AttackKind, set[str]] = {
    "prior": {"images"},
    "reconstruction": {"images", "pictures", "sources", "alike"},
    "linkage": {"links"},
    "pairs": {"pairs", "doubts"},
    "membership": {"scores"},
    "labels": {"labels"},
    "signs": {"signs"},
    "covers": {"covers", "images"},
    "grouping": {"alike"},
    "distribution": {"apart"},
}


def test_every_attack_is_on_a_payload_that_is_tried_here() -> None:
    assert (
        sorted([*RECORDS, *REPRESENTATIONS, *UPDATES]) == sorted(attacks()) and RECORDS and REPRESENTATIONS and UPDATES
    )


@pytest.mark.parametrize("name", sorted(attacks()))
def test_the_declarations_are_of_their_kinds_and_have_words(name: str) -> None:
    attack = small(name)
    assert attack.kind in get_args(AttackKind) and (attack.bound is None or attack.bound in get_args(AttackBound))
    assert attack.needs <= {field.name for field in dataclasses.fields(View)} - {"releases"}
    assert attack.threat in WORDS and attack.least_releases >= 1
    assert attack.trains == any(field.name == "cache" for field in dataclasses.fields(attack))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(encoders()))
def test_it_attacks_every_encoder_that_it_says_it_can(attack: Attack, name: str) -> None:
    seen = view(encoders()[name].example())
    guess = allowed(with_cache(attack, TrainingCache(max_steps=2)), seen)
    if guess is None:
        return  # it said why
    said = {field.name for field in dataclasses.fields(guess) if getattr(guess, field.name) is not None}
    assert said and said <= SAYS[attack.kind]
    n, count = 8, len(seen.candidates if seen.candidates is not None else ())
    for shown, length in ((guess.images, n), (guess.pictures, n), (guess.pairs, n), (guess.labels, n)):
        assert shown is None or (len(shown) == length and bool(shown.double().isfinite().all()))
    assert guess.links is None or guess.links.shape == (count, n)
    assert guess.signs is None or (guess.signs.shape == (n, 16) and bool((guess.signs.abs() == 1).all()))
    assert guess.alike is None or guess.alike.shape == (n, n)
    if guess.sources is not None:
        assert len(guess.sources) == n and guess.sources.dtype == torch.int64
        assert -1 <= int(guess.sources.min()) <= int(guess.sources.max()) < n
    assert guess.apart is None or (len(guess.apart) == n and bool(((guess.apart >= 0) & (guess.apart <= 1)).all()))


def test_the_same_view_gives_the_same_guess_and_is_not_changed(attack: Attack) -> None:
    seen = fitting(attack)
    assert attack.cannot(seen) is None and seen.candidates is not None and seen.traces is not None
    before = seen.candidates.clone(), seen.traces[0].weight.clone(), seen.traces[0].partner.clone()
    brief = with_cache(attack, TrainingCache(max_steps=3))
    one, two = brief(seen, stream=SeededStream(0)), brief(seen, stream=SeededStream(0))
    for field in dataclasses.fields(one):
        first, second = getattr(one, field.name), getattr(two, field.name)
        assert (first is None and second is None) or torch.equal(first, second)
    after = seen.candidates, seen.traces[0].weight, seen.traces[0].partner
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_an_attack_says_what_it_needs_and_nothing_more(attack: Attack) -> None:
    seen, brief = fitting(attack), with_cache(attack, TrainingCache(max_steps=2))
    given: dict[str, Any] = {name: getattr(seen, name) for name in attack.needs}
    brief(View(seen.releases, **given), stream=SeededStream(0))
    for name in attack.needs:
        less = View(seen.releases, **{k: v for k, v in given.items() if k != name})
        why = attack.cannot(less)
        assert why is not None and why.code == "attack-needs" and why.figures["fields"] == name
        with pytest.raises(ArgumentError, match=name):
            brief(less, stream=SeededStream(0))


def reconstructs(guess: Guess, seen: View) -> bool:
    truth = (seen.candidates if seen.candidates is not None else torch.empty(0))[:MEMBERS]
    images = guess.images if guess.pictures is None else guess.pictures
    nothing = prior_of(seen).mean.view(1, *truth.shape[1:]).expand_as(truth)
    most = 0.1 if guess.pictures is None else 0.2  # few public images teach a decoder less
    return images is not None and float(mse(truth, images).mean()) < most * float(mse(truth, nothing).mean())


def finds_signs(guess: Guess, seen: View) -> bool:
    images = (seen.candidates if seen.candidates is not None else torch.empty(0))[:MEMBERS]
    truth = seen.releases[0].encoder.prepare(images).sign()
    return guess.signs is not None and float(signs.found(truth, guess.signs).mean()) > 0.85 > signs.of_one_sign(truth)


def finds_covers(guess: Guess, seen: View) -> bool:
    """Of one cover a row, by any weight at all: seven of ten others must score below it, after a brief training too."""
    scores, traces = torch.as_tensor(guess.covers), seen.traces or ()
    return float((scores.gather(1, traces[0].partner[:, -1:] - MEMBERS) > scores).double().mean()) > 0.7


def separates(scores: Tensor | None, members: int) -> bool:
    return scores is not None and detection.auc(scores[:members], scores[members:]) > 0.95


def finds_pairs(guess: Guess, seen: View) -> bool:
    """Whether row i of one release and row i of the other are most alike."""
    alike = torch.as_tensor(guess.alike).clone().fill_diagonal_(-torch.inf)
    return torch.equal(alike.argmax(1), torch.arange(2 * MEMBERS).roll(MEMBERS))


SUCCEEDS: dict[AttackKind, Callable[[Guess, View], bool]] = {
    "prior": lambda guess, seen: guess.images is not None and float(guess.images.std(0).max()) == 0,
    "reconstruction": reconstructs,
    "linkage": lambda guess, seen: torch.equal(torch.as_tensor(guess.links)[:MEMBERS].argmax(1), torch.arange(MEMBERS)),
    "membership": lambda guess, seen: separates(guess.scores, len(torch.as_tensor(guess.scores)) // 2),
    "grouping": finds_pairs,
    "distribution": lambda guess, seen: sources.told_apart(torch.as_tensor(guess.apart)) == MEMBERS,
    "labels": lambda guess, seen: torch.equal(
        torch.as_tensor(guess.labels)[:, 0], torch.as_tensor(seen.candidate_labels)[:MEMBERS]
    ),
    "signs": finds_signs,
    "covers": finds_covers,
}


def test_where_there_is_no_defence_it_succeeds(attack: Attack) -> None:
    if attack.kind == "pairs":  # mixed without noise, or under noise of few random bits
        data = smooth(24, 1, (3, 32, 32))
        noisy, _ = Singular().calibrate(Mu(0.5), range_facts(data))
        seen = view(noisy, 24, data=data)
        assert attack.cannot(seen) is None and fails_on_bare_pairs(attack, seen, data, SeededStream(0)) is None
        return
    seen = view(Identity(), MEMBERS, releases=attack.least_releases)
    if attack.kind == "signs":  # masked, and not mixed; as light as dark, images would not show which is which
        masked = CalibratedInstaHide(k=1, c1=1.0, c2=0.0, covers=0, pad=0, values=64, centre=0.45)
        seen = view(masked, MEMBERS, data=smooth(MEMBERS, 1, (1, 8, 8)))
    if attack.kind == "covers":  # in values that do not depend on one another, as Braverman's attack takes them
        data = smooth(MEMBERS, 1, (1, 8, 8)) if attack.trains else images(MEMBERS, (1, 16, 16))
        seen = view(Mixup(3, COVERS), MEMBERS, data=data)
    guess = allowed(attack, seen)
    assert guess is not None and SUCCEEDS[attack.kind](guess, seen)


RECONSTRUCTIONS = sorted(name for name in RECORDS if attacks()[name].kind == "reconstruction")


def repeated(data: Images, tau: float, energy: float, releases: int) -> View:
    """Several releases under noise."""
    facts = with_moments(range_facts(data), energy=energy, lambda_max=0.1)
    encoder, _ = Singular().calibrate(Tau(tau, "energy"), facts)
    public = smooth(400, 2, data.shape)  # type: ignore[arg-type]
    return dataclasses.replace(view(encoder, len(data), releases, data), public=public, pictures=public)


@pytest.mark.parametrize("attack", RECONSTRUCTIONS, indirect=True)
def test_a_reconstruction_takes_several_releases_and_gains_from_them(attack: Attack) -> None:
    heavy = any(field.name == "encodings" for field in dataclasses.fields(attack))  # type: ignore[arg-type]
    if heavy:  # a step of its training is of hundreds of rows
        attack = with_cache(attack, TrainingCache(max_steps=20))
    data, tau, energy = smooth(30 if heavy else 60, 1, (1, 8, 8)), 0.5, 0.3  # SSIM sees little in fewer values
    special = attack.cannot(repeated(data, tau, energy, 6)) is not None
    if special:  # it is for values that do not depend on one another, and may say that one release is not enough
        data, tau, energy = independent(24, 1, (1, 128, 128)), 1.0, 0.01 * 128**2
    truth = data.take(torch.arange(len(data))).x
    errors = []
    for count in (1, 6):
        seen = repeated(data, tau, energy, count)
        guess = allowed(attack, seen) if special and count == 1 else attack(seen, stream=SeededStream(0))
        guess = Guess(images=truth.mean(0).expand_as(truth)) if guess is None else guess
        images = guess.images if guess.pictures is None else guess.pictures
        assert images is not None
        errors.append(float(mse(truth, images).mean()))
    assert errors[1] < 0.95 * errors[0]


def client(net: nn.Sequential, shape: tuple[int, ...] = (1, 8, 8)) -> Half:
    output = tuple(net(torch.zeros(1, *shape)).shape[1:])
    return Half("client", net, shape, output, ("0", "1", "2", "3"))


def split_view(half: Half | None = None, n: int = 8) -> View:
    """What a client half makes of images; a half that hides nothing, unless another is given."""
    half = half or client(nn.Sequential(nn.Flatten()))
    public = smooth(200, 2, (1, 8, 8))
    return View((represented(smooth(n, 1, (1, 8, 8)), half),), public=public, client=half)


def squeezing() -> Half:
    """Maps of another size than the image, in a small ball."""
    layer = nn.Conv2d(1, 3, 3, 2)
    weight, bias = 1e-3 * SeededStream(5).normal(3, 1, 3, 3).float(), torch.ones(3)
    layer.load_state_dict({"weight": weight, "bias": bias})
    return client(nn.Sequential(layer, nn.ReLU()))


@pytest.mark.parametrize("half", [squeezing(), client(nn.Sequential(nn.Flatten(), nn.Linear(64, 5)))])
def test_it_inverts_what_any_client_half_sends(inverting: Attack, half: Half) -> None:
    """Maps and vectors: a guess for each row, of the images' shape and in their range."""
    seen = split_view(half)
    guess = with_cache(inverting, TrainingCache(max_steps=2))(seen, stream=SeededStream(0))
    said = {field.name for field in dataclasses.fields(guess) if getattr(guess, field.name) is not None}
    assert said <= SAYS[inverting.kind] and guess.images is not None
    assert guess.images.shape == (8, 1, 8, 8) and guess.images.dtype == torch.float64
    assert 0 <= float(guess.images.min()) <= float(guess.images.max()) <= 1


def test_the_same_representations_give_the_same_guess_and_are_not_changed(inverting: Attack) -> None:
    half = squeezing()
    seen, brief = split_view(half), with_cache(inverting, TrainingCache(max_steps=3))
    every = torch.arange(8)
    before, weights = seen.releases[0].payload.take(every).x.clone(), half.digest
    one, two = (brief(seen, stream=SeededStream(0)).images for _ in range(2))
    assert one is not None and two is not None and torch.equal(one, two)
    assert torch.equal(seen.releases[0].payload.take(every).x, before)
    assert dataclasses.replace(half).digest == weights


def test_an_inversion_says_what_it_needs_and_nothing_more(inverting: Attack) -> None:
    seen, brief = split_view(), with_cache(inverting, TrainingCache(max_steps=2))
    given: dict[str, Any] = {name: getattr(seen, name) for name in inverting.needs}
    brief(View(seen.releases, **given), stream=SeededStream(0))
    for name in inverting.needs:
        less = View(seen.releases, **{k: v for k, v in given.items() if k != name})
        why = inverting.cannot(less)
        assert why is not None and why.code == "attack-needs" and why.figures["fields"] == name
        with pytest.raises(ArgumentError, match=name):
            brief(less, stream=SeededStream(0))


def test_where_the_client_half_hides_nothing_it_succeeds(inverting: Attack) -> None:
    seen = split_view(n=MEMBERS)
    truth = seen.releases[0].payload.take(torch.arange(MEMBERS)).x.view(-1, 1, 8, 8)
    nothing = smooth(200, 2, (1, 8, 8)).take(torch.arange(200)).x.mean(0).expand_as(truth)
    found = inverting(seen, stream=SeededStream(0)).images
    assert found is not None and float(mse(truth, found).mean()) < 0.1 * float(mse(truth, nothing).mean())


def test_an_inversion_refuses_other_views_and_says_why(inverting: Attack) -> None:
    seen = split_view()
    bad = {
        "attack-needs-representations": dataclasses.replace(view(Identity()), client=seen.client),
        "attack-needs-its-client": dataclasses.replace(seen, client=squeezing()),
    }
    if inverting.trains:
        vectors = client(nn.Sequential(nn.Flatten()), (64,))
        bad["too-few-public-images"] = dataclasses.replace(seen, public=smooth(5, 2, (1, 8, 8)))
        bad["attack-needs-public-shape"] = dataclasses.replace(seen, public=smooth(200, 2))
        bad["attack-needs-images"] = dataclasses.replace(seen, client=vectors)
    for code, wrong in bad.items():
        why = inverting.cannot(wrong)
        assert why is not None and why.code == code and code in WORDS and str(why)
        with pytest.raises(CannotAttackError):
            inverting(wrong, stream=SeededStream(0))
