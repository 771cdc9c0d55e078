"""The whole job of attacking a challenge: what an attacker has besides is opened, one attack runs, and its guess is
written. The owner of the challenge may give some stages of the attack the truth, to see where a defence bites."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save
from torch import Tensor

from mixveil.attacks.catalogue import ATTACKS
from mixveil.attacks.shared.base import CannotAttackError
from mixveil.attacks.shared.stages import STAGES, Stage
from mixveil.attacks.shared.training import TrainingCache, with_cache
from mixveil.audit import oracle
from mixveil.audit.challenge import CARD, Challenge, ChallengeCard, open_challenge, read_text
from mixveil.audit.challenge_scoring import ChallengeGuess, check_images, check_sources
from mixveil.audit.challenge_truth import read_truth
from mixveil.core import checks, files
from mixveil.core.errors import ArgumentError, DataError
from mixveil.core.randomness import SeededStream, Stream
from mixveil.core.types import Attack, AttackKind, Guess, Progress, View
from mixveil.core.wording.notes import Note, note
from mixveil.data.covers import KEYPOINTS, PATCHES, Patches
from mixveil.data.covers import patches as cut_patches
from mixveil.data.images import Images
from mixveil.data.opening import DataOptions, DataSpec
from mixveil.encoders.calibration import check_same_kind
from mixveil.features.cache import cache_folder

_SAY_IMAGES: tuple[AttackKind, ...] = ("prior", "reconstruction", "covers")


@dataclass(frozen=True)
class AttackedChallenge:
    """A guess at a challenge that an attack made.

    Attributes:
        out: Its file, which `score_challenge` takes.
        attack: The name of the attack.
        guess: What the file holds.
        given: The stages of the attack that were given the truth; () where none was.
        seed: Of the patches that the attacker cuts, and of an attack's own draws, if it has some.
        notes: What the guess says, what was left out of it, and whether the truth was given.
    """

    out: Path
    card: ChallengeCard = field(repr=False)
    attack: str
    guess: ChallengeGuess = field(repr=False)
    given: tuple[Stage, ...]
    seed: int
    notes: tuple[Note, ...]

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        sizes = {name: None if held is None else list(held.shape) for name, held in self.guess._asdict().items()}
        return {
            "guess": str(self.out),
            "challenge": self.card.id,
            "attack": self.attack,
            "given": list(self.given),
            "seed": self.seed,
            **sizes,
            "notes": [item.plain() for item in self.notes],
        }


def attack_challenge(
    challenge: Path | str,
    out: Path | str,
    *,
    attack: str = "carlini",
    public: DataSpec | None = None,
    covers: DataSpec | None = None,
    patches: int | None = None,
    truth: Path | str | None = None,
    given: Sequence[str] = (),
    seed: int = 0,
    steps: int | None = None,
    options: DataOptions | None = None,
    cache: Path | str | None = None,
    watch: Callable[[str], None] = lambda _: None,
) -> AttackedChallenge:
    """Run one attack on a challenge, and write its guess, which `score_challenge` takes.

    Args:
        challenge: The folder that was published.
        out: The safetensors file to write. It must not exist.
        attack: The name of one of `mixveil.attacks()` that guesses images, or who is in which row.
        public: Images like the private ones that the attacker has.
        covers: The public images that rows were mixed with, where they were. The attacker does not know which patches
            were cut from them, and cuts others at random, by the same rules.
        patches: How many; else as many as the challenge says it has, but 10,000 at most.
        truth, given: For the owner: the folder of the truth, and the stages of the attack that are given it, such as
            `sources`, `weights` and `signs`, instead of finding it. The guess is then none that an attacker could make.
        seed: Of the patches that the attacker cuts, and of an attack's own draws, if it has some.
        steps: An attack that trains networks takes at most so many steps for each.
        cache: Where such an attack keeps networks and stages, so that it goes on where it was stopped.
        watch: Is told what is being done.
    """
    target, options = Path(out), options or DataOptions()
    files.check_new(target)
    files.check_parent(target)
    files.check_writable(target)
    if steps is not None:
        checks.at_least("steps", steps, 1)
    kept = TrainingCache(cache_folder() if cache is None else Path(cache), steps, watch=watch)
    runner, stream = with_cache(_named(attack), kept), SeededStream(seed)
    opened = open_challenge(challenge)
    stages = _stages(truth, given)
    if truth is not None:
        runner = _told(runner, opened, Path(truth), stages)
    view = _view(opened, public, covers, patches, options, stream.fork("patches"), watch)
    watch(attack)
    guess, notes = _scorable(runner, _guessed(runner, view, stream.fork(attack)), opened.card)
    notes += [note("guess-given-truth", stages=list(stages))] if stages else []
    held = {name: values.contiguous() for name, values in guess._asdict().items() if values is not None}
    files.check_new(target)
    files.write_whole(target, save(held), 0o600 if stages else 0o644)
    return AttackedChallenge(target, opened.card, attack, guess, stages, seed, tuple(notes))


def _named(name: str) -> Attack:
    kind = ATTACKS.named(name)
    if kind.kind not in _SAY_IMAGES or kind.payload != "records":
        raise ArgumentError(
            f"attack = {name}: it guesses neither images nor who is in which row (its kind is {kind.kind}), and a "
            f"challenge is scored by these"
        )
    return kind()


def _stages(truth: Path | str | None, given: Sequence[str]) -> tuple[Stage, ...]:
    """The stages that are given the truth, in their order."""
    if unknown := [stage for stage in given if stage not in STAGES]:
        raise ArgumentError(f"given must be of {', '.join(STAGES)}, got {unknown[0]!r:.60}")
    if truth is None and given:
        raise ArgumentError(f"given = {', '.join(given)}: only the owner has the truth; name its folder (truth)")
    if truth is not None and not given:
        raise ArgumentError(f"truth = {truth}: name the stages of the attack that are given it (given)")
    return tuple(stage for stage in STAGES if stage in given)


def _told(attack: Attack, opened: Challenge, truth: Path, stages: Sequence[Stage]) -> Attack:
    """The same attack, of which these stages take the truth."""
    configured: Any = attack
    if "oracle" not in {setting.name for setting in fields(configured)}:
        raise ArgumentError(f"given = {', '.join(stages)}: the attack {attack.name} has no stage that takes the truth")
    answers = read_truth(truth, opened.card, read_text(opened.folder, CARD, "a challenge"))
    return cast(Attack, replace(configured, oracle=oracle.of_challenge(opened, answers, stages)))


def _view(
    opened: Challenge,
    public: DataSpec | None,
    covers: DataSpec | None,
    patches: int | None,
    options: DataOptions,
    stream: Stream,
    watch: Callable[[str], None],
) -> View:
    """What the attacker sees and has."""
    card, view, known = opened.card, opened.view, options.for_others
    like = Images("challenge", _no_rows, torch.empty(0).long(), card.classes, card.settings.shape, card.low, card.high)
    if public is not None:
        similar = known.open(public)
        check_same_kind(like, similar)
        view = replace(view, public=similar)
    if covers is None:
        if patches is not None:
            raise ArgumentError(f"patches = {patches}: they are cut from the public images that were mixed in (covers)")
        return view
    if not card.settings.encoder.covers:
        raise ArgumentError("covers: the rows of this challenge were made without public images")
    return replace(view, covers=_cut(known.open(covers), like, card, patches, stream, watch))


def _cut(
    images: Images, like: Images, card: ChallengeCard, count: int | None, stream: Stream, watch: Callable[[str], None]
) -> Patches:
    """Patches of the attacker's own, by the rules of the challenge."""
    count = min(card.settings.encoder.covers, PATCHES) if count is None else count
    stated = None if card.public is None else card.public.keypoints

    @contextmanager
    def watched(what: str, total: int) -> Iterator[Progress]:
        done = 0

        def step(more: int) -> None:
            nonlocal done
            done += more
            watch(f"{what}, {done:,} of {total:,}")

        yield step

    keypoints = KEYPOINTS if stated is None else stated
    return cut_patches(images, like, count=count, keypoints=keypoints, stream=stream, watch=watched)


def _guessed(attack: Attack, view: View, stream: Stream) -> Guess:
    why = attack.cannot(view)
    try:
        if why is None:
            return attack(view, stream=stream)
    except CannotAttackError as error:
        why = error.why
    raise ArgumentError(f"attack = {attack.name}: it cannot be run on this challenge: {why}")


def _scorable(attack: Attack, guess: Guess, card: ChallengeCard) -> tuple[ChallengeGuess, list[Note]]:
    """What of a guess a challenge is scored by, and what to say of it. What does not fit is left out; a guess of which
    nothing is left is refused."""
    told, name = [], attack.name
    images, sources = _fitting(check_images, guess.images, card), _fitting(check_sources, guess.sources, card)
    if images is not None:
        told.append(note("guess-of-images", attack=name, images=len(images)))
    elif guess.images is not None:
        given, due = ("×".join(map(str, shape)) for shape in (guess.images.shape, (card.images, *card.settings.shape)))
        told.append(note("guess-images-left-out", attack=name, given=given, due=due))
    if sources is not None:
        told.append(note("guess-of-sources", attack=name, per_row=sources.shape[1], rows=len(sources)))
    elif guess.sources is not None:
        last = card.images - 1
        told.append(
            note("guess-sources-left-out", attack=name, rows=card.rows, per_row=card.private_per_row, last=last)
        )
    if images is None and sources is None:
        why = " ".join(map(str, told)) or "it says neither images nor who is in which row."
        raise ArgumentError(f"attack = {name}: nothing of its guess can be scored. {why}")
    return ChallengeGuess(None if images is None else images.float(), sources), told


def _fitting(
    check: Callable[[str, Tensor | None, ChallengeCard], Tensor | None], values: Tensor | None, card: ChallengeCard
) -> Tensor | None:
    """What an attack says, if it can be scored."""
    try:
        return check("the attack", values, card)
    except DataError:
        return None


def _no_rows(index: Tensor) -> Tensor:
    raise ArgumentError("the private images of a challenge are not known")
