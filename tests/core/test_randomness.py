from __future__ import annotations

import copy
import math
import multiprocessing
import os
import pickle
import sys
import threading
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mixveil.core import randomness
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError, StreamError, TooFewRowsError
from mixveil.core.randomness import NORMAL_BOUND, SecureStream, SeededStream, Stream, box_muller

UNLIKELY = 1e-7  # a p-value that a right generator shows once in ten million runs
CPU = torch.device("cpu")
MAKERS: list[Callable[[], Stream]] = [SecureStream, lambda: SeededStream(7)]


@pytest.fixture(params=MAKERS, ids=["secure", "seeded"])
def stream(request: pytest.FixtureRequest) -> Stream:
    made: Stream = request.param()
    return made


def test_normals_follow_the_normal_law(stream: Stream) -> None:
    z = stream.normal(400_001)
    assert stats.kstest(z.numpy(), "norm").pvalue > UNLIKELY
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(float((z**power).mean()) - moment) < 6 * math.sqrt(variance / len(z))


def test_a_normal_and_its_twin_are_uncorrelated(stream: Stream) -> None:
    words = stream.words(200_000)
    first, second = box_muller(words).view(2, -1)
    assert abs(float((first * second).mean())) < 6 / math.sqrt(len(first))
    assert abs(float((first.square() * second.square()).mean()) - 1) < 6 * math.sqrt(8 / len(first))


@pytest.mark.parametrize("zeros", [26, 40, 50])
def test_tails_far_beyond_six_sigma(stream: Stream, zeros: int) -> None:
    """By importance: words whose leading bits are zero reach only radii beyond √(2·zeros·log 2), where the
    squared radius must go on as an exponential law. At 50 bits that is beyond 8.3σ."""
    words = stream.words(100_000)
    radius_words = (words[:50_000] & ((1 << 63) - 1)) >> zeros
    z = box_muller(torch.cat([radius_words, words[50_000:]])).view(2, -1)
    excess = z.square().sum(0) / 2 - zeros * math.log(2)
    assert float(excess.min()) > -1e-9
    if zeros < 50:
        assert stats.kstest(excess.numpy(), "expon").pvalue > UNLIKELY
    else:  # 13 bits are left: too coarse for that test, not for the mean
        assert 0.95 < float(excess.mean()) < 1.05
    angle = torch.atan2(z[1], z[0]) / (2 * math.pi) + 0.5
    assert stats.kstest(angle.numpy(), "uniform").pvalue > UNLIKELY


def test_normals_reach_their_bound_and_no_further() -> None:
    extreme = box_muller(torch.tensor([0, (1 << 63) - 1, 0, 0]))
    assert float(extreme.max()) == pytest.approx(NORMAL_BOUND, rel=1e-12)
    assert float(extreme[1]) == pytest.approx(0, abs=1e-7)
    assert NORMAL_BOUND > 9.3


def test_uniforms_are_uniform_with_53_bits(stream: Stream) -> None:
    u = stream.uniform(200_000)
    assert stats.kstest(u.numpy(), "uniform").pvalue > UNLIKELY
    steps = u * 2.0**53
    assert torch.equal(steps, steps.round())
    assert bool((u >= 0).all()) and bool((u < 1).all())
    odd = float((steps.remainder(2)).mean())  # the lowest bit is random too
    assert abs(odd - 0.5) < 6 * 0.5 / math.sqrt(len(u))


def test_forks_are_independent_and_named() -> None:
    one, two = SeededStream(1), SeededStream(1)
    two.fork("a new consumer").normal(5)
    two.normal(3)
    assert torch.equal(one.fork("noise").normal(10), two.fork("noise").normal(10))
    parent, left, right = SeededStream(1), SeededStream(1).fork("left"), SeededStream(1).fork("right")
    draws = [s.normal(100_000) for s in (parent, left, right)]
    for a in range(3):
        for b in range(a):
            assert abs(float((draws[a] * draws[b]).mean())) < 6 / math.sqrt(100_000)


def test_the_same_fork_twice_is_a_new_stream(stream: Stream) -> None:
    assert not torch.equal(stream.fork("noise").normal(8), stream.fork("noise").normal(8))


def test_the_same_seed_gives_the_same_draws_and_another_seed_others() -> None:
    assert torch.equal(SeededStream(3).normal(4), SeededStream(3).normal(4))
    assert not torch.equal(SeededStream(3).normal(4), SeededStream(4).normal(4))


def test_seeded_draws_stay_what_they_were() -> None:
    """An experiment must give the same result in the next version."""
    assert SeededStream(0).words(2).tolist() == [-1462054652124829165, 7146990305748991238]


def test_secure_words_are_aes_in_counter_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    import hmac

    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    monkeypatch.setattr(os, "urandom", lambda n: bytes(range(n)))
    words = SecureStream().words(5)
    key = hmac.digest(bytes(range(32)), b"words", "sha256")[:16]
    encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    assert words.numpy().tobytes() == encryptor.update(bytes(40))


def test_secure_streams_differ_and_go_on_where_they_stopped() -> None:
    assert not torch.equal(SecureStream().words(4), SecureStream().words(4))
    stream = SecureStream()
    assert not torch.equal(stream.words(4), stream.words(4))


def test_a_secure_stream_shows_no_key_and_cannot_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", lambda n: b"K" * n)
    stream = SecureStream()
    assert repr(stream) == str(stream) == "SecureStream()"
    for copying in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(StreamError):
            copying(stream)


def _draws_in_child(stream: SecureStream, answer: multiprocessing.SimpleQueue[str]) -> None:
    refused = 0
    for draw in (lambda: stream.words(1), lambda: stream.fork("a")):
        try:
            draw()
        except StreamError:
            refused += 1
    answer.put("refused" if refused == 2 else "drew")


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_secure_stream_refuses_to_draw_in_a_forked_process() -> None:
    context = multiprocessing.get_context("fork")
    answer: multiprocessing.SimpleQueue[str] = context.SimpleQueue()
    child = context.Process(target=_draws_in_child, args=(SecureStream(), answer))
    child.start()
    assert answer.get() == "refused"
    child.join()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_with_the_same_number_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the first process of a container is that forks the first process of another; or where numbers come again."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    stream, device = SecureStream(), DeviceStream(SecureStream())
    context = multiprocessing.get_context("fork")
    answer: multiprocessing.SimpleQueue[object] = context.SimpleQueue()

    def child() -> None:
        _draws_in_child(stream, answer)  # type: ignore[arg-type]
        answer.put(device.uniform(4, device=CPU).tolist())
        own = SecureStream()
        inner = context.Process(target=_draws_in_child, args=(own, answer))  # and its child is another one again
        inner.start()
        inner.join()
        answer.put(len(own.words(3)))

    process = context.Process(target=child)
    process.start()
    found = [answer.get() for _ in range(4)]
    process.join()
    assert found[0] == found[2] == "refused" and found[3] == 3
    assert found[1] != device.uniform(4, device=CPU).tolist()
    assert len(stream.words(3)) == 3  # the parent goes on


def test_two_copies_of_a_machine_part_at_the_next_fork_by_name() -> None:
    """A snapshot that is started twice: the same stream, key and all, in both."""
    stream = SecureStream()
    one, two = (SecureStream._from_key(stream._key) for _ in range(2))
    assert torch.equal(one.words(4), two.words(4))
    assert not torch.equal(one.fork("release").words(4), two.fork("release").words(4))
    one, two = (SecureStream._from_key(stream._key) for _ in range(2))
    shapes = [copied.fork("noise").fork("block").normal(100_000) for copied in (one, two)]
    assert abs(float((shapes[0] * shapes[1]).mean())) < 6 / math.sqrt(100_000)


def test_permutations_are_uniform(stream: Stream) -> None:
    counts = Counter(tuple(stream.permutation(4).tolist()) for _ in range(6000))
    assert len(counts) == 24
    assert stats.chisquare(list(counts.values())).pvalue > UNLIKELY


def test_derangements_are_uniform_over_all_derangements(stream: Stream) -> None:
    counts = Counter(tuple(stream.derangement(4).tolist()) for _ in range(4000))
    assert len(counts) == 9
    assert all(value != place for order in counts for place, value in enumerate(order))
    assert stats.chisquare(list(counts.values())).pvalue > UNLIKELY


def test_ties_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = SeededStream(1)
    answers = iter([torch.tensor([5, 5, 1]), torch.tensor([3, 1, 2])])
    monkeypatch.setattr(stream, "words", lambda n: next(answers))
    assert stream.permutation(3).tolist() == [1, 2, 0]


def test_one_row_has_no_derangement() -> None:
    with pytest.raises(TooFewRowsError, match="got 1"):
        SeededStream(0).derangement(1)


@pytest.mark.parametrize("alpha", [0.55, 0.7, 0.95])
def test_capped_weights_follow_the_law_of_rejection(stream: Stream, alpha: float) -> None:
    """Against the slow twin: uniform pairs, scaled to sum one, redrawn until both are at most α."""
    weight = stream.capped_weights(50_000, alpha)
    draws = stream.uniform(400_000, 2)
    scaled = draws / draws.sum(1, keepdim=True)
    twin = scaled[scaled.max(1).values <= alpha][:50_000, 0]
    assert stats.ks_2samp(weight[:, 0].numpy(), twin.numpy()).pvalue > UNLIKELY


@settings(deadline=None)
@given(alpha=st.floats(0.5, 1, exclude_max=True), seed=st.integers(0, 2**63))
def test_capped_weights_keep_the_cap_and_sum_to_exactly_one(alpha: float, seed: int) -> None:
    weight = SeededStream(seed).capped_weights(200, alpha)
    assert float(weight.double().max()) <= alpha
    assert bool((weight.sum(1) == 1).all()) and bool((weight.double().sum(1) == 1).all())


@pytest.mark.parametrize("alpha", [0.49, 1.0, -1.0, math.nan])
def test_capped_weights_refuse_a_cap_outside_its_range(alpha: float) -> None:
    with pytest.raises(ArgumentError, match="alpha must be in"):
        SeededStream(0).capped_weights(3, alpha)


def test_mixing_weights_sum_to_one_and_follow_their_law(stream: Stream) -> None:
    weight = stream.mixing_weights(50_000, 3)
    assert bool((weight.double().sum(1) == 1).all()) and bool((weight >= 0).all())
    draws = stream.uniform(50_000, 3)
    twin = (draws / draws.sum(1, keepdim=True))[:, 2]
    assert stats.ks_2samp(weight[:, 2].numpy(), twin.numpy()).pvalue > UNLIKELY


def test_sphere_noise_lies_on_the_sphere_and_points_everywhere(stream: Stream) -> None:
    e = stream.sphere(20_000, 5, 3.0)
    assert torch.allclose(e.norm(dim=1), torch.tensor(3.0, dtype=torch.float64), rtol=1e-14)
    assert abs(float(e[:, 0].square().mean()) - 9 / 5) < 0.1
    # On S(0, r) in R⁵ one squared coordinate over r² is Beta(1/2, 2).
    assert stats.kstest((e[:, 0] / 3).square().numpy(), stats.beta(0.5, 2).cdf).pvalue > UNLIKELY


def test_signs_are_fair_and_independent(stream: Stream) -> None:
    signs = stream.signs(1001, 3)
    assert signs.dtype == torch.int8 and signs.shape == (1001, 3)
    assert set(signs.flatten().tolist()) == {-1, 1}
    many = stream.signs(200_000).double()
    assert abs(float(many.mean())) < 6 / math.sqrt(200_000)
    assert abs(float((many[1:] * many[:-1]).mean())) < 6 / math.sqrt(200_000)


def test_release_ids_are_new_every_time() -> None:
    assert len({randomness.release_id() for _ in range(100)}) == 100


def test_a_bad_seed_is_named() -> None:
    with pytest.raises(ArgumentError, match="seed must be in"):
        SeededStream(-1)


def test_threads_that_fork_the_same_name_get_different_streams() -> None:
    stream = SeededStream(1)
    found: list[int] = []

    def fork() -> None:
        for _ in range(500):
            found.append(int(stream.fork("noise").words(1)))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=fork) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(set(found)) == 4000


@pytest.mark.parametrize("alpha", [0.5, 0.55, 0.7, 0.99])
def test_device_weights_have_the_law_of_the_stream(alpha: float) -> None:
    fast = DeviceStream(SeededStream(1)).capped_weights(50_000, alpha)
    slow = SeededStream(2).capped_weights(50_000, alpha)
    assert fast.shape == slow.shape and fast.dtype == slow.dtype
    assert torch.allclose(fast.sum(1), torch.ones(50_000))
    assert float(fast.max()) <= alpha + 1e-6 and float(fast.min()) >= 1 - alpha - 1e-6
    if alpha > 0.5:
        assert stats.ks_2samp(fast[:, 0].numpy(), slow[:, 0].numpy()).pvalue > UNLIKELY


def test_a_device_stream_checks_its_cap() -> None:
    with pytest.raises(ArgumentError, match="alpha"):
        DeviceStream(SeededStream(1)).capped_weights(4, 1.0)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_device_mixing_weights_have_the_law_of_the_stream(k: int) -> None:
    fast = DeviceStream(SeededStream(1)).mixing_weights(50_000, k)
    slow = SeededStream(2).mixing_weights(50_000, k)
    assert fast.shape == slow.shape and fast.dtype == slow.dtype and float(fast.min()) > 0
    assert torch.allclose(fast.sum(1), torch.ones(50_000))
    for j in (0, k - 1):
        assert stats.ks_2samp(fast[:, j].numpy(), slow[:, j].numpy()).pvalue > UNLIKELY


@pytest.mark.parametrize("n", [2, 3, 7, 100])
def test_device_partners_are_one_cycle(n: int) -> None:
    stream = DeviceStream(SeededStream(n))
    for _ in range(20):
        partner = stream.cycle(n).tolist()
        assert sorted(partner) == list(range(n))
        at, steps = partner[0], 1
        while at != 0:
            at, steps = partner[at], steps + 1
        assert steps == n  # hence nobody is his own partner


def test_all_cycles_are_as_likely() -> None:
    stream = DeviceStream(SeededStream(5))
    counts = Counter(tuple(stream.cycle(4).tolist()) for _ in range(3000))
    assert len(counts) == 6  # 3!
    assert stats.chisquare(list(counts.values())).pvalue > UNLIKELY


def test_a_device_stream_needs_two_rows_for_a_cycle() -> None:
    with pytest.raises(TooFewRowsError):
        DeviceStream(SeededStream(1)).cycle(1)


def test_device_normals_take_after_their_model() -> None:
    stream = DeviceStream(SeededStream(1))
    normals = stream.normal(torch.empty(100, 500))
    assert stats.kstest(normals.flatten().numpy(), "norm").pvalue > UNLIKELY
    half = stream.normal(torch.empty(3, 4, dtype=torch.bfloat16))
    assert half.dtype == torch.bfloat16 and half.shape == (3, 4)


def test_a_device_stream_starts_again_where_it_is_told() -> None:
    """Whatever was drawn before, and by whichever of two streams of the same seed."""
    one, two = DeviceStream(SeededStream(1)), DeviceStream(SeededStream(1))
    first = one.uniform(8, device=CPU)
    assert torch.equal(first, two.uniform(8, device=CPU))
    two.uniform(3, device=CPU)
    one.restart(7)
    two.restart(7)
    seventh = one.uniform(8, device=CPU)
    assert torch.equal(seventh, two.uniform(8, device=CPU))
    untouched = DeviceStream(SeededStream(1))
    untouched.restart(7)  # before any draw
    assert torch.equal(seventh, untouched.uniform(8, device=CPU))
    one.restart(8)
    assert not torch.equal(seventh, one.uniform(8, device=CPU)) and not torch.equal(seventh, first)
    one.restart(7)
    assert torch.equal(seventh, one.uniform(8, device=CPU))


def test_device_streams_of_one_stream_differ_and_leave_torchs_own_alone() -> None:
    stream = SeededStream(1)
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    one, two = DeviceStream(stream), DeviceStream(stream)
    assert not torch.equal(one.uniform(8, device=CPU), two.uniform(8, device=CPU))
    secure = [DeviceStream(SecureStream()).uniform(8, device=CPU) for _ in range(2)]
    assert not torch.equal(*secure)
    assert torch.equal(before, torch.random.get_rng_state())


def _device_draws(stream: DeviceStream, seed: int, answer: multiprocessing.SimpleQueue[list[float]]) -> None:
    torch.manual_seed(seed)  # as a data loader does in each of its workers
    answer.put(stream.uniform(4, device=CPU).tolist())


@pytest.mark.parametrize("used", [False, True], ids=["fresh", "used before"])
def test_device_draws_in_forked_processes_follow_from_their_seed(used: bool) -> None:
    stream = DeviceStream(SeededStream(1))
    if used:
        stream.uniform(4, device=CPU)
    context = multiprocessing.get_context("fork")
    answer: multiprocessing.SimpleQueue[list[float]] = context.SimpleQueue()
    drawn = []
    for seed in (1, 2, 1):
        process = context.Process(target=_device_draws, args=(stream, seed, answer))
        process.start()
        drawn.append(answer.get())
        process.join()
    assert drawn[0] == drawn[2] != drawn[1]
    assert stream.uniform(4, device=CPU).tolist() not in drawn
    fresh = DeviceStream(SeededStream(1)).uniform(4, device=CPU).tolist()
    assert fresh not in drawn


def test_keys_are_new_and_no_forks_have_them(stream: Stream) -> None:
    fork = stream.fork("noise")
    keys = [stream.key("noise"), stream.key("noise"), stream.key("other"), fork.key("noise")]
    assert len({*keys, fork._key, stream._key}) == 6
    assert {len(key) for key in keys} == {32}


def test_a_seeded_key_repeats_and_a_secure_key_never_does() -> None:
    assert SeededStream(3).key("noise") == SeededStream(3).key("noise") != SeededStream(4).key("noise")
    one, two = (SecureStream._from_key(bytes(32)) for _ in range(2))  # as of two machines from one snapshot
    assert one.key("noise") != two.key("noise")
