"""InstaHide: Tables 1, 2 and 4, on the digits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from mixveil.attacks.records.inner_product import InnerProduct
from mixveil.attacks.records.inner_product_average import InnerProductAverage
from mixveil.attacks.records.kolmogorov_smirnov import PLACES, p_values, paper_tables, statistics
from mixveil.attacks.records.public_search import PublicSearch
from mixveil.audit.metrics import sources
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Encoder, Release, View
from mixveil.data.covers import Covered
from mixveil.data.images import Images
from mixveil.data.row_views import InMemoryRows
from mixveil.data.similarity import mse
from mixveil.encoders.instahide import C1, C2, CalibratedInstaHide
from mixveil.encoders.mixup import Mixup
from mixveil.learn.image_training import ImageTraining
from mixveil.releases.envelope import Envelope
from mixveil.releases.kinds.records import Records, RecordSettings
from reproduce.enlarged import digits
from reproduce.instahide.runs import NORMAL, Run, Sets, source_of, tested
from reproduce.instahide.searches import STATISTICS
from reproduce.singular.shared import Row, given

ROWS, COVERS, EPOCHS, WIDTH = 200, 100, 10, 8
RUNS = (("vanilla", None), ("inside", 4), ("cross", 4), ("cross", 6))


def _view(encoder: Encoder, data: Images, covers: InMemoryRows | None, releases: int, seed: int) -> View:
    rows = Covered(data, covers) if covers is not None else data
    made, traces = [], []
    for number in range(releases):
        stream = SeededStream(seed).fork(f"release {number}")
        trace = encoder.plan(len(data), stream=stream.fork("plan"))
        batch = encoder.encode(rows, torch.arange(len(data)), trace, stream=stream.fork("noise"))
        envelope = Envelope(RecordSettings(encoder, data.shape), "quick", data.classes, reproducible=True)
        made.append(Release(envelope, Records((batch,), encoder.step)))
        traces.append(trace)
    return View(tuple(made), tuple(traces), covers=covers)


def mixup_alone(seed: int, out: Path) -> Iterator[Row]:
    """Table 1: rows that share an image, averages of several rows, and public images that were mixed in."""
    data, others, stream = digits("train", 8, rows=ROWS), digits("test", 8, rows=COVERS), SeededStream(seed)
    for k in (2, 4):
        view = _view(Mixup(k), data, None, 1, seed)
        found = sources.shared(given(InnerProduct()(view, stream=stream).alike), view.traces or ())
        if found is not None:
            figures = {"nearest row shares an image": found.nearest / found.rows, "chance": found.chance}
            yield {"settings": {"attack": "inner-product", "k": k, "rows": ROWS, "seed": seed}, "figures": figures}
        view, truth = _view(Mixup(k), data, None, 4, seed), data.take(torch.arange(ROWS)).x.double()
        images = given(InnerProductAverage()(view, stream=stream).images).clamp(0, 1)
        left = mse(truth, images).mean() / mse(truth, truth.mean(0).expand_as(truth)).mean()
        settings = {"attack": "inner-product-average", "k": k, "rows": ROWS, "releases": 4, "seed": seed}
        yield {"settings": settings, "figures": {"error left of the mean image's": float(left)}}
    covers = InMemoryRows(others.take(torch.arange(COVERS)))
    view = _view(Mixup(4, COVERS), data, covers, 1, seed)
    held = (view.traces or ())[0].partner[:, 1:] - ROWS
    ranked = sources.covers(given(PublicSearch()(view, stream=stream).covers), held)
    figures = {"median rank": ranked.rank, "by chance": 0.5}
    yield {
        "settings": {"attack": "public-search", "k": 4, "rows": ROWS, "images": COVERS, "seed": seed},
        "figures": figures,
    }


def learnt(seed: int, out: Path) -> Iterator[Row]:
    """Table 2."""
    parts = [digits(split, 8) for split in ("train", "test")]
    octets = [part.take(torch.arange(len(part))).x.mul(255).round().byte() for part in parts]
    known = Sets(octets[0], parts[0].labels, octets[1], parts[1].labels, 10, NORMAL["mnist"])
    public = known.normal(octets[1][:200])
    for mode, k in RUNS:
        run = Run("mnist", mode, k, epochs=EPOCHS, seed=seed)
        covers = public if mode == "cross" else None
        training = ImageTraining(
            source_of(run, known, covers, augment=False),
            run.recipe(WIDTH, 64),
            measure=tested(run, known, covers, EPOCHS, EPOCHS),
        )
        for _ in training.steps():
            pass
        last = training.curve[-1]
        settings = {"data": "digits", "mode": mode, "k": k, "epochs": EPOCHS, "width": WIDTH, "seed": seed}
        yield {"settings": settings, "figures": {name: last[name] for name in ("plain %", "encoded %") if name in last}}


def distributions(seed: int, out: Path) -> Iterator[Row]:
    """Table 4."""
    data, images, encodings = digits("train", 8, rows=ROWS), 10, 100
    values = torch.Size(data.shape).numel()
    encoder = CalibratedInstaHide(k=4, c1=C1, c2=C2, covers=0, pad=0, values=values, centre=0.5)
    places, told = SeededStream(seed).fork("places").permutation(values)[:PLACES], []
    for number in range(encodings):
        stream = SeededStream(seed).fork(f"encoding {number}")
        trace = encoder.plan(len(data), stream=stream.fork("plan"))
        x = encoder.encode(data, torch.arange(images), trace, stream=stream.fork("noise")).x.double()
        told.append(statistics(x if encoder.step is None else x * encoder.step, places))
    figured = torch.stack(told, dim=1)
    ours, whole = paper_tables(figured, stream=SeededStream(seed).fork("drawn")), p_values(figured)
    for image in range(images):
        for place, name in enumerate(STATISTICS):
            figures = {"p all": float(ours.p_all[image, place]), "p other": float(ours.p_other[image, place])}
            figures["p of all encodings"] = float(whole[image, place])
            yield {"settings": {"image": image + 1, "statistic": name, "seed": seed}, "figures": figures}


TABLES: dict[str, Callable[[int, Path], Iterator[Row]]] = {"1": mixup_alone, "2": learnt, "4": distributions}
