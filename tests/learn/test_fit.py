"""Training: against a plain loop, killed and gone on, over several releases, and what is refused."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import mixveil.core.checkpoint
import mixveil.releases.records
from mixveil.core import errors
from mixveil.core.checkpoint import Saved, discard
from mixveil.core.device_random import DeviceStream
from mixveil.core.randomness import SeededStream
from mixveil.core.tensor_files import check_header
from mixveil.core.types import Mu, Release
from mixveil.encoders.batch_transform import BatchTransform
from mixveil.encoders.calibration import settled_facts
from mixveil.encoders.identity import Identity
from mixveil.encoders.singular import Singular
from mixveil.learn.batches import Released, RemixedEveryBatch
from mixveil.learn.distributed import Group
from mixveil.learn.fit import TrainingRecipe, _Training, fit
from mixveil.learn.mlp import Classifier
from mixveil.learn.training import opened, train_mlp
from mixveil.releases.kinds.records import Records
from mixveil.releases.reading import read_release
from mixveil.releases.records import in_memory, write_release
from mixveil.theory.response import posterior
from tests.learn.twin import twin
from tests.made import blobs

CPU = torch.device("cpu")
RECIPE = TrainingRecipe(epochs=3, batch=16)


def clear(n: int = 60, seed: int = 1) -> Release:
    return in_memory(blobs(n, seed), Identity(), (), party="a", stream=SeededStream(seed))


def mixed(n: int = 60, seed: int = 1, mu: float = 8.0, label_epsilon: float | None = None) -> Release:
    data = blobs(n, seed)
    encoder, guarantees = Singular().calibrate(Mu(mu), settled_facts(data, certified=True, public=None, clip=None))
    return in_memory(data, encoder, guarantees, party="a", stream=SeededStream(seed), label_epsilon=label_epsilon)


def flat(model: Classifier) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in model.state_dict().values()]).detach()


@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
def test_it_is_a_plain_loop(optimiser: Literal["adamw", "sgd"]) -> None:
    recipe = replace(RECIPE, optimiser=optimiser)
    source = Released([mixed()], CPU)
    found = fit(source, recipe)

    start = Classifier(source.inputs, source.classes, draws=DeviceStream(recipe.stream("draws")))
    other = twin(start)
    if optimiser == "adamw":
        steps: torch.optim.Optimizer = torch.optim.AdamW(other.parameters(), 1e-3, weight_decay=1e-4)
    else:
        steps = torch.optim.SGD(other.parameters(), 1e-3, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(steps, 12)
    step = 0
    for epoch in range(3):
        order = SeededStream(0).fork(f"epoch {epoch}").permutation(60)
        for index in torch.split(order, 16):  # the last one has twelve
            start.draws.restart(step)
            x, y = source.batch(index, step)
            for part in other.train():
                x = part(x)
                if isinstance(part, nn.GELU):
                    x = x * (start.draws.uniform(*x.shape, device=CPU) >= 0.5) * 2
            loss = -(y * torch.log_softmax(x, dim=1)).sum(dim=1).mean()
            steps.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            steps.step()
            schedule.step()
            step += 1
    x = source.batch(torch.arange(60), 0).x
    assert torch.allclose(found(x), other.eval()(x), atol=1e-3)  # Adam divides by what may be next to nothing


@pytest.mark.parametrize(
    ("rows", "batch", "processes", "sizes"),
    [
        (60, 16, 1, [16, 16, 16, 12]),
        (52, 16, 1, [16, 16, 16]),  # four rows are too few for statistics
        (56, 16, 1, [16, 16, 16, 8]),
        (99, 64, 2, [64, 35]),
        (71, 64, 2, [64]),
        (11, 128, 1, [11]),
        (11, 128, 2, [11]),
    ],
)
def test_the_batches_of_an_epoch(rows: int, batch: int, processes: int, sizes: list[int]) -> None:
    seen = []
    for rank in range(processes):
        source, group = Released([clear(rows)], CPU), Group(rank, processes)
        model = Classifier(source.inputs, source.classes, draws=TrainingRecipe().draws(), group=group)
        training = _Training(source, TrainingRecipe(2, batch), model, range(2), group)
        shares = [index for step, index in training._shares(0) if step < training.per_epoch]
        assert all(len(index) - size // processes in (0, 1) for index, size in zip(shares, sizes, strict=True))
        assert [training._rows(step) for step in range(2 * len(sizes))] == 2 * sizes and training.steps == 2 * len(
            sizes
        )
        seen.append(torch.cat(shares))
    assert len(set(torch.cat(seen).tolist())) == sum(sizes)  # every row once


def test_it_learns_and_says_after_which_epoch() -> None:
    source, heard = Released([clear(300)], CPU), []
    test = blobs(200, 5)

    def watch(epoch: int, model: Classifier) -> None:
        x = test.take(torch.arange(200)).x.flatten(1)
        heard.append((epoch, float(model(x).argmax(1).eq(test.labels).double().mean())))

    done: list[int] = []
    fit(source, TrainingRecipe(epochs=8, batch=32), progress=done.append, on_epoch=watch)
    assert [epoch for epoch, _ in heard] == list(range(1, 9)) and heard[-1][1] > 0.95
    assert sum(done) == 8 * 300


def test_rows_of_several_releases_come_in_the_order_of_the_index(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mixveil.releases.records, "SHARD_BYTES", 100)
    releases = []
    for seed in (1, 2, 3):
        data = blobs(20 + seed, seed)
        encoder, guarantees = Singular().calibrate(Mu(4.0), settled_facts(data, certified=True, public=None, clip=None))
        write_release(tmp_path / str(seed), data, encoder, guarantees, party="a", stream=SeededStream(seed))
        releases.append(read_release(tmp_path / str(seed)))
        assert len(releases[-1].payload.shards) > 3
    source = Released(releases, CPU)
    assert source.rows == 21 + 22 + 23 and source.inputs == 6 and source.classes_present.all()
    index = SeededStream(4).permutation(source.rows)[:30]
    x, y = source.batch(index, 0)
    for place, row in enumerate(index.tolist()):
        which, inside = (0, row) if row < 21 else (1, row - 21) if row < 43 else (2, row - 43)
        batch = releases[which].payload.take(torch.tensor([inside]))
        assert torch.equal(x[place], batch.x.flatten() + 0.5) and torch.equal(
            y[place], batch.y[0]
        )  # the centre is back


def test_records_that_are_held_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    release = mixed(30)
    records = release.payload
    assert isinstance(records, Records)
    whole = records.shards[0]
    split = Records(tuple(type(whole)(whole.x[i : i + 7], whole.y[i : i + 7]) for i in range(0, 30, 7)), records.step)
    index = torch.tensor([29, 0, 7, 6, 6, 13, 28])
    wanted = records.take(index)
    for other in (split, split.held_on(CPU)):
        found = other.take(index)
        assert torch.equal(found.x, wanted.x) and torch.equal(found.y, wanted.y)
    assert len(split.held_on(CPU).shards) == 1 and split.bytes == records.bytes
    with pytest.raises(errors.ArgumentError):
        split.take(torch.tensor([30]))


def test_randomised_labels_stand_for_what_they_make_likely() -> None:
    data = blobs(900, 1)
    data = data.part(((data.labels != 2) | (torch.arange(900) % 5 == 0)).nonzero()[:, 0])  # few of the last class
    release = in_memory(data, Identity(), (), party="a", stream=SeededStream(1), label_epsilon=1.0)
    n, source = len(data), Released([release], CPU)
    batch, said = source.batch(torch.arange(n), 0), release.payload.take(torch.arange(n)).y
    shares = posterior(said.double().sum(0), 1.0).float()
    assert not torch.allclose(shares, shares.T, atol=0.01)
    assert torch.allclose(batch.y, said @ shares, atol=1e-6) and torch.allclose(batch.y.sum(1), torch.ones(n))


def test_a_class_that_nobody_has_is_never_named() -> None:
    release = in_memory(blobs(60, 1, classes=4, rare=1), Identity(), (), party="a", stream=SeededStream(1))
    assert Released([release], CPU).classes_present.tolist() == [True, True, True, False]
    whole = in_memory(blobs(60, 1, classes=4), Identity(), (), party="b", stream=SeededStream(1))
    assert Released([release, whole], CPU).classes_present.all()


def test_mixed_anew_in_every_batch() -> None:
    data = blobs(64, 1)
    x = data.take(torch.arange(64)).x
    transform = BatchTransform(Singular(alpha=0.7), sigma=0.1, classes=3, stream=SeededStream(1))
    source = RemixedEveryBatch(x, data.labels, 3, transform)
    index = torch.arange(32)
    first, later, again = source.batch(index, 0), source.batch(index, 1), source.batch(index, 0)
    assert torch.equal(first.x, again.x) and torch.equal(first.y, again.y) and not torch.equal(first.x, later.x)
    plain = RemixedEveryBatch(x, data.labels, 3, None).batch(index, 5)
    assert torch.equal(plain.x, x[:32].flatten(1)) and torch.equal(plain.y.argmax(1), data.labels[:32])


# Going on


def test_it_goes_on_from_any_step_to_the_same_end(tmp_path: Path) -> None:
    whole = flat(fit(Released([mixed()], CPU), RECIPE))
    for stop in (1, 4, 11):
        saved = Always(tmp_path / "kept", {"a": 1})
        with pytest.raises(KeyboardInterrupt):
            fit(Released([mixed()], CPU), RECIPE, saved=saved, progress=Stopping(stop))
        assert saved.path.exists()
        heard: list[int] = []
        said: list[str] = []
        again = Saved(saved.path, {"a": 1})
        found = fit(Released([mixed()], CPU), RECIPE, saved=again, progress=heard.append, note=said.append)
        assert torch.equal(flat(found), whole) and sum(heard) == 3 * 60
        assert heard[0] == stop // 4 * 60 + stop % 4 * 16 and said == [f"going on after step {stop} of 12"]
        (tmp_path / "kept.partial").touch()
        discard(saved.path)
        assert not list(tmp_path.iterdir())


class Always(Saved):
    """Keeps the state of every step."""

    def due(self) -> bool:
        return True


class Stopping:
    """Stops a training after so many steps, once the state of the last one is kept."""

    def __init__(self, steps: int) -> None:
        self.left = steps + 1  # it is called before the state is kept

    def __call__(self, rows: int) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


TRAINING = """
import os, sys, torch
from pathlib import Path
from mixveil.learn.training import opened, train_mlp
from mixveil.learn.fit import TrainingRecipe
torch.set_num_threads(1)
folder = Path(sys.argv[1])
def said(rows):
    print(rows, flush=True)
for line in sys.stdin:  # each line asks for a process of its own, which need not import torch again
    child = os.fork()
    if not child:
        print(os.getpid(), flush=True)
        recipe = TrainingRecipe(epochs=4, batch=16)
        trained = train_mlp(opened([folder / "release"]), recipe=recipe, state=folder / "kept", every=0, progress=said)
        torch.save([tensor for layer in trained.layers.layers for tensor in layer], folder / "layers.pt")
        os._exit(0)
    print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_killed_twice_it_ends_the_same(tmp_path: Path) -> None:
    """SIGKILL, at two points of the training, while states are written as often as can be."""
    data = blobs(160, 1)
    encoder, guarantees = Singular().calibrate(Mu(8.0), settled_facts(data, certified=True, public=None, clip=None))
    write_release(tmp_path / "release", data, encoder, guarantees, party="a", stream=SeededStream(1))
    command = [sys.executable, "-c", TRAINING, str(tmp_path)]
    begun = [0]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        for steps in (7, 9, None):
            process.stdin.write("\n")
            process.stdin.flush()
            child = int(process.stdout.readline())
            begun.append(int(process.stdout.readline()) // 16)  # the first step, or those that are done already
            if steps is not None:
                for _ in range(steps):
                    process.stdout.readline()
                os.kill(child, signal.SIGKILL)
            ended = next(line for line in process.stdout if line.startswith("ended"))
            assert int(ended.split()[1]) == (0 if steps is None else -signal.SIGKILL)
    assert process.returncode == 0
    assert begun[1] == 1 and 1 <= begun[2] < begun[3], begun  # it did go on, both times
    whole = fit(Released([read_release(tmp_path / "release")], CPU), TrainingRecipe(epochs=4, batch=16)).layers()
    kept = torch.load(tmp_path / "layers.pt", weights_only=True)
    for (weight, bias), found in zip(whole.layers, zip(kept[::2], kept[1::2], strict=True), strict=True):
        assert torch.allclose(weight, found[0], atol=1e-6) and torch.allclose(bias, found[1], atol=1e-6)


CHANGES: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda tensor: tensor[:1],
    lambda tensor: tensor[None],
    lambda tensor: tensor.double(),
    lambda tensor: tensor * torch.nan,
)


def kept_state(path: Path, recipe: TrainingRecipe = RECIPE) -> bytes:
    """The state of a training that was stopped after its second step."""
    with pytest.raises(KeyboardInterrupt):
        fit(Released([mixed()], CPU), recipe, saved=Always(path, {"epochs": 3, "a": 1}), progress=Stopping(2))
    return path.read_bytes()


def test_a_state_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    kept = kept_state(path)
    with pytest.raises(errors.TrainingError, match="epochs"):
        fit(Released([mixed()], CPU), RECIPE, saved=Saved(path, {"epochs": 4, "a": 1}))
    with pytest.raises(errors.TrainingError, match=r"\bb\b"):
        fit(Released([mixed()], CPU), RECIPE, saved=Saved(path, {"epochs": 3, "a": 1, "b": 2}))
    for damaged in (b"", b"nothing", kept[: len(kept) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(errors.TrainingError, match="remove it"):
            fit(Released([mixed()], CPU), RECIPE, saved=Saved(path, {"epochs": 3, "a": 1}))
        assert path.read_bytes() == damaged


def test_a_state_that_is_no_plain_file_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    kept_state(path)
    path.rename(tmp_path / "good")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 1 << 30)
    deep = {"about": "[" * 100_000, "steps": "3"}
    save_file({"x": torch.zeros(1)}, tmp_path / "deep", deep)
    save_file({"x": torch.zeros(1)}, tmp_path / "digits", {"about": '{"epochs": 3, "a": 1}', "steps": "9" * 5000})
    for name in ("pipe", "large", "deep", "digits"):
        with pytest.raises(errors.TrainingError, match="remove it"):
            fit(Released([mixed()], CPU), RECIPE, saved=Saved(tmp_path / name, {"epochs": 3, "a": 1}))
    path.symlink_to(tmp_path / "good")
    with pytest.raises(errors.TrainingError, match="is a link"):
        fit(Released([mixed()], CPU), RECIPE, saved=Saved(path, {"epochs": 3, "a": 1}))


def test_a_state_that_is_replaced_after_it_was_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = tmp_path / "kept", tmp_path / "other"
    kept_state(path)
    save_file({"x": torch.zeros(1)}, other)
    check = check_header

    def replaced(*args: Any, **options: Any) -> None:
        check(*args, **options)
        other.rename(path)

    monkeypatch.setattr(mixveil.core.checkpoint, "check_header", replaced)
    fit(Released([mixed()], CPU), RECIPE, saved=Saved(path, {"epochs": 3, "a": 1}))
    assert not other.exists()


@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
def test_a_forged_state_is_refused(optimiser: Literal["adamw", "sgd"], tmp_path: Path) -> None:
    """Whatever does not fit the model, the optimiser or the steps: it could crash the process, or pass for trained."""
    path, recipe = tmp_path / "kept", replace(RECIPE, optimiser=optimiser)
    kept_state(path, recipe)
    with safe_open(path, framework="pt") as file:
        said, tensors = file.metadata(), {name: file.get_tensor(name).clone() for name in sorted(file.keys())}
    moment = "optimiser.0.exp_avg" if optimiser == "adamw" else "optimiser.0.momentum_buffer"
    forged: list[tuple[dict[str, str], dict[str, Tensor]]] = [
        ({"steps": steps}, {}) for steps in ("0", "-3", "12", "1000000000", "x", "")
    ]
    forged += [
        ({}, {name: change(tensors[name])})
        for name in ("model.dense.2.bias", "model.norms.0.running_var", moment)
        for change in CHANGES
    ]
    forged += [({}, {"model.norms.0.running_var": -tensors["model.norms.0.running_var"]})]
    forged += [({}, {"optimiser.99.exp_avg": torch.zeros(1)}), ({}, {"model.more": torch.zeros(1)})]
    if optimiser == "adamw":
        forged += [
            ({}, {"optimiser.0.step": torch.tensor(-5.0)}),
            ({}, {"optimiser.0.step": torch.tensor(7.0)}),
            ({}, {"optimiser.0.exp_avg_sq": -(tensors[moment] ** 2)}),
        ]
    without = {name: tensor for name, tensor in tensors.items() if name != moment}
    for place, (words, changed) in enumerate([*forged, ({}, without)]):
        whole = without if changed is without else {**tensors, **changed}
        save_file({name: tensor.contiguous() for name, tensor in whole.items()}, path, {**said, **words})
        with pytest.raises(errors.TrainingError, match="remove it"):
            fit(Released([mixed()], CPU), recipe, saved=Saved(path, {"epochs": 3, "a": 1}))
            pytest.fail(str(place))
    save_file(tensors, path, said)
    fit(Released([mixed()], CPU), recipe, saved=Saved(path, {"epochs": 3, "a": 1}))


def test_told_to_stop_it_keeps_its_state(tmp_path: Path) -> None:
    whole = flat(fit(Released([mixed()], CPU), RECIPE))
    asked = iter([False, False, True])
    with pytest.raises(errors.TrainingStopped, match="after step 3 of 12"):
        fit(Released([mixed()], CPU), RECIPE, saved=Saved(tmp_path / "kept", {}), stop=lambda: next(asked))
    assert (tmp_path / "kept").exists()
    assert torch.equal(flat(fit(Released([mixed()], CPU), RECIPE, saved=Saved(tmp_path / "kept", {}))), whole)


def test_a_state_of_other_releases_is_refused(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_release(tmp_path / str(seed), blobs(60, seed), Identity(), (), party="a", stream=SeededStream(seed))
    with pytest.raises(errors.TrainingStopped):
        train_mlp(opened([tmp_path / "1"]), recipe=RECIPE, state=tmp_path / "kept", stop=lambda: True)
    with pytest.raises(errors.TrainingError, match="releases"):
        train_mlp(opened([tmp_path / "2"]), recipe=RECIPE, state=tmp_path / "kept")


def test_a_state_is_never_that_of_a_broken_training_or_of_a_finished_one(tmp_path: Path) -> None:
    wild = replace(RECIPE, optimiser="sgd", learning_rate=1e38)
    with pytest.raises(errors.TrainingError, match="smaller learning rate"):
        fit(Released([clear()], CPU), wild, saved=Always(tmp_path / "wild", {}))
    if (tmp_path / "wild").exists():
        with safe_open(tmp_path / "wild", framework="pt") as file:
            assert all(bool(file.get_tensor(name).isfinite().all()) for name in sorted(file.keys()))
    asked = iter([False] * 11 + [True])  # too late: it is done
    fit(Released([mixed()], CPU), RECIPE, saved=Always(tmp_path / "kept", {}), stop=lambda: next(asked))
    with safe_open(tmp_path / "kept", framework="pt") as file:
        assert file.metadata()["steps"] == "11"


def test_a_state_is_on_the_disk_before_it_replaces_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    sync, rename = os.fsync, Path.rename

    def synced(descriptor: int) -> None:
        order.append("sync")
        sync(descriptor)

    def renamed(self: Path, to: Path) -> Path:
        order.append("rename")
        return rename(self, to)

    model = Classifier(4, 2, draws=DeviceStream(SeededStream(0)))
    optimiser = RECIPE.optimiser_of(model)
    with monkeypatch.context() as inside:
        inside.setattr(os, "fsync", synced)
        inside.setattr(Path, "rename", renamed)
        Saved(tmp_path / "kept", {}).save(model, optimiser, 1)
    assert order == ["sync", "rename"]

    def full(descriptor: int) -> None:
        raise OSError("full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(errors.OutputError, match="full"):
        Saved(tmp_path / "other", {}).save(model, optimiser, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_state_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(errors.OutputError, match="state of the training"):
        fit(Released([mixed()], CPU), RECIPE, saved=Saved(tmp_path / "file" / "kept", {}, every=0))


def test_states_are_not_written_all_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0

    def slow(*_: object) -> None:
        nonlocal now
        now += 5
        (tmp_path / "kept.partial").write_text("kept")

    monkeypatch.setattr("mixveil.core.checkpoint.time.monotonic", lambda: now)
    monkeypatch.setattr("mixveil.core.checkpoint.save_file", slow)
    model = Classifier(4, 2, draws=DeviceStream(SeededStream(0)))
    saved = Saved(tmp_path / "kept", {}, every=30)
    seen = []
    for _ in range(200):
        now += 1
        if saved.due():
            seen.append(now)
            saved.save(model, RECIPE.optimiser_of(model), 1)
    assert seen == [130, 185, 240, 295]  # after 30 seconds, and then ten times as long as writing takes


# What is refused


@pytest.mark.parametrize(
    "settings", [{"epochs": 0}, {"batch": 1}, {"learning_rate": 0.0}, {"learning_rate": math.nan}, {"seed": -1}]
)
def test_settings_out_of_their_domain(settings: dict[str, float]) -> None:
    with pytest.raises(errors.ArgumentError):
        TrainingRecipe(**settings)  # type: ignore[arg-type]
    with pytest.raises(errors.ArgumentError, match="optimiser"):
        TrainingRecipe(optimiser="adam")  # type: ignore[arg-type]


def test_a_training_that_diverges_says_so() -> None:
    with pytest.raises(errors.TrainingError, match="smaller learning rate"):
        fit(Released([clear()], CPU), replace(RECIPE, optimiser="sgd", learning_rate=1e38))
