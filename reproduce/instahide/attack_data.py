"""The images that `attacks` works on, and a folder of them that is small enough to carry to another machine.

    MIXVEIL_DATA=DIR python -m reproduce.instahide.attack_data FOLDER

Private: CIFAR-10 test images. What attackers hold: CIFAR-100, as images like the private ones, and Tiny-ImageNet, which
is mixed in: one patch an image with more than 40 keypoints, cut at random as the encoder does, and the whole images.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mixveil.core.randomness import SeededStream
from mixveil.data import covers
from mixveil.data.images import Images, from_tensors
from mixveil.data.opening import open_data

PRIVATE, PUBLIC, COVERS, TRIES = 500, 4000, 10_000, 12


@dataclass(frozen=True)
class Sets:
    """patches, wholes: (p, c, h, w) in [0, 1]; patch i is cut of whole i."""

    private: Images
    public: Images
    patches: Tensor
    wholes: Tensor


def opened(folder: Path | None) -> Sets:
    """From a folder that was packed, or from the data sets themselves."""
    files = [] if folder is None else sorted(folder.iterdir())
    made = dict(item for file in files for item in load_file(file).items()) or made_sets()
    private, public = (
        from_tensors(made[name].float() / 255, made[f"{name} labels"], classes=classes, name=name)
        for name, classes in (("private", 10), ("public", 100))
    )
    none = torch.empty(0, *private.shape)
    patches, wholes = (made[name].float() / 255 if name in made else none for name in ("patches", "wholes"))
    return Sets(private, public, patches, wholes)


def made_sets() -> dict[str, Tensor]:
    """(n, c, h, w) uint8 each, and labels."""
    found: dict[str, Tensor] = {}
    for name, source, count in (("public", "cifar100", PUBLIC), ("private", "cifar10:test", PRIVATE)):
        data = open_data(source)
        index = torch.arange(count)
        found |= {name: octets(data.take(index).x), f"{name} labels": data.labels[index]}
    patches, wholes = list[Tensor](), list[Tensor]()
    for part in ("tiny-imagenet", "tiny-imagenet:val"):
        images = open_data(part)
        cut = one_an_image(images, COVERS - sum(map(len, patches)))
        whole = cut.clone()
        whole[:, 1:3], whole[:, 3] = 0, min(images.shape[1:])
        for made, table in ((patches, cut), (wholes, whole)):
            made.append(octets(covers.Patches(images, table, data).take(torch.arange(len(table))).x))
    return found | {"patches": torch.cat(patches), "wholes": torch.cat(wholes)}


def one_an_image(images: Images, most: int) -> Tensor:
    """(p, 4) squares of as many images as have one with keypoints enough among the first that are drawn."""
    keypoints, stream, found = covers._sift(), SeededStream(8), list[Tensor]()
    for index in torch.split(SeededStream(7).permutation(len(images)), 200):
        for image, number in zip(images.originals(index), index.tolist(), strict=True):
            squares = (covers._drawn(image, number, one) for one in stream.uniform(TRIES, 3))
            enough = (square for square in squares if keypoints(covers._square(image, square)) > covers.KEYPOINTS)
            found += itertools.islice(enough, 1)
        sys.stderr.write(f"\r{len(found)} patches")
        if len(found) >= most:
            break
    return torch.stack(found[:most])


def octets(x: Tensor) -> Tensor:
    return x.mul(255).round().byte()


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    made = made_sets()
    alone = {"patches": ["patches"], "wholes": ["wholes"]}
    alone["images"] = [name for name in made if name not in alone]
    for file, names in alone.items():
        save_file({name: made[name].contiguous() for name in names}, folder / f"{file}.safetensors")


if __name__ == "__main__":
    main()
