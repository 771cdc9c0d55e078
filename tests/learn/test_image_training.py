"""ResNet-18 from scratch on encodings: shapes, sources of epochs, the loop against a plain one, and resuming."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mixveil.core.checkpoint import Saved
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import ArgumentError, TooFewRowsError, TrainingError, TrainingStopped
from mixveil.core.first_weights import started
from mixveil.core.randomness import SeededStream
from mixveil.data.opening import open_data
from mixveil.encoders.batch_transform import BatchTransform
from mixveil.encoders.instahide import InstaHide
from mixveil.learn.epochs import EncodedEveryEpoch, Normalisation, SameEveryEpoch, moved
from mixveil.learn.image_training import ImageRecipe, ImageTraining, averaged, fit_images, probabilities
from mixveil.learn.resnet import ResNet18

CPU = torch.device("cpu")
DIGITS = open_data("digits:train").part(torch.arange(300))
X, LABELS = DIGITS.take(torch.arange(300)).x, DIGITS.labels
QUICK = ImageRecipe(epochs=2, batch=64, width=4)


def net(classes: int = 10, width: int = 4, seed: int = 0) -> ResNet18:
    return started(ResNet18(classes, width), DeviceStream(SeededStream(seed)), CPU)


def encoded(seed: int = 1, rows: int = 300) -> EncodedEveryEpoch:
    transform = BatchTransform(InstaHide(k=2), classes=10, stream=SeededStream(seed))
    return EncodedEveryEpoch(X[:rows], LABELS[:rows], 10, Normalisation(), transform)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (1, 8, 8)], ids=str)
def test_images_of_several_sizes_pass(shape: tuple[int, ...]) -> None:
    model = net().eval()
    x = SeededStream(0).uniform(3, *shape).float()
    assert model(x).shape == (3, 10)
    if shape[0] == 1:
        assert torch.allclose(model(x), model(x.expand(-1, 3, -1, -1)))


def test_it_is_the_known_network() -> None:
    """Eighteen layers with weights, and as many values as the ResNet-18 for CIFAR-10 has: 11,173,962."""
    model = ResNet18(10)
    assert sum(parameter.numel() for parameter in model.parameters()) == 11_173_962
    convolutions = [module for module in model.modules() if isinstance(module, torch.nn.Conv2d)]
    assert len([conv for conv in convolutions if conv.kernel_size == (3, 3)]) + 1 == 18
    assert model.blocks(torch.zeros(1, 64, 32, 32)).shape == (1, 512, 4, 4)


def test_first_weights_follow_from_the_seed() -> None:
    one, same, other = net(), net(), net(seed=1)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.stem.weight, other.stem.weight)


def test_normalised_images_have_three_colours() -> None:
    octets = (X * 255).round().byte()
    found = Normalisation((0.1, 0.2, 0.3), (0.5, 0.4, 0.2))(octets)
    assert found.shape == (300, 3, 8, 8)
    for colour, (mean, std) in enumerate(((0.1, 0.5), (0.2, 0.4), (0.3, 0.2))):
        assert torch.allclose(found[:, colour], (octets[:, 0] / 255 - mean) / std, atol=1e-5)
    assert torch.allclose(Normalisation()(X), (X.expand(-1, 3, -1, -1) - 0.5) / 0.5)


def test_moved_images_are_crops_of_padded_ones() -> None:
    x = SeededStream(0).uniform(40, 2, 6, 5)
    found = moved(x, DeviceStream(SeededStream(1)), pad=2)
    wide = torch.nn.functional.pad(x, (2, 2, 2, 2))
    seen = set()
    for i in range(40):
        matches = [
            (down, right, mirror)
            for down in range(5)
            for right in range(5)
            for mirror in (False, True)
            if torch.equal(found[i], _flipped(wide[i, :, down : down + 6, right : right + 5], mirror))
        ]
        assert len(matches) == 1
        seen.add(matches[0])
    assert len(seen) > 15 and {mirror for _, _, mirror in seen} == {False, True}


def _flipped(image: Tensor, mirror: bool) -> Tensor:
    return image.flip(2) if mirror else image


def test_epochs_are_encoded_anew_and_repeat_by_number() -> None:
    source = encoded()
    first, second = source.epoch(0), source.epoch(1)
    assert not torch.equal(first.x, second.x) and not torch.equal(first.y, second.y)
    again = encoded().epoch(1)
    assert torch.equal(again.x, second.x) and torch.equal(again.y, second.y)
    assert first.x.shape == (300, 3, 8, 8) and torch.allclose(first.y.sum(1), torch.ones(300), atol=1e-6)
    moves = DeviceStream(SeededStream(2))
    augmented = EncodedEveryEpoch(X, LABELS, 10, Normalisation(), None, augment=moves)
    assert not torch.equal(augmented.epoch(0).x, augmented.epoch(1).x)
    assert torch.equal(augmented.epoch(0).y.argmax(1), LABELS)
    fixed = SameEveryEpoch(*first)
    assert torch.equal(fixed.epoch(0).x, fixed.epoch(5).x) and fixed.rows == 300
    with pytest.raises(ArgumentError, match="x must be"):
        SameEveryEpoch(first.x.flatten(1), first.y)


def test_the_loop_is_a_plain_loop() -> None:
    """Against the loop as one would write it: the same order of rows, momentum, decay and falls of the rate."""
    recipe = ImageRecipe(epochs=3, falls=(1, 2), batch=64, width=2, learning_rate=0.05)
    model, curve = fit_images(encoded(), recipe)
    slow = started(ResNet18(10, 2), DeviceStream(recipe.stream("first weights")), CPU)
    moments = {name: torch.zeros_like(value) for name, value in slow.named_parameters()}
    source, losses = encoded(), []
    for epoch in range(3):
        x, y = source.epoch(epoch)
        order = recipe.stream(f"epoch {epoch}").permutation(300)
        rate, total = 0.05 / 10**epoch, 0.0
        for start in range(0, 300, 64):
            rows = order[start : start + 64]
            slow.zero_grad()
            loss = cross_entropy(slow(x[rows].contiguous(memory_format=torch.channels_last)), y[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach()) * len(rows)
            with torch.no_grad():
                for name, value in slow.named_parameters():
                    assert value.grad is not None
                    moments[name] = 0.9 * moments[name] + value.grad + 1e-4 * value
                    value.sub_(rate * moments[name])
        losses.append(total / 300)
    assert [round(row["loss"], 4) for row in curve] == [round(loss, 4) for loss in losses]
    for name, value in model.named_parameters():
        assert torch.allclose(value, slow.get_parameter(name), atol=1e-3), name


def test_a_rest_too_small_for_a_batch_is_left_out() -> None:
    whole, _ = divmod(260, 64)
    assert ImageTraining(encoded(rows=260), QUICK).per_epoch == whole  # 4 rows are left
    assert ImageTraining(encoded(rows=300), QUICK).per_epoch == 300 // 64 + 1
    with pytest.raises(TooFewRowsError):
        ImageTraining(encoded(rows=6), QUICK)


@pytest.mark.parametrize("stops", [3, 5], ids=["within an epoch", "after an epoch"])
def test_a_stopped_training_ends_as_if_it_had_not(tmp_path: Path, stops: int) -> None:
    def measure(epoch: int, model: ResNet18) -> dict[str, float]:
        return {"first": float(probabilities(model, Normalisation()(X[:20]))[:, 0].mean())}

    whole, curve = fit_images(encoded(), QUICK, measure=measure)
    done: list[int] = []
    state = tmp_path / "state"
    with pytest.raises(TrainingStopped, match=f"step {stops} of 10"):
        asked = iter(range(1, 100))
        saved = Saved(state, {"of": "this"})
        fit_images(encoded(), QUICK, saved=saved, measure=measure, stop=lambda: next(asked) == stops)
    told: list[str] = []
    saved = Saved(state, {"of": "this"})
    again, rest = fit_images(encoded(), QUICK, saved=saved, measure=measure, progress=done.append, note=told.append)
    assert told == [f"going on after step {stops} of 10"] and sum(done) == 600
    assert rest == curve and [row["epoch"] for row in rest] == [1, 2]
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    with pytest.raises(TrainingError, match="another training, its of differ"):
        fit_images(encoded(), QUICK, saved=Saved(state, {"of": "that"}))


def test_two_trainings_in_turns_end_as_alone() -> None:
    trainings = [ImageTraining(encoded(seed), QUICK) for seed in (1, 2)]
    for _ in zip(*(training.steps() for training in trainings), strict=True):
        pass
    for seed, training in zip((1, 2), trainings, strict=True):
        alone, curve = fit_images(encoded(seed), QUICK)
        assert training.curve == curve and torch.equal(cast(ResNet18, training.model).head.weight, alone.head.weight)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_recorded_steps_are_the_steps() -> None:
    """On a GPU: as many full steps as a graph replays, with a fall of the rate, against the same without a graph."""
    recipe = ImageRecipe(epochs=4, falls=(2,), batch=32, width=8, learning_rate=0.02)
    transform = BatchTransform(InstaHide(k=1), classes=10, stream=SeededStream(1))
    source = EncodedEveryEpoch(X.cuda(), LABELS.cuda(), 10, Normalisation(), transform)
    (one, recorded), (two, plain) = (fit_images(source, recipe, graph=graph) for graph in (True, False))
    for first, second in zip(recorded, plain, strict=True):
        assert first["loss"] == pytest.approx(second["loss"], rel=0.03)
    assert torch.allclose(one.head.weight, two.head.weight, atol=0.05)


def test_a_training_that_diverges_says_so() -> None:
    with pytest.raises(TrainingError, match="smaller learning rate"):
        fit_images(encoded(), ImageRecipe(epochs=3, batch=32, width=2, learning_rate=1e30))


def test_it_learns_from_encodings() -> None:
    """Digits about zero: about one half, black and white ones would be alike behind signs."""
    train, test, normal = open_data("digits:train"), open_data("digits:test"), Normalisation((0.0,), (0.5,))
    pixels, x = train.take(torch.arange(len(train))).x, normal(test.take(torch.arange(len(test))).x)
    transform = BatchTransform(InstaHide(k=1), classes=10, stream=SeededStream(1))
    source = EncodedEveryEpoch(pixels, train.labels, 10, normal, transform)
    model, curve = fit_images(source, ImageRecipe(epochs=3, falls=(2,), batch=32, width=4))
    assert curve[-1]["loss"] < curve[0]["loss"]
    encode = BatchTransform(InstaHide(k=1), classes=10, stream=SeededStream(2))
    found = averaged(model, (encode(x, test.labels)[0] for _ in range(3)))
    assert torch.allclose(found.sum(1), torch.ones(len(test)), atol=1e-4)
    assert float(found.argmax(1).eq(test.labels).double().mean()) > 0.3  # of ten classes


def test_bad_recipes_are_refused() -> None:
    for name, value in (("epochs", 0), ("batch", 4), ("width", 0), ("learning_rate", -1.0), ("weight_decay", -1.0)):
        with pytest.raises(ArgumentError, match=name.replace("_", " ")):
            ImageRecipe(**{name: value})  # type: ignore[arg-type]
