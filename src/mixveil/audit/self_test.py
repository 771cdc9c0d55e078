"""Releases without a defence: an attack that fails on them is broken, and its failure elsewhere shows nothing."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import replace

import torch
from torch import Tensor, nn

from mixveil.attacks.shared.prior import spaced
from mixveil.audit.asking import guess_of
from mixveil.audit.bare_updates import fails_on_bare_updates
from mixveil.audit.groups import UnitView, groups
from mixveil.audit.metrics import detection, signs, sources
from mixveil.core.randomness import Stream
from mixveil.core.types import Attack, Batch, Dataset, Encoder, Guess, KnownRecords, Release, Rows, Trace, View
from mixveil.core.wording.notes import Note, note
from mixveil.data import similarity
from mixveil.data.covers import Covered
from mixveil.data.row_views import InMemoryRows, Subset
from mixveil.encoders.identity import Identity
from mixveil.encoders.instahide import CalibratedInstaHide
from mixveil.encoders.mixup import Mixup
from mixveil.features.split.half import Half
from mixveil.features.split.layers import BatchNorm
from mixveil.releases.representations import in_memory

_ROWS, _VALUES, _LEAST_ROWS = 300, 1 << 21, 60
_AT_ONCE = 1 << 22  # values of rows that are encoded at a time
_PAIR_ROWS = 16
_PAIRS = 0.5  # of the pairs that it must name
_COVERS, _FIRST = 500, 0.25
_PICTURES = 0.97  # what a brief training may leave of the error of pictures: features show them least
_EPSILON = 1e-5  # what a layer of batch normalisation adds to a variance
_SIGNS = 0.95  # what a brief training may leave of the wrong signs that one sign for all has


def bare_rows(rows: int, values: int, releases: int = 1) -> int:
    """On how many rows of so many values, in each of so many releases, an attack is tried: of large images fewer tell
    as much."""
    return min(rows, _ROWS, max(_LEAST_ROWS, _VALUES // max(1, values * releases)))


def bare_pair_rows() -> int:
    """The same for attacks on pairs."""
    return _PAIR_ROWS


def fails_on_bare_records(
    attack: Attack, view: View, records: Dataset, others: Tensor, stream: Stream, pictures: Tensor | None = None
) -> Note | None:
    """Why the attack is broken; None if it gets records that were released as they are, and something of records that
    were mixed in pairs without noise. Attacks that train are tried briefly, on records as they are. pictures: (n, …)
    the images that records are features of."""
    if attack.kind == "covers":
        return _fails_on_bare_covers(attack, view, records, stream)
    n = bare_rows(len(records), math.prod(records.shape), attack.least_releases)
    trials: list[tuple[Encoder, float, float]] = [(Identity(), 0.5, 0.5), (Mixup(), 0.95, 0.2)]
    if attack.trains:
        trials = [(Identity(), 0.9, 0.5)]
    index = spaced(len(records), n)  # they are often sorted by class, and labels of one class show no weight
    part, others = Subset(records, index), others[spaced(len(others), n)] if len(others) else others
    pictures = None if pictures is None else pictures[index]
    for encoder, error, found in trials:
        bare = [released(view.releases[0], encoder, part, stream) for _ in range(attack.least_releases)]
        why = _fails(attack, bare, view, part, others, (error, found), stream, pictures)
        if why is not None:
            return note("after-brief-training", why=why) if attack.trains else why
    return None


def _fails(
    attack: Attack,
    bare: list[tuple[Release, Trace]],
    view: View,
    records: Subset,
    others: Tensor,
    wanted: tuple[float, float],
    stream: Stream,
    pictures: Tensor | None,
) -> Note | None:
    """wanted: the largest share of knowing nothing's error that it may leave, the least share of rows that it finds."""
    releases, traces = zip(*bare, strict=True)
    n = len(releases[0].payload)
    pixels = records.take(torch.arange(n)).x
    half = torch.arange(0, n, 2)
    seen = View(releases, traces, view.public, torch.cat([pixels, others]), known=KnownRecords(half, pixels[half]))
    guess = guess_of(attack, replace(seen, pictures=view.pictures), stream=stream.fork("attack"))
    largest, least = wanted
    if guess.pictures is not None and pictures is not None:
        guess, pixels, largest = Guess(images=guess.pictures), pictures, _PICTURES
    if guess.images is not None:
        asked = slice(1, None, 2) if "known" in attack.needs else slice(None)
        if (why := _left("bare-records-left", pixels[asked], guess.images[asked], largest)) is not None:
            return why
    rows = guess.rows if guess.links is None else guess.links.argmax(1)
    if rows is not None:
        found = float(same(pixels)[rows[:n].cpu()].eq(same(pixels)).double().mean())
        if found < least:
            return note("bare-rows-missed", found=found, least=least)
    if guess.alike is not None:
        pairs = sources.shared(guess.alike, traces)
        if pairs is not None and pairs.nearest < least * pairs.rows:
            return note("bare-groups-missed", found=pairs.nearest / pairs.rows, least=least)
    if guess.apart is not None and not sources.told_apart(guess.apart) >= least * n:
        return note("bare-records-not-told-apart", found=sources.told_apart(guess.apart) / n, least=least)
    if guess.scores is not None and len(others):
        found = detection.auc(guess.scores[:n], guess.scores[n:])
        if found < (reached := 0.5 + 0.8 * least):
            return note("bare-members-missed", auc=found, least=reached)
    return None


def _left(code: str, pixels: Tensor, guess: Tensor, largest: float) -> Note | None:
    """What is wrong with guesses (n, …) at records, by this code: they leave a larger share of the mean's error."""
    error = float(similarity.mse(pixels, guess).mean())
    nothing = float(similarity.mse(pixels, pixels.double().mean(0).expand_as(pixels)).mean())
    if nothing > 0 and not error <= largest * nothing:  # what is no number is broken too
        told = note(code, error=error, nothing=nothing, most=largest)
        return told if math.isfinite(error) else note("no-number")
    return None


def fails_on_bare_representations(attack: Attack, view: View, records: Dataset, stream: Stream) -> Note | None:
    """The same for an attack on representations: it must get images where the client half hides nothing, and what is
    sent is the pixels themselves, as large as what the attacked half sends. Attacks that train are tried briefly."""
    part = Subset(records, torch.arange(min(len(records), _ROWS)))
    sent = view.releases[0].payload
    half = bare_half(part, size(sent.take(torch.arange(min(len(sent), _ROWS))).x))
    seen = View((in_memory(part, half),), public=view.public, client=half)
    pixels, images = part.take(torch.arange(len(part))).x, guess_of(attack, seen, stream=stream.fork("attack")).images
    if images is None:
        return note("bare-images-missing")
    error = 0.9 if attack.trains else 0.5
    if (why := _left("bare-representations-left", pixels, images, error)) is None:
        return None
    return note("after-brief-training", why=why) if attack.trains else why


OF_PAYLOAD = {"representations": fails_on_bare_representations, "updates": fails_on_bare_updates}
"""For attacks on other payloads than records."""


def size(rows: Tensor) -> float:
    """The root of the mean square of all values."""
    return float(rows.double().square().mean().sqrt())


def bare_half(like: Dataset, wanted: float) -> Half:
    """A client half that hides nothing: representations are pixels, all times one factor by which they have the wanted
    size; as they are, where nothing is sent but zeros, or no factor of float32 does it."""
    scale, pixels = BatchNorm(like.shape[0]), size(like.take(torch.arange(len(like))).x)
    factor = wanted / pixels if pixels > 0 else 1.0
    usual = 0 < factor < torch.finfo(torch.float32).max
    with torch.no_grad():
        scale.running_var.fill_(1 - _EPSILON)
        scale.weight.fill_(factor if usual else 1.0)
    net = nn.Sequential(OrderedDict(scale=scale, flat=nn.Flatten())).eval()
    return Half("client", net, like.shape, (math.prod(like.shape),), like.classes, like.low, like.high)


def _fails_on_bare_covers(attack: Attack, view: View, records: Dataset, stream: Stream) -> Note | None:
    """The same for an attack that names covers: in rows of two records and one cover, weighed and added, it must place
    most covers in the first quarter."""
    if view.covers is None:
        return note("attack-needs", fields="covers")
    covers = Subset(view.covers, torch.linspace(0, len(view.covers) - 1, min(len(view.covers), _COVERS)).long())
    part = Subset(records, torch.arange(min(len(records), _ROWS)))
    release, trace = released(view.releases[0], Mixup(3, len(covers)), part, stream, covers)
    named = guess_of(attack, View((release,), public=view.public, covers=covers), stream=stream.fork("attack")).covers
    rank = 1.0 if named is None else sources.covers(named, trace.partner[:, 1:] - len(part)).rank
    return None if rank <= _FIRST else note("bare-covers-missed", rank=rank, most=_FIRST)


def fails_on_bare_units(attack: Attack, seen: UnitView, stream: Stream) -> Note | None:
    """The same for an attack on whole units: without noise it must tell them from strangers in their places."""
    view, order = seen.view, seen.whose.argsort(stable=True)
    some = order[seen.whose[order] >= 0][:_ROWS]
    part = Subset(seen.records, some)
    own = part.take(torch.arange(len(part))).x
    candidates = own if view.candidates is None else torch.cat([own, view.candidates[len(seen.whose) :]])
    asked = groups(seen.whose[some], len(part), seen.strangers, stream.fork("groups"))
    for encoder, wanted in ((Identity(), 0.9), (Mixup(), 0.66)):
        release, trace = released(view.releases[0], encoder, part, stream)
        bare = View((release,), (trace,), view.public, candidates, units=asked.units)
        scores = guess_of(attack, bare, stream=stream.fork("attack")).scores
        found = 0.0 if scores is None else detection.auc(scores[: asked.members], scores[asked.members :])
        if not found >= wanted:
            return note("bare-units-missed", auc=found, least=wanted)
    return None


def fails_on_bare_signs(attack: Attack, view: View, records: Dataset, stream: Stream) -> Note | None:
    """The same for an attack that finds signs: of images that are not mixed, only masked."""
    part = Subset(records, torch.arange(min(len(records), _ROWS)))
    values, centre = math.prod(records.shape), view.releases[0].encoder.centre
    encoder = CalibratedInstaHide(k=1, c1=1.0, c2=0.0, covers=0, pad=0, values=values, centre=centre)
    release, trace = released(view.releases[0], encoder, part, stream)
    truth = encoder.observation(trace).mixture(part, torch.arange(len(part))).x.sign()
    guess = guess_of(attack, View((release,), public=view.public), stream=stream.fork("attack")).signs
    right, nothing = 0.0 if guess is None else float(signs.found(truth, guess).mean()), signs.of_one_sign(truth)
    if 1 - right <= _SIGNS * (1 - nothing):
        return None
    why = note("bare-signs-missed", found=right, nothing=nothing, most=_SIGNS)
    return note("after-brief-training", why=why) if attack.trains else why


def same(images: Tensor) -> Tensor:
    """(n,) the number of the first image that is equal to each."""
    first: dict[bytes, int] = {}
    return torch.tensor([first.setdefault(x.numpy().tobytes(), i) for i, x in enumerate(images.contiguous())])


def fails_on_bare_pairs(attack: Attack, view: View, records: Dataset, stream: Stream) -> Note | None:
    """The same for an attack that names pairs: it must find them without noise, or under noise of few random bits."""
    y = records.take(torch.arange(min(len(records), 10 * _PAIR_ROWS))).y
    labels = y.argmax(1)
    spread = torch.cat([(labels == label).nonzero()[: _PAIR_ROWS // 2, 0] for label in range(y.shape[1])])
    some = Subset(records, spread[torch.linspace(0, len(spread) - 1, min(len(spread), _PAIR_ROWS)).round().long()])
    x, y = some.take(torch.arange(len(some)))
    clean, trace = released(view.releases[0], Mixup(), some, stream)
    shown = y.argmax(1) != y.argmax(1)[trace.partner[:, 0]]
    if not bool(shown.any()):
        return None  # one class only: no label shows any weight
    truth = torch.stack([torch.arange(len(some)), trace.partner[:, 0]], dim=1).sort(1).values
    best = 0.0
    bare = [clean]
    if view.releases[0].encoder.linear:  # else weighed sums under noise are not what its encoder makes
        bare.append(_coarse(view.releases[0], x, trace, clean, stream))
    for release in bare:
        seen = View((release,), candidates=x, candidate_labels=y.argmax(1))
        pairs = guess_of(attack, seen, stream=stream.fork("attack")).pairs
        if pairs is not None:
            best = max(best, float(pairs.sort(1).values.eq(truth).all(1)[shown].double().mean()))
    return None if best >= _PAIRS else note("bare-pairs-missed", found=best, least=_PAIRS)


def released(
    like: Release, encoder: Encoder, part: Subset, stream: Stream, covers: Rows | None = None
) -> tuple[Release, Trace]:
    """A release of these rows in memory, with its trace. covers: what the encoder mixes in, if anything."""
    trace, noise = encoder.plan(len(part), stream=stream.fork("plan")), stream.fork("noise")
    rows = part if covers is None else Covered(part, covers)
    batches = []
    for index in torch.split(torch.arange(len(part)), max(1, _AT_ONCE // math.prod(part.shape))):
        x, y = encoder.encode(rows, index, trace, stream=noise)
        batches.append(Batch(x if encoder.step is None else x.float() * encoder.step, y))
    batch = batches[0] if len(batches) == 1 else Batch(*(torch.cat(column) for column in zip(*batches, strict=True)))
    return like.with_(payload=InMemoryRows(batch), encoder=encoder, guarantees=()), trace


def _coarse(like: Release, x: Tensor, trace: Trace, clean: Release, stream: Stream) -> Release:
    """The mixtures under noise as a quick script draws it: Box and Muller, in float32, from uniforms of 24 bits."""
    n, d = len(x), x[0].numel()
    bits = stream.fork("coarse").words(2 * n * ((d + 1) // 2)).bitwise_and((1 << 24) - 1).view(2, n, -1)
    radius = torch.sqrt(-2 * torch.log((bits[0] + 1).double() * 2.0**-24)).float()
    angle = bits[1].float() * (2 * math.pi * 2.0**-24)
    noise = torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], dim=2).view(n, -1)[:, :d]
    z, own, other = like.encoder.prepare(x).float(), trace.weight[:, :1], trace.weight[:, 1:]
    sigma = like.encoder.sigma if like.encoder.sigma > 0 else 1.0
    rows = own * z + other * (z[trace.partner[:, 0]] + sigma * noise)
    labels = clean.payload.take(torch.arange(n)).y
    return like.with_(payload=InMemoryRows(Batch(rows.view(x.shape), labels)), guarantees=())
