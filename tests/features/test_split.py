"""Split networks: where they are cut, and their halves on disk, honest and forged."""

from __future__ import annotations

import copy
import json
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils import spectral_norm
from torch.nn.utils.parametrizations import weight_norm

from mixveil.attacks.representations.inversion import Inversion
from mixveil.attacks.representations.inversion_adaptive import InversionAdaptive
from mixveil.attacks.representations.inversion_gan import InversionGan
from mixveil.attacks.shared.inverting import Target
from mixveil.attacks.shared.training import TrainingCache
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import (
    ArgumentError,
    DataFormatError,
    MismatchError,
    MissingPathError,
    MixveilError,
    OutputExistsError,
    VersionError,
)
from mixveil.core.first_weights import started
from mixveil.core.randomness import SeededStream
from mixveil.core.types import Attack, View
from mixveil.features.split import layers, networks
from mixveil.features.split.half import Half, halves, read_half, write_half
from mixveil.features.split.networks import cut
from mixveil.features.split.shapes import shapes
from mixveil.releases.representations import in_memory
from tests.made import images
from tests.made import write as write_records

CPU = torch.device("cpu")


def uniform(*shape: int, seed: int = 1) -> Tensor:
    return SeededStream(seed).uniform(*shape).float()


def weighted(net: nn.Sequential, seed: int = 0) -> nn.Sequential:
    """Weights, means and variances that none of the defaults would give."""
    stream = SeededStream(seed)
    for name, tensor in net.state_dict().items():
        if tensor.is_floating_point():
            drawn = stream.normal(*tensor.shape)
            scale = max(1, tensor[0].numel()) ** -0.5 if tensor.dim() > 1 else 0.3
            tensor.copy_(0.5 + drawn.abs() if name.endswith("running_var") else scale * drawn)
    return net.eval()


def names(count: int) -> tuple[str, ...]:
    return tuple(f"c{number}" for number in range(count))


def split(net: nn.Sequential, after: str, shape: tuple[int, ...], classes: int) -> tuple[Half, Half]:
    return halves(*cut(net, after), shape, names(classes), how={"network": "test", "seed": 3})


def outputs(net: nn.Module, x: Tensor) -> Tensor:
    with torch.inference_mode():
        found: Tensor = net(x)
    return found


def own(*, odd: nn.Module | None = None) -> nn.Sequential:
    """A user's network, with torch's own layers: 2 × 8 × 8 to 3 scores."""
    relu = nn.ReLU()
    blocks: OrderedDict[str, nn.Module] = OrderedDict(
        stem=nn.Sequential(nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), relu, nn.MaxPool2d((2, 2))),
        middle=nn.Sequential(odd or nn.Conv2d(4, 4, 3, 1, 1), relu, nn.Sequential(nn.Tanh(), nn.AvgPool2d(2))),
        flat=nn.Flatten(),
        last=nn.Sequential(nn.Linear(16, 6), nn.GELU(), nn.Linear(6, 3, bias=False), nn.Sigmoid()),
    )
    return weighted(nn.Sequential(blocks))


KNOWN: list[tuple[str, tuple[int, ...], int]] = [
    ("lenet5", (1, 28, 28), 10),
    ("lenet5", (1, 8, 8), 10),
    ("lenet5", (3, 32, 32), 4),
    ("lenet5", (2, 31, 31), 4),
    ("vgg16", (3, 32, 32), 10),
    ("synthetic", (10,), 2),
]


@pytest.mark.parametrize(("name", "shape", "classes"), KNOWN)
def test_known_networks_come_back_as_they_were(tmp_path: Path, name: str, shape: tuple[int, ...], classes: int) -> None:
    net = weighted(networks.network(name, shape, classes))
    x = uniform(2, *shape)
    whole = outputs(net, x)
    both = split(net, networks.NETWORKS[name].cut, shape, classes)
    for half in both:
        write_half(tmp_path / half.role, half)
    client = read_half(tmp_path / "client", "client")
    (tmp_path / "client" / "weights.safetensors").unlink()  # the other half is read by itself
    server = read_half(tmp_path / "server", "server")
    for half, again in zip(both, (client, server), strict=True):
        assert (again.shape, again.output, again.classes, again.how) == (
            half.shape,
            half.output,
            half.classes,
            half.how,
        )
        assert again.digest == half.digest and again.partner == half.partner
        assert not again.net.training and again.values == len(half.in_batches(uniform(1, *half.shape))[0])
    assert server.partner == client.digest != server.digest and client.partner is None
    assert torch.equal(server.on(CPU)(client.on(CPU)(x)), whole)
    assert client.net is not None and torch.equal(outputs(net, x), whole)


@pytest.mark.parametrize(
    "after", ["stem", "stem.0", "stem.2", "stem.3", "middle.1", "middle.2.0", "middle.2", "flat", "last.2"]
)
def test_it_can_be_cut_behind_every_layer(tmp_path: Path, after: str) -> None:
    net, x = own(), uniform(3, 2, 8, 8)
    whole = outputs(net, x)
    client, server = cut(net, after)
    assert torch.equal(outputs(server, outputs(client, x)), whole)
    one, other = split(net, after, (2, 8, 8), 3)
    write_half(tmp_path / "c", one)
    write_half(tmp_path / "s", other)
    sent = read_half(tmp_path / "c").in_batches(x)
    assert sent.shape == (3, one.values) and torch.equal(read_half(tmp_path / "s").in_batches(sent), whole)


def test_cuts_that_leave_nothing_or_lie_nowhere() -> None:
    net = own()
    for after in ("last", "last.3", "nowhere", "", "stem.9", "flat.0", "stem.0.1", "_modules"):
        with pytest.raises(ArgumentError):
            cut(net, after)
    with pytest.raises(ArgumentError):
        cut(nn.Linear(2, 2), "weight")  # type: ignore[arg-type]


def test_halves_are_copies() -> None:
    """Training on, or moving the network, does not change halves that were made, nor do they change the network."""
    net, x = own().train(), uniform(3, 2, 8, 8)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    client, server = split(net, "stem", (2, 8, 8), 3)
    assert type(net.get_submodule("stem.1")) is nn.BatchNorm2d and net.training and not client.net.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    found, digest = client.in_batches(x), client.digest
    for parameter in net.parameters():
        parameter.data.add_(1)
    assert torch.equal(client.in_batches(x), found) and split(net, "stem", (2, 8, 8), 3)[0].digest != digest
    assert server.in_batches(found).shape == (3, 3)


def test_batches_views_and_no_rows() -> None:
    client, _ = split(own(), "middle", (2, 8, 8), 3)
    x = uniform(5, 2, 8, 8)
    whole = client.in_batches(x)
    assert whole.shape == (5, 16) and not whole.requires_grad
    torch.testing.assert_close(client.in_batches(x, rows=2), whole)
    torch.testing.assert_close(client.in_batches(x.flatten(1).double()), whole)
    across = x.transpose(2, 3).contiguous().transpose(2, 3)
    assert not across.is_contiguous()
    torch.testing.assert_close(client.in_batches(across), whole)
    assert client.in_batches(x[:0]).shape == (0, 16)
    seen = x.clone().requires_grad_()
    client.on(CPU)(seen).sum().backward()  # type: ignore[no-untyped-call]
    assert seen.grad is not None and float(seen.grad.abs().sum()) > 0
    assert all(parameter.grad is None for parameter in client.net.parameters())


def test_large_representations_go_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = split(own(), "middle", (2, 8, 8), 3)
    seen: list[int] = []

    def run(x: Tensor) -> Tensor:
        seen.append(len(x))
        return x.flatten(1)

    monkeypatch.setattr(Half, "on", lambda half, device: run)
    monkeypatch.setattr("mixveil.features.split.half._AT_ONCE", 3 * 4 * 8 * 8)  # three rows behind the first layer
    client.in_batches(uniform(7, 2, 8, 8))
    assert seen == [3, 3, 1]


class Doubled(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return 2 * found


class Renamed(nn.Sequential):
    """A sequence by another name, as torchvision's blocks are."""


def hooked() -> nn.Module:
    layer = nn.Conv2d(4, 4, 3, 1, 1)
    layer.register_forward_hook(lambda layer, given, made: made + 1)
    return layer


def replaced() -> nn.Module:
    layer = nn.ReLU()
    layer.forward = lambda x: x + 1  # type: ignore[assignment, method-assign]
    return layer


def twice() -> nn.Module:
    layer = nn.Conv2d(4, 4, 1)
    return nn.Sequential(layer, nn.Tanh(), layer)


ODD: dict[str, Callable[[], nn.Module]] = {
    "dilation": lambda: nn.Conv2d(4, 4, 3, 1, 2, dilation=2),
    "groups": lambda: nn.Conv2d(4, 4, 3, 1, 1, groups=2),
    "same": lambda: nn.Conv2d(4, 4, 3, padding="same"),
    "valid": lambda: nn.Sequential(nn.Conv2d(4, 4, 1, padding="valid")),
    "reflect": lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"),
    "uneven": lambda: nn.Conv2d(4, 4, (3, 1), padding=(1, 0)),
    "even tuples": lambda: nn.Conv2d(4, 4, (3, 3), (1, 1), (1, 1)),
    "large": lambda: nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.AvgPool2d(1, 1, 0)),
    "ceil": lambda: nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True)),
    "pool dilation": lambda: nn.MaxPool2d(2, 1, 1, dilation=2),
    "indices": lambda: nn.MaxPool2d(3, 1, 1, return_indices=True),
    "average ceil": lambda: nn.AvgPool2d(3, 1, 1, ceil_mode=True),
    "average without padding": lambda: nn.AvgPool2d(3, 1, 1, count_include_pad=False),
    "average divisor": lambda: nn.AvgPool2d(3, 1, 1, divisor_override=5),
    "in place": lambda: nn.ReLU(inplace=True),
    "tanh gelu": lambda: nn.GELU("tanh"),
    "epsilon": lambda: nn.BatchNorm2d(4, eps=1e-3),
    "momentum": lambda: nn.BatchNorm2d(4, momentum=0.01),
    "affine": lambda: nn.BatchNorm2d(4, affine=False),
    "no statistics": lambda: nn.BatchNorm2d(4, track_running_stats=False),
    "instance": lambda: nn.InstanceNorm2d(4),
    "dropout": lambda: nn.Dropout(0.5),
    "double": lambda: nn.Conv2d(4, 4, 3, 1, 1).double(),
    "double statistics": lambda: nn.BatchNorm2d(4).double(),
    "hook": hooked,
    "own forward": replaced,
    "own sequence": lambda: Doubled(nn.ReLU()),
    "sequence by another name": lambda: Renamed(nn.ReLU(), nn.Conv2d(4, 4, 1)),
    "twice": twice,
    "weight norm": lambda: weight_norm(nn.Conv2d(4, 4, 3, 1, 1)),
    "spectral norm": lambda: spectral_norm(nn.Conv2d(4, 4, 3, 1, 1)),
    "empty": lambda: nn.Sequential(),
    "name": lambda: nn.Sequential(OrderedDict([("my layer", nn.ReLU())])),
    "long name": lambda: nn.Sequential(OrderedDict([("a" * 61, nn.ReLU())])),
    "channels last": lambda: nn.Conv2d(4, 4, 3, 1, 1).to(memory_format=torch.channels_last),  # type: ignore[call-overload]
    "deep": lambda: deep(40),
    "flatten": lambda: nn.Sequential(nn.Flatten(2), nn.Unflatten(2, (4, 4))),
}  # fmt: skip
TAKEN = {"even tuples", "large", "sequence by another name", "twice", "empty", "channels last"}


def deep(levels: int) -> nn.Sequential:
    net = nn.Sequential(nn.ReLU())
    for _ in range(levels):
        net = nn.Sequential(net)
    return net


@pytest.mark.parametrize("which", ODD)
def test_odd_layers_are_kept_as_they_are_or_refused(tmp_path: Path, which: str) -> None:
    """Never changed in silence: whatever is written computes the same when it is read."""
    net, x = own(odd=ODD[which]()), uniform(3, 2, 8, 8)
    if which not in TAKEN:
        with pytest.raises(ArgumentError):
            for half in split(net, "stem", (2, 8, 8), 3):
                write_half(tmp_path / half.role, half)
        assert not (tmp_path / "server").exists()
        return
    whole = outputs(net, x)
    for half in split(net, "stem", (2, 8, 8), 3):
        write_half(tmp_path / half.role, half)
        assert read_half(tmp_path / half.role).digest == half.digest
    found = read_half(tmp_path / "server").in_batches(read_half(tmp_path / "client").in_batches(x))
    torch.testing.assert_close(found, whole, rtol=1e-6, atol=1e-6)


def test_networks_that_do_not_fit_are_refused() -> None:
    net = own()
    for shape, classes in (((2, 8, 8), 4), ((3, 8, 8), 3), ((2, 9, 16), 3), ((128,), 3), ((2, 1, 1), 3), ((2, 8), 3)):
        with pytest.raises(MismatchError):
            split(net, "stem", shape, classes)
    with pytest.raises(ArgumentError, match="lenet5"):
        networks.network("lenet6", (1, 8, 8), 2)
    for name, shape in (("lenet5", (1, 28, 20)), ("vgg16", (3, 31, 32)), ("lenet5", (64,))):
        with pytest.raises(ArgumentError):
            networks.network(name, shape, 10)


def test_weights_and_facts_that_could_not_be_read_are_not_written(tmp_path: Path) -> None:
    client, _ = split(own(), "stem", (2, 8, 8), 3)
    spoiled = copy.deepcopy(client.net)
    next(spoiled.parameters()).data[0] = torch.nan
    facts: list[dict[str, Any]] = [
        {"low": 1.0, "high": 0.0}, {"low": float("nan")}, {"classes": ("a", "a")}, {"classes": ()}, {"how": {"a": [1]}},
        {"how": {"a": float("inf")}}, {"net": spoiled}, {"output": (5,)}, {"shape": (2, 12, 12)}, {"role": "other"},
    ]  # fmt: skip
    given = {name: getattr(client, name) for name in Half.__dataclass_fields__}
    for number, fact in enumerate(facts):
        with pytest.raises(ArgumentError):
            write_half(tmp_path / str(number), Half(**{**given, **fact}))
        assert not (tmp_path / str(number)).exists()
    write_half(tmp_path / "c", client)
    with pytest.raises(OutputExistsError):
        write_half(tmp_path / "c", client)


def test_the_digest_is_that_of_what_is_computed(tmp_path: Path) -> None:
    net = own()
    client, server = cut(net, "stem")
    digests = set()
    for low, high in ((0, 1), (0.0, 1.0), (-1.0, 1.0)):
        half = halves(client, server, (2, 8, 8), names(3), low=low, high=high)[0]
        write_half(tmp_path / f"{len(list(tmp_path.iterdir()))}", half)
        digests.add(half.digest)
    assert len(digests) == 2
    assert {read_half(folder).digest for folder in tmp_path.iterdir()} == digests
    net.get_submodule("stem.1").get_buffer("running_mean").add_(1)
    assert halves(*cut(net, "stem"), (2, 8, 8), names(3))[0].digest not in digests


def test_shapes_are_those_of_the_network_itself() -> None:
    for seed in range(60):
        draws = (SeededStream(seed).uniform(6) * torch.tensor([5, 3, 3, 9, 9, 3])).int().tolist()
        size, stride, padding = 1 + draws[0], 1 + draws[1], draws[2]
        shape = (2, 1 + draws[3], 1 + draws[4])
        window = [
            nn.Conv2d(2, 3, size, stride, padding),
            nn.MaxPool2d(size, stride, padding),
            nn.AvgPool2d(size, stride, padding),
        ]
        net = nn.Sequential(window[draws[5]], nn.ReLU(), nn.Sequential(nn.Flatten(), nn.Tanh()))
        found = expected = None
        with suppress(MismatchError):
            found = shapes(net, shape)[-1]
        with suppress(RuntimeError):
            expected = tuple(outputs(net, torch.zeros(1, *shape)).shape[1:])
        assert found == expected


def test_the_work_is_counted_from_the_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolution: 3 outputs of 8 × 8 from windows of 2 × 3 × 3; pool: 3 × 4 × 4 from windows of 2 × 2; linear: 48 to
    5; the rest passes values on."""
    conv2d, pooled = nn.Conv2d(2, 3, 3, padding=1), nn.Sequential(nn.Tanh(), nn.MaxPool2d(2))
    net = nn.Sequential(conv2d, pooled, nn.Flatten(), nn.Linear(48, 5))
    work = 3 * 64 * 2 * 9 + 10 * 3 * 64 + 100 * 48 * 4 + 10 * 48 + 48 * 5
    monkeypatch.setattr("mixveil.features.split.shapes.MOST_WORK", work)
    assert shapes(net, (2, 8, 8))[-1] == (5,)
    monkeypatch.setattr("mixveil.features.split.shapes.MOST_WORK", work - 1)
    with pytest.raises(MismatchError, match="multiply-adds"):
        shapes(net, (2, 8, 8))


def test_a_half_that_works_for_very_long_is_not_made_and_large_networks_are() -> None:
    pools = [nn.AvgPool2d(8191, 1, 4095), nn.AvgPool2d(4096, 1)]
    net = nn.Sequential(nn.Conv2d(1, 1, 1, padding=2044), *pools, nn.Flatten(), nn.Linear(1, 2))
    with pytest.raises(MismatchError, match="multiply-adds"):
        halves(*cut(net, "2"), (1, 8, 8), names(2))
    with torch.device("meta"):
        assert shapes(networks.vgg16((3, 224, 224), 1000), (3, 224, 224))[-1] == (1000,)
    assert shapes(networks.lenet5((1, 8, 8), 10), (1, 8, 8))[-1] == (10,)


def test_all_values_are_those_of_every_layer() -> None:
    """What hooks on every layer see, and the image itself."""
    client, _ = split(own(), "middle", (2, 8, 8), 3)
    net, seen = copy.deepcopy(client.net), [2 * 8 * 8]
    for each in net.modules():
        if not isinstance(each, nn.Sequential):
            each.register_forward_hook(lambda layer, given, made: seen.append(made.numel()))
    outputs(net, uniform(1, 2, 8, 8))
    assert client.all_values == sum(seen)


def wide(channels: int = 16_384, activations: int = 30) -> Half:
    """A small file that makes much of an image."""
    inner = nn.Sequential(
        nn.Conv2d(1, channels, 1), *[nn.ReLU() for _ in range(activations)], nn.Conv2d(channels, 1, 1)
    )
    net = nn.Sequential(OrderedDict(wide=inner, flat=nn.Flatten(), last=nn.Linear(64, 2)))
    net = started(net, DeviceStream(SeededStream(0)), CPU)
    return halves(*cut(net, "wide"), (1, 8, 8), names(2))[0]


def test_attacks_work_on_fewer_images_where_a_half_makes_much_of_each() -> None:
    def together(client: Half) -> int:
        return Target(torch.zeros(1, client.values), client.on(CPU), client, client.output).together

    assert together(split(own(), "stem", (2, 8, 8), 3)[0]) == 512
    assert wide().all_values == 64 * (2 + 31 * 16_384) and together(wide()) == 4  # 2^27 values: 512 MB
    assert together(wide(activations=300)) == 1


@pytest.mark.parametrize("attack", ["inversion", "inversion-adaptive", "inversion-gan"])
def test_what_attacks_get_does_not_depend_on_how_many_go_at_once(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client, cache = wide(8, 2), TrainingCache(None, 3)
    data, public = (images(n, (1, 8, 8), seed=n) for n in (9, 60))
    view = View((in_memory(data, client),), client=client, public=public)
    made: dict[str, Attack] = {
        "inversion": Inversion(steps=3),
        "inversion-adaptive": InversionAdaptive(steps=4, cache=cache),
        "inversion-gan": InversionGan(cache=cache),
    }
    whole = made[attack](view, stream=SeededStream(0)).images
    most, run = 0, Half.on

    def counted(half: Half, device: torch.device) -> Callable[[Tensor], Tensor]:
        def through(x: Tensor) -> Tensor:
            nonlocal most
            most = max(most, len(x))
            return run(half, device)(x)

        return through

    monkeypatch.setattr(Half, "on", counted)
    monkeypatch.setattr("mixveil.attacks.shared.inverting._VALUES_TOGETHER", 4 * client.all_values)
    few = made[attack](view, stream=SeededStream(0)).images
    assert most == 4 and whole is not None and few is not None
    # Not to the last digit: training and Adam blow up the rounding of sums taken in another order, on each machine
    # in its own way. A mix-up of images or an image left out would move whole images by as much as they differ.
    apart, differ = (few - whole).abs(), (whole - whole.roll(1, 0)).abs()
    assert float(apart.mean()) < 0.1 * float(differ.mean())
    assert float(apart.flatten(1).mean(1).max()) < 0.5 * float(differ.flatten(1).mean(1).min())


# Forged halves.


def layer(code: str, **settings: int) -> dict[str, Any]:
    return {"name": "a", "layer": code, **settings}


def conv(inputs: int, outputs: int, size: int = 1, stride: int = 1, padding: int = 0) -> dict[str, Any]:
    sizes = {"in_channels": inputs, "out_channels": outputs, "kernel_size": size, "stride": stride}
    return layer("convolution", **sizes, padding=padding, bias=0)


def pool(size: int, padding: int, code: str = "max-pool") -> dict[str, Any]:
    return layer(code, kernel_size=size, stride=1, padding=padding)


def row(*given: dict[str, Any]) -> list[dict[str, Any]]:
    """Layers one behind the other: names are different."""
    return [{**each, "name": f"a{number}"} for number, each in enumerate(given)]


def card(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    whole = json.loads((folder / "half.json").read_text())
    change(whole)
    (folder / "half.json").write_text(json.dumps(whole))


def nested(levels: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for _ in range(levels):
        found = [{"name": "a", "layers": found}]
    return found


def only(*given: dict[str, Any], shape: tuple[int, ...] = (2, 8, 8)) -> Callable[[Path], None]:
    """A card with these layers, and weights that they would have where those are few."""

    def forge(folder: Path) -> None:
        card(folder, lambda whole: whole.update(layers=list(given), shape=list(shape), output=list(shape)))
        with torch.device("meta"):
            try:
                wanted = layers.built(list(given)).state_dict()
            except MixveilError:
                return
        if sum(tensor.numel() for tensor in wanted.values()) < 1 << 20:
            (folder / "weights.safetensors").unlink()
            save_file(
                {name: torch.zeros(tensor.shape) for name, tensor in wanted.items()}, folder / "weights.safetensors"
            )

    return forge  # fmt: skip


def fields(**values: Any) -> Callable[[Path], None]:
    return lambda folder: card(folder, lambda whole: whole.update(values))


def tensors(change: Callable[[dict[str, Tensor]], Any]) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        path = folder / "weights.safetensors"
        held = load_file(path)
        path.unlink()
        change(held)
        save_file(held, path)

    return forge


def linear(inputs: int, outputs: int) -> dict[str, Any]:
    return layer("linear", in_features=inputs, out_features=outputs, bias=0)


def raw(name: str, data: bytes) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_bytes(data)


def linked(folder: Path) -> None:
    (folder / "half.json").rename(folder / "x")
    (folder / "half.json").symlink_to("x")


FORBIDDEN = (
    "__class__",
    "forward",
    "training",
    "_modules",
    "_parameters",
    "append",
    "__dict__",
    "a.b",
    "",
    "a" * 61,
    "\u202e",
)
MANY = b'{"name":"a","layer":"relu"},' * 300_000
FORGED: dict[str, Callable[[Path], Any]] = {
    "no card": lambda folder: (folder / "half.json").unlink(),
    "no weights": lambda folder: (folder / "weights.safetensors").unlink(),
    "card is a link": linked,
    "not JSON": raw("half.json", b"\x80\x04pickle"),
    "a list": raw("half.json", b"[]"),
    "not tensors": raw("weights.safetensors", b"PK\x03\x04" + bytes(100)),
    "a long header": raw("weights.safetensors", (1 << 40).to_bytes(8, "little") + bytes(100)),
    "format": fields(format="mixveil-release"),
    "extra field": fields(more=1),
    "role": fields(role=["client"]),
    "partner": fields(partner="0" * 64),
    "no shape": fields(shape=[]),
    "shape of nothing": fields(shape=[0, 8, 8]),
    "shape of text": fields(shape="288"),
    "huge shape": fields(shape=[1 << 40, 1 << 40]),
    "five sizes": fields(shape=[2, 2, 2, 2, 2]),
    "other shape": fields(shape=[2, 12, 12]),
    "other output": fields(output=[4, 4, 5]),
    "range": fields(low=1, high=1),
    "range of text": fields(low="0"),
    "no classes": fields(classes=[]),
    "classes twice": fields(classes=["a", "a", "b"]),
    "class of two lines": fields(classes=["a\nb", "c", "d"]),
    "how of lists": fields(how={"a": [1]}),
    "layers of text": fields(layers="relu"),
    "layer of text": fields(layers=["relu"]),
    "unknown layer": fields(layers=[layer("os.system")]),
    "layer of a list": fields(layers=[{"name": "a", "layer": ["relu"]}]),
    "setting missing": fields(layers=[{"name": "a", "layer": "linear"}]),
    "setting too many": fields(layers=[layer("relu", inplace=1)]),
    "setting of float": fields(layers=[layer("linear", in_features=2.0, out_features=2, bias=1)]),  # type: ignore[arg-type]
    "setting of truth": fields(layers=[layer("linear", in_features=True, out_features=2, bias=1)]),
    "negative": fields(layers=[conv(-1, 1)]),
    "no stride": fields(layers=[conv(2, 2, stride=0)]),
    "too large": fields(layers=[linear(65_537, 1)]),
    "names twice": fields(layers=[layer("relu"), layer("relu")]),
    "no name": fields(layers=[{"layer": "relu"}]),
    **{f"name {name}": fields(layers=[{"name": name, "layer": "relu"}]) for name in FORBIDDEN},
    "both kinds": fields(layers=[{"name": "a", "layer": "relu", "layers": []}]),
    "deep": fields(layers=nested(14)),
    "deeper": raw("half.json", b'{"layers":' + b"[" * 100_000),
    "many layers": raw("half.json", b'{"layers":[' + MANY[:-1] + b"]}"),
    "1001 layers": fields(layers=[{"name": f"a{number}", "layer": "relu"} for number in range(1001)]),
    "large linear": only(linear(65_536, 65_536), shape=(65_536,)),
    "large convolution": only(conv(65_536, 65_536, 65_536)),
    "wide convolution": only(conv(1, 65_536), shape=(1, 4096, 4096)),
    "wide padding": only(conv(2, 1, padding=65_536)),
    "wide padding, then narrow": only(conv(2, 1, padding=65_536), {**conv(1, 1, 1, 65_536), "name": "b"}),
    "grows twice": only(conv(2, 1, padding=2000), {**conv(1, 1, padding=60_000), "name": "b"}),
    "pool padding": only(pool(2, 2)),
    "pool of nothing": only(pool(60_000, 30_000)),
    "large pool": only(pool(9, 0)),
    "large window": only(conv(2, 2, 9)),
    "vector to a window": only(conv(8, 8), shape=(8, 8)),
    "vector to a pool": only(pool(2, 0), shape=(8, 8)),
    **{
        f"long {code}": only(*row(conv(2, 1, padding=2044), pool(8191, 4095, code), pool(4096, 0, code)))
        for code in ("max-pool", "average-pool")
    },
    "long convolution": only(conv(2, 1, 1001, padding=2044)),
    "long linear": only(*row(conv(2, 1, padding=2044), linear(4096, 4096), linear(4096, 4096))),
    "long convolutions": only(*row(conv(2, 64, padding=60), *[conv(64, 64, 9, padding=4)] * 30)),
    "long activations": only(*row(conv(2, 1, padding=2044), *[layer("gelu")] * 900)),
    "norm": only(layer("batch-norm", num_features=3)),
    "nan": tensors(lambda held: held["stem.0.weight"].view(-1)[3].fill_(torch.nan)),
    "infinity": tensors(lambda held: held["stem.1.running_mean"][0].fill_(torch.inf)),
    "negative variance": tensors(lambda held: held["stem.1.running_var"][1].fill_(-1.0)),
    "missing tensor": tensors(lambda held: held.pop("stem.1.bias")),
    "extra tensor": tensors(lambda held: held.update(more=torch.ones(1))),
    "other shape of a tensor": tensors(lambda held: held.update({"stem.1.bias": torch.ones(5)})),
    "double": tensors(lambda held: held.update({"stem.1.bias": torch.ones(4).double()})),
    "half precision": tensors(lambda held: held.update({"stem.1.bias": torch.ones(4).half()})),
    "whole numbers": tensors(lambda held: held.update({"stem.1.bias": torch.ones(4).int()})),
}  # fmt: skip


@pytest.mark.parametrize("which", FORGED)
def test_forged_halves_are_refused_before_anything_is_run(
    tmp_path: Path, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_half(tmp_path / "c", split(own(), "stem", (2, 8, 8), 3)[0])
    FORGED[which](tmp_path / "c")
    monkeypatch.setattr(nn.Module, "__call__", lambda *given: pytest.fail("a layer of others was run"))
    made = torch.zeros

    def small(*given: Any, **named: Any) -> Tensor:
        found = made(*given, **named)
        assert found.device.type == "meta" or found.numel() < 1 << 20
        return found

    monkeypatch.setattr(torch, "zeros", small)
    why = "multiply-adds" if which.startswith("long ") else None
    with pytest.raises(DataFormatError, match=why):
        read_half(tmp_path / "c")


def test_other_versions_roles_and_folders_are_refused(tmp_path: Path) -> None:
    client, server = split(own(), "stem", (2, 8, 8), 3)
    write_half(tmp_path / "c", client)
    write_half(tmp_path / "s", server)
    for folder, role in (("c", "server"), ("s", "client")):
        with pytest.raises(MismatchError, match=role):
            read_half(tmp_path / folder, role)  # type: ignore[arg-type]
    card(tmp_path / "s", lambda whole: whole.update(partner=None))
    write_records(tmp_path / "release")
    (tmp_path / "file").write_text("{}")
    for folder in ("s", "release", "file"):
        with pytest.raises(DataFormatError):
            read_half(tmp_path / folder)
    with pytest.raises(MissingPathError):
        read_half(tmp_path / "nothing")
    for version in (2, "1", True, None):
        card(tmp_path / "c", lambda whole, version=version: whole.update(version=version))  # type: ignore[misc]
        with pytest.raises(VersionError):
            read_half(tmp_path / "c")
