"""A party's rows in the clear, for rounds: they stay in this process, and weights that were trained on them leave."""

from __future__ import annotations

from typing import NamedTuple

import torch
from safetensors.torch import load, save

from mixveil.core import strict_json
from mixveil.features.extractor import Extractor
from mixveil.federated.algorithms import local, new_head
from mixveil.federated.jobs.making import Making, modest
from mixveil.federated.jobs.messages import Message
from mixveil.federated.jobs.party_config import computed
from mixveil.learn.batches import BatchSource, RemixedEveryBatch
from mixveil.learn.fit import TrainingRecipe


class RowsInClear(NamedTuple):
    """What the rounds of a job are trained on.

    Attributes:
        job: The job's id.
        extractor: Which features they are.
        source: The rows.
        classes: The classes' names.
        weights: The digest of the networks before them; None: pixels.
    """

    job: str
    extractor: Extractor
    source: BatchSource
    classes: tuple[str, ...]
    weights: str | None


def entered_rows(making: Making, wanted: Extractor) -> RowsInClear:
    """Enter the rounds in the ledger, as something that promises nothing, and load the rows."""
    config, extractor = making.config, modest(wanted)
    images = config.images()
    loaded = config.networks(images, extractor)  # before anything is entered: it may refuse
    making.enter_updates(images)
    features = computed(images, loaded)
    x = features.take(torch.arange(len(images))).x
    source = RemixedEveryBatch(x, features.labels, len(images.classes), None)
    weights = loaded.digest if extractor.names else None
    return RowsInClear(making.kept.job.id, extractor, source, images.classes, weights)


def trained_round(rows: RowsInClear, message: Message) -> tuple[int, int, dict[str, bytes]]:
    """The server's weights, trained some epochs further on the party's rows: the last of these epochs, of how many, and
    the files to send."""
    about, source = message.about, rows.source
    head = strict_json.text("head", about.get("head"), "linear|mlp")
    first, last = strict_json.items("epochs", about.get("epochs"))
    recipe = TrainingRecipe(**strict_json.mapping("recipe", about.get("recipe")))
    proximal = None if about.get("proximal") is None else strict_json.number("proximal", about.get("proximal"))
    number = strict_json.of("number", about.get("number"), int)
    model = new_head("mlp" if head == "mlp" else "linear", source.inputs, len(rows.classes), recipe)
    sent = load(message.files["weights"])
    weights = local(model, sent, source, recipe, range(first, last), party=number, proximal=proximal)
    return last, recipe.epochs, {"weights": save(dict(weights))}
