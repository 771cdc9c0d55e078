"""MixCon: Tables 1 and 2 on the paper's made data, Tables 3 to 5 on the digits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch

from mixveil.attacks.representations.inversion import Inversion
from mixveil.attacks.representations.inversion_gan import InversionGan
from mixveil.attacks.shared.training import TrainingCache
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Attack, View
from mixveil.data.similarity import ssim
from mixveil.learn.split import SplitJob, in_turns, measured
from mixveil.learn.split_training import Penalty, SplitRecipe
from mixveil.releases.representations import in_memory
from reproduce.enlarged import digits
from reproduce.mixcon import synthetic
from reproduce.singular.shared import Row, given

READING, EPOCHS, SHOWN, STEPS = "vanilla trains, norm 1", 15, 8, 100


def made_data(seed: int, out: Path, *, table: str) -> Iterator[Row]:
    """Tables 1 and 2: one reading, one seed."""
    for row, _, _ in synthetic.run(READING, seed):
        if row["settings"]["table"] == table:
            yield row


def images(seed: int, out: Path, *, penalties: Sequence[Penalty], attack: Callable[[], Attack]) -> Iterator[Row]:
    """Tables 3 to 5: LeNet-5 without a penalty and with one, and what the paper's attack makes of a few images."""
    train, test = digits("train", 28), digits("test", 28)
    job, shown = SplitJob.of(train, "lenet5", None), test.part(torch.arange(SHOWN))
    recipes = [
        SplitRecipe(epochs=EPOCHS, penalty=penalty, weight=0.0 if penalty == "none" else 1.0, beta=1e-4, seed=seed)
        for penalty in penalties
    ]
    for number, halves in in_turns(job, [(recipe, None) for recipe in recipes], together=1):
        view = View((in_memory(shown, halves.client),), public=train, client=halves.client)
        made = attack()
        guess = given(made(view, stream=SeededStream(seed).fork("attack")).images).clamp(0, 1)
        alike = ssim(shown.take(torch.arange(SHOWN)).x.double(), guess.double())
        figures = {"accuracy %": 100 * measured(halves, test).accuracy}
        figures |= {"SSIM": float(alike.mean()), "SSIM worst": float(alike.max())}
        settings = {"network": "lenet5", "method": penalties[number], "attack": made.name, "epochs": EPOCHS}
        yield {"settings": {**settings, "images": SHOWN, "seed": seed}, "figures": figures}


def _decoder() -> Attack:
    return InversionGan(base=8, cache=TrainingCache(max_steps=STEPS))


TABLES: dict[str, Callable[[int, Path], Iterator[Row]]] = {
    "1": partial(made_data, table="1"),
    "2": partial(made_data, table="2"),
    "3": partial(images, penalties=("none", "mixcon"), attack=Inversion),
    "4": partial(images, penalties=("unicon", "mixcon"), attack=Inversion),
    "5": partial(images, penalties=("none", "mixcon"), attack=_decoder),
}
