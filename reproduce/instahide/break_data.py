"""The images that `breaks` works on, and a folder of them that can be carried to another machine in two parts.

    MIXVEIL_DATA=DIR python -m reproduce.instahide.break_data FOLDER

Private: 100 CIFAR-10 test images, drawn at random. Mixed in: 10,000 patches of Tiny-ImageNet, cut as the encoder cuts
them. What attackers hold: CIFAR-100, as images like the private ones, and 4,000 patches of Tiny-ImageNet that they cut
themselves; they know neither a private image nor which patches were mixed in.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mixveil.core.randomness import SeededStream
from mixveil.data.covers import patches
from mixveil.data.images import Images, from_tensors
from mixveil.data.opening import open_data
from reproduce.instahide.attack_data import octets

PRIVATE, PUBLIC, COVERS, CUTS = 100, 10_000, 10_000, 4_000
PARTS = {"attacker": ("public", "cuts"), "owner": ("private", "covers")}


@dataclass(frozen=True)
class BreakSets:
    """private, public: Images; covers: what is mixed in; cuts: the attackers' own patches."""

    private: Images
    public: Images
    covers: Images
    cuts: Images


def opened(folder: Path | None) -> BreakSets:
    """From a folder that was packed, or from the data sets themselves."""
    files = [] if folder is None else sorted(folder.glob("*.safetensors"))
    made = dict(item for file in files for item in load_file(file).items()) or made_sets()
    sizes = {"private": 10, "public": 100, "covers": 1, "cuts": 1}
    return BreakSets(
        **{
            name: from_tensors(made[name].float() / 255, made[f"{name} labels"], classes=classes, name=name)
            for name, classes in sizes.items()
        }
    )


def made_sets() -> dict[str, Tensor]:
    """(n, c, h, w) uint8 each, and labels."""
    private, public, tiny = (open_data(name) for name in ("cifar10:test", "cifar100", "tiny-imagenet"))
    found: dict[str, Tensor] = {}
    for name, data, count, seed in (("private", private, PRIVATE, 1), ("public", public, PUBLIC, 2)):
        index = SeededStream(seed).permutation(len(data))[:count]
        found |= {name: octets(data.take(index).x), f"{name} labels": data.labels[index]}
    for name, count, seed in (("covers", COVERS, 3), ("cuts", CUTS, 4)):
        cut = patches(tiny, private, count=count, stream=SeededStream(seed))
        found |= {name: octets(cut.take(torch.arange(count)).x), f"{name} labels": torch.zeros(count).long()}
    return found


def main() -> None:
    folder = Path(sys.argv[1])
    made = made_sets()
    for part, names in PARTS.items():
        (folder / part).mkdir(parents=True)
        held = {key: made[key].contiguous() for name in names for key in (name, f"{name} labels")}
        save_file(held, folder / part / f"{part}.safetensors")


if __name__ == "__main__":
    main()
