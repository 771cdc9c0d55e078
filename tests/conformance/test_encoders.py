"""The contract of `core.types.Encoder` and `Scheme`, for every encoder: those of the package, and one that it does not
know (`tests/plugins/toy_encoder.py`)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from mixveil.audit import noise_check
from mixveil.core.errors import ArgumentError, TooFewRowsError
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Batch, Encoder, Facts, Mu, Tau, Trace
from mixveil.data.moves import all_moves
from mixveil.data.row_views import Subset
from mixveil.encoders.catalogue import ENCODERS, encoders
from mixveil.encoders.grid import stored_dtype
from mixveil.encoders.noisy import EXAMPLE
from mixveil.releases import traces
from tests.made import images
from tests.plugins.toy_encoder import SignMask

N = 400
DATA = images(N)
ALL = torch.arange(N)


@pytest.fixture(params=sorted({*encoders(), SignMask.name}))
def encoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Encoder]:
    monkeypatch.setattr(ENCODERS, "_registered", {})  # the toy is known for one test
    ENCODERS.register(SignMask)
    yield encoders()[request.param].example()


def encode(encoder: Encoder, seed: int = 1, index: Tensor = ALL) -> tuple[Batch, Trace]:
    """Released values, not integers, and their trace."""
    stream = SeededStream(seed)
    trace = encoder.plan(N, stream=stream.fork("plan"))
    x, y = encoder.encode(DATA, index, trace, stream=stream.fork("noise"))
    return Batch(x.flatten(1).double() * (1.0 if encoder.step is None else encoder.step), y), trace


# What is released


def test_the_same_seed_gives_the_same_release(encoder: Encoder) -> None:
    assert all(torch.equal(a, b) for a, b in zip(encode(encoder)[0], encode(encoder)[0], strict=True))


def test_what_is_released_is_of_the_stated_kind(encoder: Encoder) -> None:
    trace = encoder.plan(N, stream=SeededStream(0))
    x, y = encoder.encode(DATA, ALL, trace, stream=SeededStream(1))
    assert x.shape == (N, 1, 4, 4) and x.dtype == stored_dtype(encoder.index_bound)
    assert y.shape == (N, 4) and torch.allclose(y.sum(1), torch.ones(N)) and bool((y >= 0).all())
    assert bool(encoder.possible_labels(y).all())
    if encoder.index_bound is not None:
        assert int(x.abs().max()) <= encoder.index_bound


def test_inputs_are_not_changed(encoder: Encoder) -> None:
    before, index = DATA.take(ALL).x.clone(), ALL.clone()
    trace = encoder.plan(N, stream=SeededStream(0))
    drawn = [trace.partner, trace.weight, *trace.extra.values()]
    copies = [values.clone() for values in drawn]
    encoder.encode(DATA, index, trace, stream=SeededStream(0))
    encoder.prepare(DATA.take(ALL).x)
    assert torch.equal(DATA.take(ALL).x, before) and torch.equal(index, ALL)
    assert all(torch.equal(a, b) for a, b in zip(drawn, copies, strict=True))


def test_rows_follow_the_observation(encoder: Encoder) -> None:
    """Without noise a row is its mean; else what is left over its deviation follows the law, and would not if the
    deviation were a tenth larger or a row's mean were another row's."""
    (x, y), trace = encode(encoder)
    observation = encoder.observation(trace)
    mean, labels = observation.mean(DATA, ALL)
    deviation = observation.deviation(ALL)
    assert mean.shape == x.shape and mean.dtype == torch.float64 and deviation.shape == (N,)
    assert torch.allclose(labels, y, atol=1e-6)
    if encoder.law == "none":
        assert torch.allclose(x, mean, atol=1e-6) and not bool(deviation.any()) and encoder.sigma == 0
        return
    noise = (x - mean) / deviation[:, None]
    assert float(noise.square().mean()) == pytest.approx(1, rel=0.06)
    assert noise_check.faults(noise, noise.square().sum(1), encoder.law) == []
    weaker = noise / 1.1
    assert noise_check.faults(weaker, weaker.square().sum(1), encoder.law)
    assert encoder.sigma > 0 and bool((deviation > 0).all())


def test_rows_do_not_depend_on_what_is_encoded_with_them(encoder: Encoder) -> None:
    some = torch.tensor([7, 3, 11])
    (_, whole), trace = encode(encoder)
    (x, y), _ = encode(encoder, index=some)
    assert torch.equal(y, whole[some])
    observation = encoder.observation(trace)
    mean = observation.mean(DATA, some)
    assert torch.equal(mean.x, observation.mean(DATA, ALL).x[some])
    if encoder.law == "none":
        assert torch.allclose(x, mean.x, atol=1e-6)


def test_a_part_of_a_trace_is_of_the_same_rows(encoder: Encoder) -> None:
    trace, order = encoder.plan(N, stream=SeededStream(0)), SeededStream(1).permutation(N)
    moved = trace.part(order, order.argsort())
    one, two = encoder.observation(trace), encoder.observation(moved)
    assert torch.equal(two.mean(Subset(DATA, order), ALL).x, one.mean(DATA, order).x)
    assert torch.equal(two.deviation(ALL), one.deviation(order))
    kept = torch.zeros(N, dtype=torch.bool).index_fill(0, order[:5], True)
    few = encoder.observation(trace.part(kept, ALL))
    assert torch.equal(few.deviation(torch.arange(5)), one.deviation(kept.nonzero()[:, 0]))


def test_a_trace_is_kept_whole(encoder: Encoder) -> None:
    trace, name = encoder.plan(N, stream=SeededStream(0)), "0" * 32
    traces.save_trace(name, trace, "")
    found = traces.load_trace(name, N)
    assert found is not None and found.extra.keys() == trace.extra.keys()
    drawn = [(found.partner, trace.partner), (found.weight, trace.weight)]
    for one, two in [*drawn, *((found.extra[key], trace.extra[key]) for key in trace.extra)]:
        assert one.dtype == two.dtype and torch.equal(one, two)


# How records enter


def test_records_enter_each_by_itself_and_come_back(encoder: Encoder) -> None:
    x = DATA.take(torch.arange(6)).x
    z = encoder.prepare(x)
    assert z.shape == (6, 16) and z.dtype == torch.float64
    assert torch.equal(torch.cat([encoder.prepare(x[i : i + 1]) for i in range(6)]), z)
    assert torch.allclose(encoder.restore(z), x.flatten(1).double())
    assert torch.allclose(encoder.restore(torch.zeros(1, 16)), torch.full((1, 16), encoder.centre))


def test_no_record_enters_longer_than_the_clip_norm(encoder: Encoder) -> None:
    if encoder.clip is not None:
        long = 0.5 + 100 * SeededStream(0).normal(5, 1, 4, 4)
        assert float(encoder.prepare(long).norm(dim=1).max()) <= encoder.clip * (1 + 1e-12)


def test_linear_rows_are_weighed_sums_and_others_say_that_they_are_not(encoder: Encoder) -> None:
    (_, y), trace = encode(encoder)
    z = encoder.prepare(DATA.take(ALL).x)
    sources = torch.cat([ALL[:, None], trace.partner], dim=1)
    mixed = (trace.weight.double()[:, :, None] * z[sources]).sum(1)
    assert torch.allclose(mixed, encoder.observation(trace).mean(DATA, ALL).x) == encoder.linear
    seen = encoder.visible(cast("Any", _Labels(y)))
    assert (seen is not None) == encoder.linear
    if seen is not None:
        several = (y > 0).sum(1) > 1
        weight = y[several].double() if bool(several.any()) else torch.ones(1, 1)
        assert seen.share == pytest.approx(float(weight.square().sum(1).mean()))
        noise = encoder.observation(trace).deviation(ALL).square().mean()
        assert seen.noise == pytest.approx(float(noise), rel=0.05)


def test_signs_are_hidden_as_it_says(encoder: Encoder) -> None:
    observation = encoder.observation(encoder.plan(N, stream=SeededStream(0)))
    mask, some = observation.mask(ALL), torch.tensor([7, 3, 11])
    assert (mask is not None) == encoder.masked
    mean, mixture = observation.mean(DATA, ALL).x, observation.mixture(DATA, ALL).x
    if mask is None:
        assert torch.equal(mean, mixture)
        return
    assert mask.shape == (N, 16) and mask.dtype == torch.int8 and bool((mask.abs() == 1).all())
    assert torch.equal(mean, mask * mixture) and abs(float(mask.double().mean())) < 0.05
    assert torch.equal(torch.as_tensor(observation.mask(some)), mask[some])


def test_images_are_moved_as_it_says(encoder: Encoder) -> None:
    """A row of its own record alone is that record as it enters; moved by so many pixels at most, and mirrored or not,
    where the encoder moves images: each by the move that the observation tells, and by every one there is."""
    trace = encoder.plan(N, stream=SeededStream(0))
    alone = replace(trace, weight=torch.eye(trace.weight.shape[1])[:1].expand_as(trace.weight))
    observation = encoder.observation(alone)
    row, z = observation.mixture(DATA, ALL).x, encoder.prepare(DATA.take(ALL).x)
    moves = observation.moves(ALL)
    assert (moves is None) == (encoder.moved == 0)
    if moves is None:
        assert torch.equal(row, z)
        return
    assert moves.shape == (*trace.weight.shape, 3) and not torch.equal(row, z)
    for image, into, move in zip(z.view(N, 4, 4), row.view(N, 4, 4), moves[:, 0].tolist(), strict=True):
        assert torch.equal(into, _moved_slowly(image, *move))
    reach = encoder.moved
    assert {*map(tuple, moves.flatten(0, 1).tolist())} == {*map(tuple, all_moves(reach).tolist())}


def _moved_slowly(image: Tensor, mirrored: int, down: int, right: int) -> Tensor:
    """Zero, which is a value at the centre, comes in from outside."""
    source, found = image.flip(1) if mirrored else image, torch.zeros_like(image)
    for i in range(len(image)):
        for j in range(len(image)):
            if 0 <= i - down < len(image) and 0 <= j - right < len(image):
                found[i, j] = source[i - down, j - right]
    return found


@dataclasses.dataclass(frozen=True)
class _Labels:
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: Tensor) -> Batch:
        return Batch(torch.empty(len(index), 0), self.y[index])


# Plans


def test_one_row_is_refused(encoder: Encoder) -> None:
    with pytest.raises(TooFewRowsError):
        encoder.plan(1, stream=SeededStream(0))


def test_a_plan_has_sources_with_weights_that_sum_to_one(encoder: Encoder) -> None:
    trace = encoder.plan(N, stream=SeededStream(0))
    assert len(trace.partner) == N and trace.weight.shape == (N, trace.partner.shape[1] + 1)
    assert torch.allclose(trace.weight.sum(1), torch.ones(N)) and bool((trace.weight > 0).all())
    assert all(len(values) == N for values in trace.extra.values())
    assert trace.order is None and trace.kept is None


def test_no_unit_is_paired_with_itself(encoder: Encoder) -> None:
    if encoder.scheme.targets:  # others promise nothing to units
        units = ALL // 2
        pairs: Encoder = replace(cast("Any", encoder), unit_rows=2)
        partner = pairs.plan(N, stream=SeededStream(0), units=units).partner
        assert not bool((units[partner] == units[:, None]).any())
        with pytest.raises(ArgumentError, match="2 rows"):
            encoder.plan(N, stream=SeededStream(0), units=units)


# Settings


def test_settings_are_frozen_and_go_through_json(encoder: Encoder) -> None:
    settings = dataclasses.asdict(cast("Any", encoder))
    again = cast("Any", encoder.scheme.ready())(**json.loads(json.dumps(settings)))
    assert again == encoder and type(again) is type(encoder)
    for name in settings:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(encoder, name, None)


def test_an_encoder_knows_its_scheme(encoder: Encoder) -> None:
    scheme = encoder.scheme
    assert type(scheme) is encoders()[encoder.name] and scheme.name == encoder.name
    assert isinstance(encoder, type(scheme)) == (not scheme.needs_facts)
    if not scheme.needs_facts:
        assert scheme.calibrate(None, Facts({})) == (encoder, ())


@pytest.mark.parametrize("target", [Mu(1.0), Tau(0.1)])
def test_only_what_can_be_asked_for_is_promised(encoder: Encoder, target: Mu | Tau) -> None:
    if not isinstance(target, encoder.scheme.targets):
        with pytest.raises(ArgumentError, match=encoder.name):
            encoder.scheme.calibrate(target, Facts({}))
    elif isinstance(target, Mu):  # a certified manifest states all that follows from its settings
        ready, stated = encoder.scheme.calibrate(target, EXAMPLE)
        assert [guarantee.name for guarantee in stated] == [*ready.claims()]
    assert bool(encoder.claims()) == (encoder.cost() is not None) == (Mu in encoder.scheme.targets)
    assert bool(encoder.unpromised) == (not encoder.scheme.targets)


def test_an_unknown_encoder_is_named() -> None:
    from mixveil.encoders.catalogue import encoder as find

    with pytest.raises(ArgumentError, match="'magic'"):
        find("magic")
