"""What attacks get out of what each way sends: pictures, links, members. What was not measured has a code."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mixveil.attacks.shared.training import TrainingCache
from mixveil.audit import auditing, representations, updates
from mixveil.audit.found import Audit
from mixveil.audit.metrics import detection
from mixveil.audit.own_data import known_half, public_halves
from mixveil.audit.thumbnails import SmallImages
from mixveil.core.device_random import DeviceStream
from mixveil.core.first_weights import started
from mixveil.core.local_training import AugMix, LocalTraining
from mixveil.core.types import Encoder, Mu, Release, View
from mixveil.data.images import Images
from mixveil.data.similarity import ssim
from mixveil.encoders import calibration
from mixveil.encoders.singular import Singular
from mixveil.features.projection import Projected, Projection
from mixveil.features.projection_fit import directions_for_sums
from mixveil.features.stacked.party import NO_DEFENCE, Defence
from mixveil.federated.algorithms import Rounds
from mixveil.federated.dpsgd import Private, planned
from mixveil.federated.simulation.round_methods import FEDPROX
from mixveil.learn.class_means import class_counts, directions, totals
from mixveil.learn.local_update import NETWORKS, LocalUpdate
from mixveil.learn.split import SplitTrained
from mixveil.releases import representations as represented
from mixveil.releases.kinds.sums import sums_of
from mixveil.releases.records import traced_in_memory
from mixveil.releases.sums import class_sums
from mixveil.releases.updates import in_memory
from mixveil.theory import gdp
from reproduce.across.world import World, pixels

Figures = dict[str, Any]
NOT_MEASURED, BROKEN, NO_ROWS = "not-measured", "broken", "no-rows"
ON_ROWS = ("prior", "average", "inner-product-squares", "linear", "linkage", "lmmse", "lmmse-row", "lowpass")
MASKED = ("average-known", "average-similar", "inner-product-squares", "linkage", "membership", "prior")
BATCH, RATE = 128, 0.1  # of a party's local epoch, where updates are attacked
DIGEST = "0" * 64  # of a projection without a file


def of_records(world: World, encoder: Encoder) -> Figures:
    """Of one release of all rows of the first party, by attackers with public images."""
    own, stream = world.parts[0], world.stream("released")
    release, trace = traced_in_memory(own, encoder, (), party="0", stream=stream)
    known, others = public_halves(world.public, own)
    names = MASKED if encoder.masked else (*ON_ROWS, "membership")
    view = View((release,), (trace,), known)
    cache = TrainingCache(world.work, world.scale.mask_steps)
    found = auditing.audit(view, own, others=others, names=names, stream=world.stream("attacks"), cache=cache)
    return {**reconstruction(found, "ssim"), **linkage(found), **membership(found), "attacked rows": len(own)}


def of_certified(world: World) -> Figures:
    """Of the records of two steps: half of μ² went to the class sums that found the directions."""
    mu, own = world.scale.mu / 2**0.5, world.parts[0]
    wide = world.agreed.projection.first(_directions(world, mu))
    sums = [_sums(world, part, wide, mu, i) for i, part in enumerate(world.parts)]
    narrow = directions(sums, wide, DIGEST)
    rows = Projected(world.features(own), narrow)
    facts = calibration.settled_facts(rows, certified=True, public=None, clip=narrow.clip)
    encoder, guarantees = Singular().calibrate(Mu(mu), facts)
    release, trace = traced_in_memory(rows, encoder, guarantees, party="0", stream=world.stream("released"))
    known, others = public_halves(Projected(world.features(world.public), narrow), rows)
    view = View((release,), (trace,), known, pictures=SmallImages(known_half(world.public)))
    found = auditing.audit(
        view,
        rows,
        others=others,
        names=("decoder", "linkage", "membership", "prior"),
        stream=world.stream("attacks"),
        pictures=own,
        cache=_cache(world),
    )
    told = {**reconstruction(found, "picture-ssim"), **linkage(found), **membership(found)}
    return {**told, "ceiling": gdp.member_tpr(world.scale.mu, 0.01), "attacked rows": len(own)}


def _directions(world: World, mu: float) -> int:
    scale = world.scale
    return directions_for_sums(
        world.agreed.projection, parties=scale.parties, rows=scale.rows, classes=world.classes, mu=mu
    )


def _sums(world: World, part: Images, projection: Projection, mu: float, number: int) -> Release:
    rows = Projected(world.features(part), projection)
    return class_sums(rows, DIGEST, mu, party=str(number), stream=world.stream(f"sums {number}"))


def of_sums(world: World) -> Figures:
    """Of the first party's class sums at μ. No attack of the package is on sums, so two are here: the mean image of a
    record's class, as the sum shows it, taken for the record; and how much likelier the sum is with a record in it.
    Noisy counts are taken for the right ones."""
    mu, own = world.scale.mu, world.parts[0]
    projection = world.agreed.projection.first(_directions(world, mu))
    release = _sums(world, own, projection, mu, 0)
    settings = sums_of(release)
    total, count = release.payload[:, :-1], class_counts(totals([release]), settings.clip)[0][:, None].clamp(min=1)
    known, strange = (world.public.part(torch.arange(first, len(world.public), 2)) for first in (0, 1))
    between = projection.separation.double() / 2
    shown = between / (between + (count + settings.sigma**2) / count**2) * total / count
    images = projection.mean.double() + shown @ torch.linalg.pinv(projection.matrix.double())
    means = _means(projection(pixels(known).flatten(1)).double(), known.labels, world.classes)
    scores = []
    for data, index in zip((own, strange), _alike(own.labels, strange.labels, world.classes), strict=True):
        x, labels = projection(data.take(index).x.flatten(1)).double(), data.labels[index]
        scores.append(_likelier(total[labels], count[labels], means[labels], x, settings.sigma))
    return {
        **_class_pictures(own, known, images, world.classes),
        "linkage why": NO_ROWS,
        "membership": detection.tpr_at_fpr(scores[0], scores[1], 0.01),
        "membership attack": "sum-ratio",
        "membership auc": detection.auc(scores[0], scores[1]),
        "members asked": len(scores[0]),
        "ceiling": gdp.member_tpr(mu, 0.01),
        "attacked rows": len(own),
    }


def _class_pictures(own: Images, known: Images, images: Tensor, classes: int) -> Figures:
    """SSIM of rows with what their class's sum shows, (classes, values) images; with the mean of public images of their
    class, which needs no sum; and with the mean of all public images."""
    truth, public = pixels(own).double(), pixels(known).double()
    by_class = _means(public, known.labels, classes)[own.labels]
    guesses = (images.clamp(0, 1)[own.labels].view_as(truth), by_class, public.mean(0).expand_as(truth))
    shown, label, nothing = (float(ssim(truth, guess).mean()) for guess in guesses)
    return {"ssim": shown, "ssim attack": "class-mean", "ssim nothing": nothing, "ssim label": label}


def _alike(members: Tensor, others: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Rows of both, as many of each class: labels must not tell members from others."""
    pairs = [[(labels == c).nonzero()[:, 0] for labels in (members, others)] for c in range(classes)]
    least = [min(map(len, pair)) for pair in pairs]
    one, other = (torch.cat([pair[side][:n] for pair, n in zip(pairs, least, strict=True)]) for side in (0, 1))
    return one, other


def _means(x: Tensor, labels: Tensor, classes: int) -> Tensor:
    """(classes, …) means of public rows (n, …)."""
    return torch.stack([x[labels == c].mean(0) if bool((labels == c).any()) else x.mean(0) for c in range(classes)])


def _likelier(total: Tensor, count: Tensor, mean: Tensor, x: Tensor, sigma: float) -> Tensor:
    """(m,) the log-likelihood ratio of sums (m, k) of `count` rows about `mean`, with within-class variance 1, with the
    record x in them and without."""
    left = total - count * mean
    one, other = count - 1 + sigma**2, count + sigma**2
    with_it = -(left - (x - mean)).square() / (2 * one) - one.log() / 2
    return (with_it + left.square() / (2 * other) + other.log() / 2).sum(1)


def of_representations(world: World, halves: SplitTrained) -> Figures:
    """Of the first test images, by attackers who have the client half and public images."""
    own = world.test.part(torch.arange(world.scale.images))
    release = represented.in_memory(own, halves.client)
    found = representations.audit(
        [release],
        own,
        client=halves.client,
        public=world.public,
        names=["inversion", "inversion-adaptive"],
        stream=world.stream("attacks"),
        cache=_cache(world),
    )
    return {**reconstruction(found, "ssim"), **_unmeasured(), "attacked rows": len(own)}


def of_updates(world: World, method: str) -> Figures:
    """Of updates of a few rows each, and of one of all rows of the first party by a linear layer. Weights are the first
    ones: they show most. Attackers know the labels."""
    scale = world.scale
    names = ["invgrad", "invgrad-adaptive"] if scale.head == "lenet5" else ["gradient-rows"]
    few = [part.part(torch.arange(scale.few)) for part in world.parts[: scale.updates]]
    found = [_attacked(world, own, method, scale.head, names, f"update {i}") for i, own in enumerate(few)]
    whole = reconstruction(_attacked(world, world.parts[0], method, "linear", ["gradient-rows"], "all rows"), "ssim")
    best = averaged(found)
    everything = {f"{name} of all rows": value for name, value in whole.items()}
    return {**best, **everything, **_unmeasured(), "attacked rows": scale.few, "attacked updates": scale.updates}


def _attacked(world: World, own: Images, method: str, network: str, names: list[str], draws: str) -> Audit:
    """The audit of an update of one local epoch: of few rows, one step."""
    stream, rows = world.stream(draws), len(own)
    made = NETWORKS[network](own.shape, world.classes)
    net = started(made, DeviceStream(world.stream("first weights")), torch.device("cpu"))
    before = {name: value.detach().contiguous() for name, value in net.named_parameters()}
    training = LocalTraining(rows, min(rows, BATCH), (RATE,) * -(-rows // BATCH))
    if method.startswith("fedprox"):
        training = replace(training, proximal=FEDPROX)
    if method.endswith("augmix"):
        training = replace(training, augmix=AugMix(world.scale.severity))
    job = LocalUpdate(net, before, training, _defence(world, method, rows))
    after = job.after(own, stream.fork("draws"))
    release = in_memory(own, before, after, method=job.method, training=training, net=net)
    wanted = [name for name in names if name != "invgrad-adaptive" or training.augmix is not None]
    return updates.audit([release], own, names=wanted, stream=stream.fork("attack"))


def _defence(world: World, method: str, rows: int) -> Defence:
    """DP-SGD's noise for a party of so many rows, at the ε of μ over all rounds."""
    if method != "dp-sgd":
        return NO_DEFENCE
    private = Private(gdp.epsilon(world.scale.mu), batch=BATCH)
    return Defence(private.clip, planned(rows, private, Rounds(world.scale.rounds)).noise)


def averaged(found: Sequence[Audit]) -> Figures:
    """The attack that gets most in the mean over updates, of those that passed their self test on all of them."""
    each = [{f.attack: f for f in audit.figures if f.metric == "ssim"} for audit in found]
    everywhere = set.intersection(*(set(figures) for figures in each))
    failed = sorted({run.attack for audit in found for run in audit.attacks if run.status == "broken"})
    told: Figures = {"broken": ", ".join(failed)} if failed else {}
    if not everywhere:
        return {"ssim why": BROKEN, **told}
    mean = {name: statistics.fmean(figures[name].mean for figures in each) for name in everywhere}
    best = max(mean, key=lambda name: mean[name])
    nothing = statistics.fmean(figures[best].know_nothing or 0.0 for figures in each)
    more = {f"ssim by {name}": value for name, value in sorted(mean.items())} if len(mean) > 1 else {}
    return {"ssim": mean[best], "ssim attack": best, "ssim nothing": nothing, **more, **told}


def reconstruction(found: Audit, metric: str) -> Figures:
    """The best mean SSIM of an attack that passed its self test; attackers who have records already do not count."""
    guesses = [f for f in found.figures if f.metric == metric and f.kind != "prior" and f.known is None]
    if not guesses:
        broken = any(run.status == "broken" and run.kind == "reconstruction" for run in found.attacks)
        return {"ssim why": BROKEN if broken else NOT_MEASURED}
    best = max(guesses, key=lambda figure: figure.mean)
    return {"ssim": best.mean, "ssim attack": best.attack, "ssim nothing": best.know_nothing}


def linkage(found: Audit) -> Figures:
    best = found.most("row-identified")
    grouped = found.most("nearest-shares-source")
    more = {} if grouped is None else {"grouped": grouped.mean, "grouped nothing": grouped.know_nothing}
    if best is None:
        return {"linkage why": _why(found, "linkage"), **more}
    return {"linkage": best.mean, "linkage nothing": best.know_nothing, **more}


def membership(found: Audit) -> Figures:
    figures = {f.metric: f for f in found.figures if f.attack == "membership"}
    if "tpr-at-1-fpr" not in figures:
        return {"membership why": _why(found, "membership")}
    told = {"membership": figures["tpr-at-1-fpr"].mean, "membership attack": "membership"}
    return {**told, "membership auc": figures["auc"].mean}


def _why(found: Audit, attack: str) -> str:
    broken = any(run.attack == attack and run.status == "broken" for run in found.attacks)
    return BROKEN if broken else NOT_MEASURED


def _unmeasured() -> Figures:
    return {"linkage why": NOT_MEASURED, "membership why": NOT_MEASURED}


def _cache(world: World) -> TrainingCache:
    return TrainingCache(world.work, world.scale.steps)
