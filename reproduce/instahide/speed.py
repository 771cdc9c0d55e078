"""Seconds of an epoch: with the encoding and without, in turns; and by ways to run it."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from mixveil.core.randomness import SeededStream
from mixveil.encoders.batch_transform import BatchTransform
from mixveil.encoders.instahide import InstaHide
from mixveil.learn.epochs import EncodedEveryEpoch
from mixveil.learn.image_training import ImageRecipe, ImageTraining
from reproduce.instahide.runs import Sets

Say = Callable[[str], None]
Row = dict[str, Any]
_LONG = 1000  # epochs: more than are run


def overhead(sets: Sets, chosen: argparse.Namespace, say: Say) -> Iterator[Row]:
    """An epoch of ResNet-18 in the clear and with InstaHide, k = 4, in turns: all images encoded at the start of an
    epoch, and batch by batch, as a loop of one's own would."""
    graph = not chosen.no_graph
    clear, encoded = (
        _epochs(_training(sets, chosen, encode, graph=graph, compiled=chosen.compiled)) for encode in (False, True)
    )
    yield _compared("the whole set, once an epoch", clear, encoded, sets, chosen, say)
    plain, mixed = (_batches(sets, chosen, encode) for encode in (False, True))
    yield _compared("batch by batch, steps not recorded", plain, mixed, sets, chosen, say)


def trial(sets: Sets, chosen: argparse.Namespace, say: Say) -> Iterator[Row]:
    """Seconds of an epoch, a training: steps as they are, recorded, compiled; one, two and three at a time."""
    ways: list[tuple[bool, bool, int]] = [(False, False, 1)]
    if sets.x.is_cuda and not chosen.no_graph:
        ways = [(False, False, 1), (True, False, 1), (True, False, 2), (True, False, 3)]
        ways += [(True, True, 1), (True, True, 2)] if chosen.compiled else []
    for graph, compiled, side in ways:
        begun = time.perf_counter()
        trainings = [_training(sets, chosen, True, graph=graph, compiled=compiled) for _ in range(side)]
        steps = [training.steps() for training in trainings]
        for _ in range(10):
            for step in steps:
                next(step)
        _wait(sets.x)
        first = time.perf_counter()
        count = trainings[0].per_epoch
        for _ in range(count):
            for step in steps:
                next(step)
        _wait(sets.x)
        seconds = (time.perf_counter() - first) / side
        settings = {"what": "trial", "graph": graph, "compiled": compiled, "side by side": side}
        figures = {"seconds an epoch and training": seconds, "seconds before": first - begun}
        say(f"{settings} {figures}")
        yield {"settings": settings, "figures": figures}
        del trainings, steps


def _training(
    sets: Sets, chosen: argparse.Namespace, encode: bool, *, graph: bool, compiled: bool = False
) -> ImageTraining:
    transform = _transform(sets) if encode else None
    source = EncodedEveryEpoch(sets.x, sets.labels, sets.classes, sets.normal, transform)
    recipe = ImageRecipe(_LONG, batch=chosen.batch, width=chosen.width)
    return ImageTraining(source, recipe, graph=graph, compiled=compiled)


def _transform(sets: Sets) -> BatchTransform:
    return BatchTransform(InstaHide(k=4), classes=sets.classes, stream=SeededStream(0))


def _epochs(training: ImageTraining) -> Iterator[None]:
    steps = training.steps()
    while True:
        for _ in range(training.per_epoch):
            next(steps)
        yield


def _batches(sets: Sets, chosen: argparse.Namespace, encode: bool) -> Iterator[None]:
    """An epoch in a plain loop, batch by batch."""
    training = _training(sets, chosen, False, graph=False)
    transform = _transform(sets) if encode else None
    x, labels = sets.normal(sets.x), sets.labels
    while True:
        for index in torch.split(torch.arange(len(x), device=x.device), chosen.batch):
            if len(index) == chosen.batch:
                _plain_step(training, x[index], labels[index], transform)
        yield


def _plain_step(training: ImageTraining, x: Tensor, labels: Tensor, transform: BatchTransform | None) -> None:
    x, y = (x, one_hot(labels, training.source.classes).float()) if transform is None else transform(x, labels)
    with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
        scores = training.model(x.contiguous(memory_format=torch.channels_last))
    loss = cross_entropy(scores.float(), y)
    training.optimiser.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    training.optimiser.step()


def _compared(
    how: str, clear: Iterator[None], encoded: Iterator[None], sets: Sets, chosen: argparse.Namespace, say: Say
) -> Row:
    times: tuple[list[float], list[float]] = ([], [])
    for repeat in range(chosen.repeats + 1):
        for epochs, found in zip((clear, encoded), times, strict=True):
            begun = time.perf_counter()
            next(epochs)
            _wait(sets.x)
            if repeat:  # the first warms up
                found.append(time.perf_counter() - begun)
    ratios = [one / other for one, other in zip(times[1], times[0], strict=True)]
    settings = {"what": "overhead", "how": how, "rows": len(sets.x), "width": chosen.width, "batch": chosen.batch}
    figures = {
        "seconds in the clear": statistics.median(times[0]),
        "seconds with InstaHide": statistics.median(times[1]),
        "ratio": statistics.median(ratios),
        "least ratio": min(ratios),
        "largest ratio": max(ratios),
        "repeats": chosen.repeats,
    }
    say(f"{settings} {figures}")
    return {"settings": settings, "figures": figures}


def _wait(x: Tensor) -> None:
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
